// Counts the words of source and target lines in one pass.

#include <algorithm>
#include <numeric>

#include "arrays.h"
#include "arrow.h"
#include "kernels.h"
#include "tables.h"
#include "text.h"

namespace rareword {
namespace {

struct Counts {
  int64_t source = 0, target = 0;
};
using WordTable = StringTable<Counts>;

// A word on its way into the table. `row` and `first` (its first byte in the row) are for errors.
struct Word {
  std::string_view text;
  uint64_t hash;
  int64_t row;
  size_t first;
};

// Adds the words of rows begin .. end. Each distinct word is checked once.
void add_lines(WordTable& table, const StringColumn& lines, int64_t begin, int64_t end,
               int64_t Counts::*side) {
  auto words = lookahead<Word>([&](const Word& word) { table.fetch_slot(word.hash); },
                               [&](const Word& word) { table.fetch_entry(word.hash); },
                               [&](const Word& word) {
                                 bool is_new = false;
                                 ++(table.add(word.text, word.hash, is_new).*side);
                                 if (is_new) check_utf8(word.text, word.row, word.first);
                               });
  for (int64_t row = begin; row < end; ++row)
    for_each_word(lines[row], [&](std::string_view text, size_t first) {
      words.push({text, hash_bytes(text), row, first});
    });
  words.finish();
}

// A word that is counted already.
struct Entry {
  std::string_view text;
  uint64_t hash;
  Counts counts;
};

// Adds what produce(put) gives to put(text, hash, counts).
template <class Produce>
void add_counted(WordTable& table, Produce produce) {
  auto entries = lookahead<Entry>([&](const Entry& entry) { table.fetch_slot(entry.hash); },
                                  [&](const Entry& entry) { table.fetch_entry(entry.hash); },
                                  [&](const Entry& entry) {
                                    Counts& counts = table.add(entry.text, entry.hash);
                                    counts.source += entry.counts.source;
                                    counts.target += entry.counts.target;
                                  });
  produce([&](std::string_view text, uint64_t hash, const Counts& counts) {
    entries.push({text, hash, counts});
  });
  entries.finish();
}

// Words with their counts, collected over any number of calls; one table a thread.
class WordCounter {
 public:
  explicit WordCounter(int threads) : tables_(std::max(threads, 1)) {}

  void add_lines(const py::object& source, const py::object& target) {
    const StringColumn source_lines(source), target_lines(target);
    const py::gil_scoped_release release;
    for (auto [lines, side] : {std::pair{&source_lines, &Counts::source},
                               std::pair{&target_lines, &Counts::target}})
      in_parallel(lines->rows(), threads(),
                  [&, lines = lines, side = side](int t, int64_t begin, int64_t end) {
                    rareword::add_lines(tables_[t], *lines, begin, end, side);
                  });
  }

  void add_counts(const py::object& words, const Array<int64_t>& source,
                  const Array<int64_t>& target) {
    const StringColumn column(words);
    if (source.size() != column.rows() || target.size() != column.rows())
      throw py::value_error("words and counts differ in length");
    const int64_t *s = source.data(), *t = target.data();
    const py::gil_scoped_release release;
    in_parallel(column.rows(), threads(), [&](int thread, int64_t begin, int64_t end) {
      add_counted(tables_[thread], [&](auto put) {
        for (int64_t row = begin; row < end; ++row)
          put(column[row], hash_bytes(column[row]), Counts{s[row], t[row]});
      });
    });
  }

  int64_t memory() const {
    int64_t sum = 0;
    for (const WordTable& table : tables_) sum += static_cast<int64_t>(table.memory());
    return sum;
  }

  // Hands the words over, each once, part by part, and begins anew.
  py::tuple take(int64_t parts, bool sorted) {
    if (parts < 1) throw py::value_error("parts must be 1 or more");
    std::vector<WordTable> tables;
    {
      const py::gil_scoped_release release;
      tables = distinct();
      tables_ = std::vector<WordTable>(tables_.size());
    }
    return sorted ? take_sorted(tables, parts) : take_unsorted(tables, parts);
  }

 private:
  int threads() const { return static_cast<int>(tables_.size()); }

  // Tables that have no word in common: each thread merges the words that fall to it.
  std::vector<WordTable> distinct() {
    if (threads() == 1) return std::move(tables_);
    std::vector<WordTable> merged(tables_.size());
    in_parallel(threads(), threads(), [&](int t, int64_t, int64_t) {
      for (const WordTable& table : tables_)
        add_counted(merged[t], [&](auto put) {
          table.for_each([&](std::string_view text, const Counts& counts) {
            const uint64_t hash = hash_bytes(text);
            if (thread_of(hash, threads()) == t) put(text, hash, counts);
          });
        });
    });
    return merged;
  }

  struct Columns {
    Buffer<int64_t> offsets;
    Buffer<uint8_t> bytes;
    Buffer<int64_t> source, target;
    std::vector<int64_t> bounds;

    Columns(int64_t rows, int64_t size, std::vector<int64_t> bounds)
        : offsets(rows + 1), bytes(size), source(rows), target(rows), bounds(std::move(bounds)) {
      offsets[rows] = size;
    }
    void put(int64_t row, int64_t at, std::string_view text, const Counts& counts) {
      offsets[row] = at;
      memcpy(bytes.data.get() + at, text.data(), text.size());
      source[row] = counts.source;
      target[row] = counts.target;
    }
    py::tuple to_python() && {
      return py::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(bytes)),
                            to_numpy(std::move(source)), to_numpy(std::move(target)),
                            to_numpy(std::move(bounds)));
    }
  };

  static py::tuple take_unsorted(const std::vector<WordTable>& tables, int64_t parts) {
    const auto part = [&](std::string_view text) {
      return parts == 1 ? 0 : part_of(hash_bytes(text), parts);
    };
    std::unique_ptr<Columns> columns;
    {
      const py::gil_scoped_release release;
      const auto n = static_cast<int64_t>(tables.size());
      PartLayout rows(tables.size(), parts), bytes(tables.size(), parts);
      in_parallel(n, static_cast<int>(n), [&](int, int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k)
          tables[k].for_each([&](std::string_view text, const Counts&) {
            const int64_t p = part(text);
            ++rows.count(k, p);
            bytes.count(k, p) += static_cast<int64_t>(text.size());
          });
      });
      std::vector<int64_t> bounds = rows.settle();
      const int64_t size = bytes.settle().back(), total = bounds.back();
      columns = std::make_unique<Columns>(total, size, std::move(bounds));
      in_parallel(n, static_cast<int>(n), [&](int, int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k)
          tables[k].for_each([&](std::string_view text, const Counts& counts) {
            const int64_t p = part(text);
            columns->put(rows.take(k, p), bytes.take(k, p, static_cast<int64_t>(text.size())),
                         text, counts);
          });
      });
    }
    return std::move(*columns).to_python();
  }

  // In the order of the words' bytes, inside each part.
  static py::tuple take_sorted(const std::vector<WordTable>& tables, int64_t parts) {
    struct Row {
      int64_t part;
      uint64_t head;  // the first 8 bytes as a number that sorts as they do
      std::string_view text;
      const Counts* counts;
      bool operator<(const Row& other) const {
        if (part != other.part) return part < other.part;
        return head != other.head ? head < other.head : text < other.text;
      }
    };
    std::unique_ptr<Columns> columns;
    {
      const py::gil_scoped_release release;
      std::vector<Row> rows;
      int64_t size = 0;
      for (const WordTable& table : tables) {
        size += table.text_bytes();
        table.for_each([&](std::string_view text, const Counts& counts) {
          char head[8] = {};
          memcpy(head, text.data(), std::min<size_t>(text.size(), 8));
          uint64_t number = 0;
          for (const char c : head) number = number << 8 | static_cast<uint8_t>(c);
          rows.push_back({parts == 1 ? 0 : part_of(hash_bytes(text), parts), number, text, &counts});
        });
      }
      std::sort(rows.begin(), rows.end());
      std::vector<int64_t> bounds(parts + 1);
      for (const Row& row : rows) ++bounds[row.part + 1];
      std::partial_sum(bounds.begin(), bounds.end(), bounds.begin());
      columns = std::make_unique<Columns>(static_cast<int64_t>(rows.size()), size, std::move(bounds));
      int64_t at = 0;
      for (size_t k = 0; k < rows.size(); ++k) {
        columns->put(static_cast<int64_t>(k), at, rows[k].text, *rows[k].counts);
        at += static_cast<int64_t>(rows[k].text.size());
      }
    }
    return std::move(*columns).to_python();
  }

  std::vector<WordTable> tables_;
};

}  // namespace

void bind_count_words(py::module_& module) {
  py::class_<WordCounter>(module, "WordCounter",
                          "Counts the words (split at U+0020) of source and target lines.")
      .def(py::init<int>(), py::arg("threads") = 1)
      .def("add_lines", &WordCounter::add_lines, py::arg("source"), py::arg("target"),
           "Counts the words of two Arrow string arrays.\n\nRaises ValueError naming row and byte "
           "for text that is not UTF-8; the counter is of no use then.")
      .def("add_counts", &WordCounter::add_counts, py::arg("words"), py::arg("source_counts"),
           py::arg("target_counts"), "Adds words that are counted already.")
      .def_property_readonly("memory", &WordCounter::memory, "Bytes that the words take here.")
      .def("take", &WordCounter::take, py::arg("parts") = 1, py::arg("sorted") = false,
           "Hands the words over and begins anew.\n\nReturns (offsets int64, bytes uint8, source "
           "counts int64, target counts int64, bounds int64): each word once; the words of part p, "
           "which a hash of the bytes decides, are rows bounds[p] .. bounds[p + 1]. `sorted`: in "
           "the order of the bytes inside each part.");
}

}  // namespace rareword
