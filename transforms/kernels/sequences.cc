// Words as symbol sequences, and the merges applied to them.

#include "arrays.h"
#include "arrow.h"
#include "kernels.h"
#include "merge_table.h"
#include "symbols.h"
#include "text.h"
#include "threads.h"

namespace rareword {
namespace {

py::tuple base_symbols(const py::object& words, const Array<int64_t>& counts, bool bytes) {
  const StringColumn column(words);
  if (counts.size() != column.rows()) throw py::value_error("words and counts differ in length");
  const int64_t* count = counts.data();
  Sequences result;
  {
    const py::gil_scoped_release release;
    result.symbols.reserve(column.bytes(0, column.rows()));
    result.offsets.reserve(column.rows() + 1);
    result.counts.reserve(column.rows());
    for (int64_t row = 0; row < column.rows(); ++row) {
      append_base_symbols(column[row], row, 0, bytes, result.symbols);
      result.end_word(count[row]);
    }
  }
  return to_python(std::move(result));
}

// The parts one behind the other.
py::tuple joined(const std::vector<Sequences>& parts, int threads) {
  std::vector<int64_t> words{0}, sizes{0};
  for (const Sequences& part : parts) {
    words.push_back(words.back() + static_cast<int64_t>(part.counts.size()));
    sizes.push_back(sizes.back() + static_cast<int64_t>(part.symbols.size()));
  }
  Buffer<int32_t> symbols(sizes.back());
  Buffer<int64_t> offsets(words.back() + 1), counts(words.back());
  {
    const py::gil_scoped_release release;
    Blocks(static_cast<int64_t>(parts.size()), threads)
        .run([&](int, int64_t, int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            const Sequences& part = parts[k];
            std::copy(part.symbols.begin(), part.symbols.end(), symbols.data.get() + sizes[k]);
            std::copy(part.counts.begin(), part.counts.end(), counts.data.get() + words[k]);
            for (size_t w = 0; w < part.counts.size(); ++w)
              offsets[words[k] + static_cast<int64_t>(w)] = part.offsets[w] + sizes[k];
          }
        });
    offsets[words.back()] = sizes.back();
  }
  return py::make_tuple(to_numpy(std::move(symbols)), to_numpy(std::move(offsets)),
                        to_numpy(std::move(counts)));
}

py::tuple apply_merges(const Array<int32_t>& symbols, const Array<int64_t>& offsets,
                       const Array<int64_t>& counts, const Array<int32_t>& left,
                       const Array<int32_t>& right, int threads) {
  const SequencesView view(symbols, offsets, counts, threads);
  const int64_t merges = left.size();
  if (right.size() != merges) throw py::value_error("left and right differ in length");
  const Blocks blocks(view.words, threads);
  std::vector<Sequences> parts(blocks.number());
  {
    const py::gil_scoped_release release;
    std::vector<int32_t> results(merges);
    for (int64_t r = 0; r < merges; ++r) results[r] = kFirstMerged + static_cast<int32_t>(r);
    const MergeTable table(left.data(), right.data(), results.data(), merges);
    blocks.run([&](int, int64_t block, int64_t begin, int64_t end) {
      Sequences& part = parts[block];
      MergeTable::Scratch scratch;
      std::vector<int32_t> word;
      for (int64_t w = begin; w < end; ++w) {
        word.assign(view.symbols + view.offsets[w], view.symbols + view.offsets[w + 1]);
        table.merge(word, scratch);
        if (word.size() < 2) continue;  // no pair is left in it
        part.symbols.insert(part.symbols.end(), word.begin(), word.end());
        part.end_word(view.counts[w]);
      }
    });
  }
  if (parts.size() == 1) return to_python(std::move(parts[0]));
  return joined(parts, threads);
}

}  // namespace

void bind_sequences(py::module_& module) {
  module.def("base_symbols", &base_symbols, py::arg("words"), py::arg("counts"),
             py::arg("bytes") = false,
             "The base symbols of each word of an Arrow string array: 2 * code point (bytes: 2 * "
             "byte), plus 1 at the word's end.\n\nReturns (symbols int32, offsets int64, counts "
             "int64). Raises "
             "ValueError naming row and byte for text that is not UTF-8.");
  module.def("apply_merges", &apply_merges, py::arg("symbols"), py::arg("offsets"),
             py::arg("counts"), py::arg("left"), py::arg("right"), py::arg("threads") = 1,
             "Applies merges (by rank) to every sequence; returns the sequences that still have "
             "two symbols or more, as base_symbols does.");
  module.attr("FIRST_MERGED") = kFirstMerged;
}

}  // namespace rareword
