// Symbol ids, without any alphabet: a base symbol is 2 * code point + (1 if it ends the word), and
// the merge of rank r makes symbol kFirstMerged + r.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text.h"

namespace rareword {

constexpr int32_t kFirstMerged = 2 * 0x110000;

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
