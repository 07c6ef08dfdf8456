// Chunks: what is left of the words when every junction whose pair cannot win is cut.

#include "arrays.h"
#include "kernels.h"
#include "tables.h"
#include "threads.h"

namespace rareword {
namespace {

// Distinct symbol sequences, as bytes, with their weights.
using ChunkTable = StringTable<int64_t>;

struct CountedChunk {
  std::string_view bytes;
  uint64_t hash;
  int64_t count;
};

CountedChunk counted(const int32_t* begin, const int32_t* end, int64_t count) {
  const std::string_view bytes(reinterpret_cast<const char*>(begin),
                               static_cast<size_t>(end - begin) * 4);
  return {bytes, hash_bytes(bytes), count};
}

// What takes chunks into a table.
auto sink(ChunkTable& table) {
  return lookahead<CountedChunk>(
      [&table](const CountedChunk& chunk) { table.fetch_slot(chunk.hash); },
      [&table](const CountedChunk& chunk) { table.fetch_entry(chunk.hash); },
      [&table](const CountedChunk& chunk) { table.add(chunk.bytes, chunk.hash) += chunk.count; });
}

// The chunks of all tables, each once, part by part: (symbols, offsets, counts, bounds).
py::tuple to_python(std::vector<ChunkTable>&& tables, int64_t parts) {
  struct Columns {
    Buffer<int32_t> symbols;
    Buffer<int64_t> offsets, counts;
    Columns(int64_t rows, int64_t size) : symbols(size), offsets(rows + 1), counts(rows) {
      offsets[rows] = size;
    }
  };
  std::unique_ptr<Columns> columns;
  std::vector<int64_t> bounds;
  {
    const py::gil_scoped_release release;
    const auto n = static_cast<int>(tables.size());
    fold(tables, add_atomically);
    PartLayout rows(tables.size(), parts), symbols(tables.size(), parts);
    in_threads(n, [&](int t) {
      tables[t].for_each([&](std::string_view bytes, int64_t) {
        const int64_t part = part_of(hash_bytes(bytes), parts);
        ++rows.count(t, part);
        symbols.count(t, part) += static_cast<int64_t>(bytes.size() / 4);
      });
    });
    bounds = rows.settle();
    columns = std::make_unique<Columns>(bounds.back(), symbols.settle().back());
    in_threads(n, [&](int t) {
      tables[t].for_each([&](std::string_view bytes, int64_t count) {
        const int64_t part = part_of(hash_bytes(bytes), parts);
        const int64_t row = rows.take(t, part);
        const int64_t at = symbols.take(t, part, static_cast<int64_t>(bytes.size() / 4));
        columns->offsets[row] = at;
        columns->counts[row] = count;
        memcpy(&columns->symbols[at], bytes.data(), bytes.size());
      });
    });
  }
  return py::make_tuple(to_numpy(std::move(columns->symbols)),
                        to_numpy(std::move(columns->offsets)),
                        to_numpy(std::move(columns->counts)), to_numpy(std::move(bounds)));
}

py::tuple cut_chunks(const Array<int32_t>& symbols, const Array<int64_t>& offsets,
                     const Array<int64_t>& counts, const Array<int32_t>& active_left,
                     const Array<int32_t>& active_right, int threads, int64_t parts) {
  if (parts < 1) throw py::value_error("parts must be 1 or more");
  const SequencesView view(symbols, offsets, counts, threads);
  if (active_left.size() != active_right.size())
    throw py::value_error("active pairs differ in length");
  std::vector<ChunkTable> tables(std::max(threads, 1));
  {
    const py::gil_scoped_release release;
    PairTable active;
    for (int64_t k = 0; k < active_left.size(); ++k)
      active.add(pair_key(active_left.data()[k], active_right.data()[k]), 1);
    Blocks(view.words, threads).run([&](int t, int64_t, int64_t first, int64_t last) {
      auto chunks = sink(tables[t]);
      for (int64_t w = first; w < last; ++w) {
        int64_t begin = view.offsets[w];
        const int64_t end = view.offsets[w + 1];
        for (int64_t i = begin; i < end; ++i) {
          const bool cut = i + 1 == end ||
                           !active.find(pair_key(view.symbols[i], view.symbols[i + 1]));
          if (!cut) continue;
          if (i > begin)
            chunks.push(counted(view.symbols + begin, view.symbols + i + 1, view.counts[w]));
          begin = i + 1;
        }
      }
      chunks.finish();
    });
  }
  return to_python(std::move(tables), parts);
}

py::tuple sum_chunks(const Array<int32_t>& symbols, const Array<int64_t>& offsets,
                     const Array<int64_t>& counts) {
  const SequencesView view(symbols, offsets, counts);
  std::vector<ChunkTable> tables(1);
  {
    const py::gil_scoped_release release;
    auto chunks = sink(tables[0]);
    for (int64_t w = 0; w < view.words; ++w)
      chunks.push(counted(view.symbols + view.offsets[w], view.symbols + view.offsets[w + 1],
                          view.counts[w]));
    chunks.finish();
  }
  return to_python(std::move(tables), 1);
}

}  // namespace

void bind_chunks(py::module_& module) {
  module.def("cut_chunks", &cut_chunks, py::arg("symbols"), py::arg("offsets"), py::arg("counts"),
             py::arg("active_left"), py::arg("active_right"), py::arg("threads") = 1,
             py::arg("parts") = 1,
             "Cuts every sequence at each junction whose pair is not active, drops single symbols "
             "and adds the counts of equal chunks.\n\nReturns (symbols int32, offsets int64, "
             "counts int64, bounds int64): each chunk once; those of part p, which a hash of the "
             "symbols decides, are rows bounds[p] .. bounds[p + 1].");
  module.def("sum_chunks", &sum_chunks, py::arg("symbols"), py::arg("offsets"), py::arg("counts"),
             "Adds the counts of equal chunks; returns as cut_chunks, in one part.");
}

}  // namespace rareword
