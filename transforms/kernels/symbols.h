// Symbol ids, without any alphabet: a base symbol is 2 * code point + (1 if it ends the word), and
// the merge of rank r makes symbol kFirstMerged + r. Where words are cut into bytes, a byte stands
// for the code point of its number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text.h"

namespace rareword {

constexpr int32_t kFirstMerged = 2 * 0x110000;

// Appends the base symbols of a word that begins at byte `first` of a row. bytes: a symbol for each
// byte, else for each code point. Throws, naming row and byte, if characters are asked for and the
// word is not UTF-8.
inline void append_base_symbols(std::string_view word, int64_t row, size_t first, bool bytes,
                                std::vector<int32_t>& symbols) {
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    const int32_t code =
        bytes ? static_cast<uint8_t>(word[at++]) : next_code_point(word, at);
    if (code < 0) throw_not_utf8(row, first + begin);
    symbols.push_back(2 * code + (at == word.size()));
  }
}

// Text and finality of symbols, derived from the merges that made them.
class SymbolTexts {
 public:
  // left, right: the merges so far, by rank. Throws std::invalid_argument for a merge of a symbol
  // that does not exist before it.
  SymbolTexts(const int32_t* left, const int32_t* right, int64_t merges) {
    for (int64_t rank = 0; rank < merges; ++rank) {
      const int32_t limit = kFirstMerged + static_cast<int32_t>(rank);
      if (left[rank] < 0 || left[rank] >= limit || right[rank] < 0 || right[rank] >= limit)
        throw std::invalid_argument("merge " + std::to_string(rank) +
                                    " joins a symbol that is not there yet");
      merged_.push_back(text(left[rank]) + text(right[rank]));
      final_.push_back(is_final(right[rank]));
    }
  }

  std::string text(int32_t symbol) const {
    if (symbol >= kFirstMerged) return merged_[symbol - kFirstMerged];
    std::string out;
    append_utf8(out, symbol >> 1);
    return out;
  }

  bool is_final(int32_t symbol) const {
    return symbol >= kFirstMerged ? final_[symbol - kFirstMerged] : symbol & 1;
  }

 private:
  std::vector<std::string> merged_;
  std::vector<bool> final_;
};

}  // namespace rareword
