// Counts the words of source and target lines in one pass.

#include <algorithm>

#include "arrays.h"
#include "arrow.h"
#include "kernels.h"
#include "tables.h"
#include "text.h"
#include "threads.h"

namespace rareword {
namespace {

struct Counts {
  int64_t source = 0, target = 0;
};
using WordTable = StringTable<Counts>;

// A word on its way into the table.
struct Word {
  std::string_view text;
  uint64_t hash;
};

// A word that is counted already.
struct Entry {
  std::string_view text;
  uint64_t hash;
  Counts counts;
};

// What takes items into a table: use(counts, item, whether the word is new).
template <class Item, class Use>
auto sink(WordTable& table, Use use) {
  return lookahead<Item>([&table](const Item& item) { table.fetch_slot(item.hash); },
                         [&table](const Item& item) { table.fetch_entry(item.hash); },
                         [&table, use](const Item& item) {
                           bool is_new = false;
                           Counts& counts = table.add(item.text, item.hash, is_new);
                           use(counts, item, is_new);
                         });
}

// Words with their counts, collected over any number of calls; one table a thread.
class WordCounter {
 public:
  explicit WordCounter(int threads) : tables_(std::max(threads, 1)) {}

  void add_lines(const py::object& source, const py::object& target) {
    const StringColumn source_lines(source), target_lines(target);
    const py::gil_scoped_release release;
    add_side(source_lines, &Counts::source);
    add_side(target_lines, &Counts::target);
  }

  void add_counts(const py::object& words, const Array<int64_t>& source,
                  const Array<int64_t>& target) {
    const StringColumn column(words);
    if (source.size() != column.rows() || target.size() != column.rows())
      throw py::value_error("words and counts differ in length");
    const int64_t *s = source.data(), *t = target.data();
    const py::gil_scoped_release release;
    Blocks(column.rows(), threads()).run([&](int thread, int64_t, int64_t begin, int64_t end) {
      auto entries = sink<Entry>(tables_[thread], [](Counts& sum, const Entry& entry, bool) {
        sum.source += entry.counts.source;
        sum.target += entry.counts.target;
      });
      for (int64_t row = begin; row < end; ++row)
        entries.push({column[row], hash_bytes(column[row]), {s[row], t[row]}});
      entries.finish();
    });
  }

  int64_t memory() const {
    int64_t sum = 0;
    for (const WordTable& table : tables_) sum += static_cast<int64_t>(table.memory());
    return sum;
  }

  // Hands the words over, each once, part by part, and begins anew.
  py::tuple take(int64_t parts) {
    if (parts < 1) throw py::value_error("parts must be 1 or more");
    std::vector<WordTable> tables = std::move(tables_);
    tables_ = std::vector<WordTable>(tables.size());
    const auto part = [&](std::string_view text) {
      return parts == 1 ? 0 : part_of(hash_bytes(text), parts);
    };
    std::unique_ptr<Columns> columns;
    {
      const py::gil_scoped_release release;
      fold(tables, [](Counts& sum, const Counts& counts) {
        add_atomically(sum.source, counts.source);
        add_atomically(sum.target, counts.target);
      });
      const auto n = static_cast<int>(tables.size());
      PartLayout rows(tables.size(), parts), bytes(tables.size(), parts);
      in_threads(n, [&](int k) {
        tables[k].for_each([&](std::string_view text, const Counts&) {
          const int64_t p = part(text);
          ++rows.count(k, p);
          bytes.count(k, p) += static_cast<int64_t>(text.size());
        });
      });
      std::vector<int64_t> bounds = rows.settle();
      const int64_t size = bytes.settle().back(), total = bounds.back();
      columns = std::make_unique<Columns>(total, size, std::move(bounds));
      in_threads(n, [&](int k) {
        tables[k].for_each([&](std::string_view text, const Counts& counts) {
          const int64_t p = part(text);
          columns->put(rows.take(k, p), bytes.take(k, p, static_cast<int64_t>(text.size())), text,
                       counts);
        });
      });
    }
    return std::move(*columns).to_python();
  }

 private:
  int threads() const { return static_cast<int>(tables_.size()); }

  [[noreturn]] static void throw_not_utf8(const StringColumn& lines, std::string_view word) {
    const int64_t row = lines.row_of(word.data());
    check_utf8(word, row, static_cast<size_t>(word.data() - lines[row].data()));
    throw std::logic_error("a word that is UTF-8 was taken for one that is not");
  }

  void add_side(const StringColumn& lines, int64_t Counts::*side) {
    Blocks(lines.rows(), threads()).run([&](int thread, int64_t, int64_t begin, int64_t end) {
      auto words = sink<Word>(tables_[thread], [&](Counts& counts, const Word& word, bool is_new) {
        ++(counts.*side);
        if (is_new && !is_utf8(word.text)) throw_not_utf8(lines, word.text);
      });
      for (int64_t row = begin; row < end; ++row)
        for_each_word(lines[row], [&](std::string_view text, size_t) {
          words.push({text, hash_bytes(text)});
        });
      words.finish();
    });
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
      .def("take", &WordCounter::take, py::arg("parts") = 1,
           "Hands the words over and begins anew.\n\nReturns (offsets int64, bytes uint8, source "
           "counts int64, target counts int64, bounds int64): each word once; the words of part p, "
           "which a hash of the bytes decides, are rows bounds[p] .. bounds[p + 1].");
}

}  // namespace rareword
