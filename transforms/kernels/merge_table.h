// Applying merges to one word: all occurrences of the pair of lowest rank, left to right, again and
// again, as subword-nmt does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <tuple>
#include <vector>

#include "tables.h"

namespace rareword {

class MergeTable {
 public:
  // Merge r turns the pair (left[r], right[r]) into result[r]. A pair that comes twice keeps its
  // lowest rank.
  MergeTable(const int32_t* left, const int32_t* right, const int32_t* result, int64_t merges)
      : results_(result, result + merges) {
    for (int64_t rank = 0; rank < merges; ++rank)
      ranks_.add(pair_key(left[rank], right[rank]), rank);
  }

  // Buffers that one thread uses again for each word.
  struct Scratch {
    std::vector<int32_t> ranks;
    std::vector<int64_t> previous, next;
  };

  void merge(std::vector<int32_t>& word, Scratch& scratch) const {
    if (word.size() < 2) return;
    if (word.size() <= kShortWord)
      merge_by_scanning(word, scratch);
    else
      merge_by_heap(word, scratch);
  }

  static constexpr size_t kShortWord = 64;  // symbols up to which scanning beats a heap
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

  // The rank of a pair, kNone if it is no merge.
  int32_t rank(int32_t left, int32_t right) const {
    const int64_t* found = ranks_.find(pair_key(left, right));
    return found ? static_cast<int32_t>(*found) : kNone;
  }
  int32_t result(int32_t rank) const { return results_[rank]; }

 private:
  // Quadratic in the word's length, but with the smallest constant.
  void merge_by_scanning(std::vector<int32_t>& word, Scratch& scratch) const {
    size_t n = word.size();
    scratch.ranks.resize(n);
    int32_t *const symbols = word.data(), *const ranks = scratch.ranks.data();
    for (size_t i = 0; i + 1 < n; ++i) ranks[i] = rank(symbols[i], symbols[i + 1]);
    while (n > 1) {
      const int32_t best = *std::min_element(ranks, ranks + n - 1);
      if (best == kNone) break;
      const int32_t merged = results_[best];
      size_t i = std::find(ranks, ranks + n - 1, best) - ranks, out = i;
      // Symbols move left over those that went; `fresh` tells that the one before is new.
      bool fresh = false;
      for (; i < n; ++out) {
        const bool joins = i + 1 < n && ranks[i] == best;
        const bool stale = fresh || joins;
        symbols[out] = joins ? merged : symbols[i];
        const int32_t following = joins ? 0 : ranks[i];
        i += joins ? 2 : 1;
        if (stale && out > 0) ranks[out - 1] = rank(symbols[out - 1], symbols[out]);
        ranks[out] = following;
        fresh = joins;
      }
      n = out;
    }
    word.resize(n);
  }

  // O(n log n): a heap of (rank, position) over a linked list. One round takes every entry of the
  // lowest rank before it looks at pairs that the round itself made.
  void merge_by_heap(std::vector<int32_t>& word, Scratch& scratch) const {
    constexpr int32_t kGone = -1;
    const auto n = static_cast<int64_t>(word.size());
    auto &previous = scratch.previous, &next = scratch.next;
    previous.resize(n);
    next.resize(n);
    using Entry = std::pair<int32_t, int64_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
    std::vector<Entry> made;
    const auto pair_rank = [&](int64_t at) {
      return at >= 0 && next[at] < n ? rank(word[at], word[next[at]]) : kNone;
    };
    for (int64_t i = 0; i < n; ++i) {
      previous[i] = i - 1;
      next[i] = i + 1;
    }
    for (int64_t i = 0; i + 1 < n; ++i)
      if (const int32_t r = pair_rank(i); r != kNone) heap.emplace(r, i);
    while (!heap.empty()) {
      const int32_t best = heap.top().first;
      made.clear();
      while (!heap.empty() && heap.top().first == best) {
        const int64_t at = heap.top().second;
        heap.pop();
        if (word[at] == kGone || pair_rank(at) != best) continue;  // changed since it was pushed
        const int64_t right = next[at];
        word[at] = results_[best];
        word[right] = kGone;
        next[at] = next[right];
        if (next[at] < n) previous[next[at]] = at;
        for (const int64_t changed : {previous[at], at})
          if (const int32_t r = pair_rank(changed); r != kNone) made.emplace_back(r, changed);
      }
      for (const Entry& entry : made) heap.push(entry);
    }
    word.erase(std::remove(word.begin(), word.end(), kGone), word.end());
  }

  PairTable ranks_;
  std::vector<int32_t> results_;
};

}  // namespace rareword
