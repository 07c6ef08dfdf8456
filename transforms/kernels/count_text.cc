// Counts the words of plain text, in the order of their first appearance.

#include <algorithm>
#include <string_view>

#include "arrays.h"
#include "kernels.h"
#include "line_text.h"
#include "tables.h"
#include "text.h"
#include "threads.h"

namespace rareword {
namespace {

class TextCounter {
 public:
  // Whole lines of text. `first_line` is for errors.
  void add(const py::bytes& text, int64_t first_line, int threads) {
    const std::string_view all = text;
    const py::gil_scoped_release release;
    const LineShares shares(all, first_line, std::max(threads, 1));
    std::vector<WordTable> later(shares.size());  // of all shares but the first
    in_threads(shares.size(), [&](int t) {
      count(shares.text(t), shares.first_line(t), t == 0 ? words_ : later[t]);
    });
    for (const WordTable& table : later)
      table.for_each([&](std::string_view word, int64_t number) {
        words_.add(word, hash_bytes(word)) += number;
      });
  }

  // (offsets int64, bytes uint8, counts int64)
  py::tuple words() const {
    Buffer<int64_t> offsets(words_.size() + 1), counts(words_.size());
    Buffer<uint8_t> bytes(words_.text_bytes());
    int64_t row = 0, at = 0;
    words_.for_each([&](std::string_view word, int64_t number) {
      offsets[row] = at;
      counts[row++] = number;
      memcpy(bytes.data.get() + at, word.data(), word.size());
      at += static_cast<int64_t>(word.size());
    });
    offsets[row] = at;
    return py::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(bytes)),
                          to_numpy(std::move(counts)));
  }

 private:
  using WordTable = StringTable<int64_t>;
  struct Word {
    std::string_view text;
    uint64_t hash;
    int64_t line;
    size_t first;
  };

  static void count(std::string_view text, int64_t line, WordTable& table) {
    auto words = lookahead<Word>(
        [&](const Word& word) { table.fetch_slot(word.hash); },
        [&](const Word& word) { table.fetch_entry(word.hash); },
        [&](const Word& word) {
          bool is_new = false;
          ++table.add(word.text, word.hash, is_new);
          if (is_new) check_utf8(word.text, word.line, word.first);  // each distinct word once
        });
    for_each_line(text, [&](const Line& found) {
      for_each_word(found.words, [&](std::string_view word, size_t at) {
        words.push({word, hash_bytes(word), line, found.before.size() + at});
      });
      ++line;
    });
    words.finish();
  }

  WordTable words_;
};

}  // namespace

void bind_count_text(py::module_& module) {
  py::class_<TextCounter>(module, "TextCounter",
                          "Counts the words of plain text, in the order of first appearance.")
      .def(py::init<>())
      .def("add", &TextCounter::add, py::arg("text"), py::arg("first_line") = 0,
           py::arg("threads") = 1,
           "Counts the words (split at U+0020) of whole lines; `\\r`, `\\n` and spaces at their "
           "ends belong to no word.\n\nRaises ValueError naming row and byte for text that is not "
           "UTF-8; the counter is of no use then.")
      .def("words", &TextCounter::words,
           "(offsets int64, bytes uint8, counts int64) of the words.");
}

}  // namespace rareword
