// Counts the words of source and target lines in one table.

#include "arrays.h"
#include "arrow.h"
#include "kernels.h"
#include "tables.h"
#include "text.h"

namespace rareword {
namespace {

// Words with a count for each side.
struct Counts {
  StringTable words;
  std::vector<int64_t> source, target;

  int64_t id(std::string_view word, uint64_t hash, bool& is_new) {
    const int64_t id = words.add(word, hash, is_new);
    if (is_new) {
      source.push_back(0);
      target.push_back(0);
    }
    return id;
  }

  void add_lines(const StringColumn& lines, int64_t begin, int64_t end,
                 std::vector<int64_t> Counts::*side) {
    for (int64_t row = begin; row < end; ++row)
      for_each_word(lines[row], [&](std::string_view word, size_t first) {
        bool is_new = false;
        const int64_t id = this->id(word, hash_bytes(word), is_new);
        if (is_new) check_utf8(word, row, first);  // each distinct word once
        ++(this->*side)[id];
      });
  }

  void add_all(const Counts& other) {
    for (int64_t k = 0; k < other.words.size(); ++k) {
      bool is_new = false;
      const int64_t id = this->id(other.words[k], other.words.hash(k), is_new);
      source[id] += other.source[k];
      target[id] += other.target[k];
    }
  }
};

py::tuple to_python(Counts&& counts) {
  const int64_t n = counts.words.size();
  std::vector<uint64_t> hashes(n);
  for (int64_t k = 0; k < n; ++k) hashes[k] = counts.words.hash(k);
  std::vector<int64_t> offsets(counts.words.begins().begin(), counts.words.begins().end());
  std::vector<uint8_t> bytes(counts.words.bytes().begin(), counts.words.bytes().end());
  return py::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(bytes)),
                        to_numpy(std::move(counts.source)), to_numpy(std::move(counts.target)),
                        to_numpy(std::move(hashes)));
}

py::tuple count_words(const py::object& source, const py::object& target, int threads) {
  const StringColumn source_lines(source), target_lines(target);
  std::vector<Counts> parts(std::max(threads, 1));
  {
    const py::gil_scoped_release release;
    for (auto [lines, side] : {std::pair{&source_lines, &Counts::source},
                               std::pair{&target_lines, &Counts::target}})
      in_parallel(lines->rows(), threads, [&, lines = lines, side = side](int t, int64_t b, int64_t e) {
        parts[t].add_lines(*lines, b, e, side);
      });
    for (size_t t = 1; t < parts.size(); ++t) parts[0].add_all(parts[t]);
  }
  return to_python(std::move(parts[0]));
}

py::tuple sum_words(const py::object& words, const Array<int64_t>& source,
                    const Array<int64_t>& target) {
  const StringColumn column(words);
  if (source.size() != column.rows() || target.size() != column.rows())
    throw py::value_error("words and counts differ in length");
  Counts sums;
  const int64_t *s = source.data(), *t = target.data();
  {
    const py::gil_scoped_release release;
    for (int64_t row = 0; row < column.rows(); ++row) {
      bool is_new = false;
      const int64_t id = sums.id(column[row], hash_bytes(column[row]), is_new);
      sums.source[id] += s[row];
      sums.target[id] += t[row];
    }
  }
  return to_python(std::move(sums));
}

}  // namespace

void bind_count_words(py::module_& module) {
  module.def("count_words", &count_words, py::arg("source"), py::arg("target"),
             py::arg("threads") = 1,
             "Counts the words (split at U+0020) of two Arrow string arrays.\n\n"
             "Returns (offsets int64, bytes uint8, source counts int64, target counts int64, "
             "hashes uint64), one entry a distinct word. Raises ValueError naming row and byte "
             "for text that is not UTF-8.");
  module.def("sum_words", &sum_words, py::arg("words"), py::arg("source_counts"),
             py::arg("target_counts"),
             "Adds the counts of equal words of an Arrow string array; returns as count_words.");
}

}  // namespace rareword
