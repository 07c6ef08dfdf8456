// BPE-dropout (Provilkov et al., 2020): merges of one word of which some are left out at random.
//
// In every round each place where a merge could be made is dropped with probability p, one
// independently of another. Of what is left the pair of lowest rank is merged in all its places;
// a round in which everything is dropped is the last, as in subword-nmt.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "merge_table.h"

namespace rareword {

// Random numbers that are a function of (seed, line, number of draws so far in the line), so that
// threads and blocks do not matter: SplitMix64.
class Draws {
 public:
  Draws(uint64_t seed, double probability) : seed_(scramble(seed)), probability_(probability) {}

  bool active() const { return probability_ > 0; }
  void begin_line(int64_t line) { state_ = scramble(seed_ ^ static_cast<uint64_t>(line)); }

  // True with the probability given.
  bool dropped() {
    state_ += kStep;
    return static_cast<double>(scramble(state_) >> 11) * 0x1p-53 < probability_;
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;

  static uint64_t scramble(uint64_t x) {
    x += kStep;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
  }

  uint64_t seed_, state_ = 0;
  double probability_;
};

// All places are drawn anew in every round.
inline void drop_by_scanning(const MergeTable& merges, std::vector<int32_t>& word, Draws& draws,
                             MergeTable::Scratch& scratch) {
  auto& ranks = scratch.ranks;
  while (word.size() > 1) {
    int32_t best = MergeTable::kNone;
    ranks.assign(word.size(), MergeTable::kNone);
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const int32_t rank = merges.rank(word[i], word[i + 1]);
      if (rank == MergeTable::kNone || draws.dropped()) continue;
      ranks[i] = rank;
      best = std::min(best, rank);
    }
    if (best == MergeTable::kNone) return;
    size_t out = 0;
    for (size_t i = 0; i < word.size(); ++out) {
      const bool here = ranks[i] == best;  // never at the last symbol
      word[out] = here ? merges.result(best) : word[i];
      i += here ? 2 : 1;
    }
    word.resize(out);
  }
}

// For long words: a linked list, and the places of each pair. Pairs are visited by rank and only
// those before the one that wins the round are drawn; what the others would have drawn is never
// seen, so the distribution is the same.
inline void drop_by_rank(const MergeTable& merges, std::vector<int32_t>& word, Draws& draws,
                         MergeTable::Scratch& scratch) {
  constexpr int32_t kGone = -1;
  const auto n = static_cast<int64_t>(word.size());
  auto &previous = scratch.previous, &next = scratch.next;
  previous.resize(n);
  next.resize(n);
  std::map<int32_t, std::vector<int64_t>> places;
  std::vector<int64_t> chosen;
  const auto rank_at = [&](int64_t at) {
    return at >= 0 && word[at] != kGone && next[at] < n ? merges.rank(word[at], word[next[at]])
                                                        : MergeTable::kNone;
  };
  const auto enter = [&](int64_t at) {
    if (const int32_t rank = rank_at(at); rank != MergeTable::kNone) places[rank].push_back(at);
  };
  for (int64_t i = 0; i < n; ++i) {
    previous[i] = i - 1;
    next[i] = i + 1;
  }
  for (int64_t i = 0; i < n; ++i) enter(i);
  for (auto found = places.begin(); found != places.end();) {
    const int32_t rank = found->first;
    auto& here = found->second;
    here.erase(std::remove_if(here.begin(), here.end(),
                              [&](int64_t at) { return rank_at(at) != rank; }),
               here.end());
    if (!std::is_sorted(here.begin(), here.end())) std::sort(here.begin(), here.end());
    here.erase(std::unique(here.begin(), here.end()), here.end());
    if (here.empty()) {
      found = places.erase(found);
      continue;
    }
    chosen.clear();
    for (const int64_t at : here)
      if (!draws.dropped()) chosen.push_back(at);
    if (chosen.empty()) {
      ++found;
      continue;
    }
    std::vector<int64_t> merged;
    for (const int64_t at : chosen) {
      if (word[at] == kGone) continue;  // taken by the place before it
      const int64_t right = next[at];
      word[at] = merges.result(rank);
      word[right] = kGone;
      next[at] = next[right];
      if (next[at] < n) previous[next[at]] = at;
      merged.push_back(at);
    }
    for (const int64_t at : merged) {
      enter(previous[at]);
      enter(at);
    }
    found = places.begin();
  }
  word.erase(std::remove(word.begin(), word.end(), kGone), word.end());
}

inline void merge_with_dropout(const MergeTable& merges, std::vector<int32_t>& word, Draws& draws,
                               MergeTable::Scratch& scratch) {
  if (word.size() <= MergeTable::kShortWord)
    drop_by_scanning(merges, word, draws, scratch);
  else
    drop_by_rank(merges, word, draws, scratch);
}

}  // namespace rareword
