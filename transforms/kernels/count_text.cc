// Counts the words of plain text, in the order of their first appearance.

#include <algorithm>
#include <string>

#include "arrays.h"
#include "kernels.h"
#include "line_text.h"
#include "tables.h"
#include "text.h"
#include "word_records.h"

namespace rareword {
namespace {

class TextCounter {
 public:
  // Whole lines of text. `first_line` is for errors.
  void add(const py::bytes& text, int64_t first_line, int threads) {
    const std::string_view all = text;
    const py::gil_scoped_release release;
    const LineShares shares(all, first_line, std::max(threads, 1));
    std::vector<WordRecords> later(shares.size());  // of all shares but the first
    in_parallel(shares.size(), shares.size(), [&](int, int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        count(shares.text(t), shares.first_line(t), t == 0 ? words_ : later[t]);
    });
    for (WordRecords& part : later)
      part.for_each([&](WordRecords::Record& record) {
        int64_t number;
        memcpy(&number, record.value_begin(), sizeof number);
        increase(words_, record.word(), hash_bytes(record.word()), number);
      });
  }

  int64_t memory() const { return static_cast<int64_t>(words_.memory()); }

  // (offsets int64, bytes uint8, counts int64)
  py::tuple words() {
    std::vector<int64_t> offsets{0}, counts;
    std::vector<uint8_t> bytes;
    {
      const py::gil_scoped_release release;
      offsets.reserve(words_.size() + 1);
      counts.reserve(words_.size());
      words_.for_each([&](WordRecords::Record& record) {
        const std::string_view word = record.word();
        bytes.insert(bytes.end(), word.begin(), word.end());
        offsets.push_back(static_cast<int64_t>(bytes.size()));
        counts.emplace_back();
        memcpy(&counts.back(), record.value_begin(), sizeof(int64_t));
      });
    }
    return py::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(bytes)),
                          to_numpy(std::move(counts)));
  }

 private:
  static void count(std::string_view text, int64_t line, WordRecords& words) {
    for_each_line(text, [&](const Line& found) {
      for_each_word(found.words, [&](std::string_view word, size_t at) {
        if (increase(words, word, hash_bytes(word), 1))
          check_utf8(word, line, found.before.size() + at);  // each distinct word once
      });
      ++line;
    });
  }

  // True if the word is new.
  static bool increase(WordRecords& words, std::string_view word, uint64_t hash, int64_t by) {
    if (WordRecords::Record* const known = words.find(word, hash)) {
      int64_t number;
      memcpy(&number, known->value_begin(), sizeof number);
      number += by;
      memcpy(known->value_begin(), &number, sizeof number);
      return false;
    }
    words.add(word, hash, {reinterpret_cast<const char*>(&by), sizeof by});
    return true;
  }

  WordRecords words_;
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
      .def_property_readonly("memory", &TextCounter::memory, "Bytes that the words take here.")
      .def("words", &TextCounter::words,
           "(offsets int64, bytes uint8, counts int64) of the words.");
}

}  // namespace rareword
