// Incremental byte-pair encoding on a weighted table of sequences.
//
// All sequences lie in one array of cells, separated by kGap:
//
//     gap l o w gap l o w e r gap
//
// Beside the symbol a cell holds its word's number, so that an occurrence costs one line of memory,
// and one for the word's count; both are fetched ahead.
//
// A merged symbol covers the cells of its parts; its id stands in its first and its last cell, so
// the symbol left of a junction is read from the cell before it and the one right of it from the
// cell after. A cell where a right part began is marked kInside (or holds the merged id, if the
// part had one cell). So an occurrence (the cell where a pair once began) is still alive exactly
// if the two symbols are found where they would have to begin.
//
// Counts of existing pairs never rise, so pairs below the threshold are forgotten at once and a
// heap with lazy updates suffices: an entry whose count is out of date is pushed back with its
// present count. The work of a merge is proportional to the occurrences it touches.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "arrays.h"
#include "kernels.h"
#include "symbols.h"
#include "tables.h"
#include "text.h"

namespace rareword {
namespace {

constexpr int32_t kGap = 0;      // local symbol ids begin at 1
constexpr int32_t kInside = -1;
constexpr int64_t kAhead = 8;    // occurrences

// `Cell` is a cell's index: 32 bits while they suffice, for memory; 64 beyond.
template <class Cell>
class Learner {
 public:
  struct Merge {
    int32_t left, right;
    int64_t count;
  };

  // keys: the local symbols as subword-nmt prints them, `</w>` after a final one (entry 0 unused).
  Learner(const LargeVector<int32_t>& symbols, const SequencesView& view,
          std::vector<std::string> keys, std::vector<bool> final, int64_t threshold)
      : counts_(view.counts), keys_(std::move(keys)), final_(std::move(final)),
        lengths_(keys_.size(), 1), threshold_(threshold) {
    lay_out(symbols, view);
    index_pairs();
  }

  // Learns up to `limit` merges while the best count reaches the threshold.
  std::vector<Merge> learn(int64_t limit) {
    std::vector<Merge> merges;
    while (static_cast<int64_t>(merges.size()) < limit && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), order());
      const Candidate candidate = heap_.back();
      heap_.pop_back();
      const int64_t now = pairs_[candidate.pair].count;
      if (now != candidate.count) {
        if (now >= threshold_) push({now, candidate.left_head, candidate.pair});
        continue;
      }
      if (now < threshold_) break;
      merges.push_back({pairs_[candidate.pair].left, pairs_[candidate.pair].right, now});
      merge(candidate.pair);
    }
    return merges;
  }

 private:
  struct Pair {
    int32_t left, right;
    int64_t count;
    int64_t begin, size;  // its occurrences
  };
  // An entry of the heap. `left_head` is the first 8 bytes of the left symbol's key as a number
  // that sorts as they do: it settles most ties without a look at the keys.
  struct Candidate {
    int64_t count;
    uint64_t left_head;
    int32_t pair;
  };
  struct Place {
    int32_t symbol;
    Cell word;
  };
  struct Neighbour {
    int32_t symbol;
    Cell at;  // where the pair with the new symbol begins
  };

  // What a merge changes for one neighbouring symbol. `seen`: occurrences of the new pair, then
  // where its next one goes.
  struct Delta {
    int64_t lost = 0, gained = 0, seen = 0;
    bool touched = false;
  };

  // Changes of one side's neighbours during a merge.
  struct Deltas {
    std::vector<Delta> of;  // by symbol
    std::vector<int32_t> touched;
    std::vector<Neighbour> occurrences;

    void reserve(size_t symbols) {
      if (of.size() < symbols) of.resize(symbols * 2);
    }
    Delta& touch(int32_t symbol) {
      Delta& delta = of[symbol];
      if (!delta.touched) {
        delta.touched = true;
        touched.push_back(symbol);
      }
      return delta;
    }
    void clear() {
      for (const int32_t symbol : touched) of[symbol] = Delta();
      touched.clear();
      occurrences.clear();
    }
  };

  auto order() const {
    return [this](const Candidate& a, const Candidate& b) { return loses(a, b); };
  }

  // The selection rule: highest count, then the greatest (left, right) by code point.
  bool loses(const Candidate& a, const Candidate& b) const {
    if (a.count != b.count) return a.count < b.count;
    if (a.left_head != b.left_head) return a.left_head < b.left_head;
    const Pair &p = pairs_[a.pair], &q = pairs_[b.pair];
    if (p.left != q.left) return keys_[p.left] < keys_[q.left];  // neither is final
    const int compared = keys_[p.right].compare(keys_[q.right]);
    if (compared != 0) return compared < 0;
    return !final_[p.right] && final_[q.right];  // the text `a</w>` before a final `a`
  }

  Candidate candidate(int32_t pair) const {
    return {pairs_[pair].count, sort_head(keys_[pairs_[pair].left]), pair};
  }

  void push(Candidate candidate) {
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end(), order());
  }

  void lay_out(const LargeVector<int32_t>& symbols, const SequencesView& view) {
    const int64_t first = view.offsets[0];
    cells_.reserve(symbols.size() + view.words + 1);
    const auto put = [&](int32_t symbol, int64_t word) {
      cells_.push_back({symbol, static_cast<Cell>(word)});
    };
    put(kGap, 0);
    for (int64_t w = 0; w < view.words; ++w) {
      for (int64_t i = view.offsets[w]; i < view.offsets[w + 1]; ++i) put(symbols[i - first], w);
      put(kGap, w);
    }
  }

  void index_pairs() {
    LargeVector<int32_t> pair_at(cells_.size(), -1);
    PairTable all;
    for (size_t i = 1; i + 1 < cells_.size(); ++i) {
      const int32_t left = cells_[i].symbol, right = cells_[i + 1].symbol;
      if (left == kGap || right == kGap) continue;
      const auto next = static_cast<int64_t>(pairs_.size());
      const int64_t id = all.add(pair_key(left, right), next);
      if (id == next) pairs_.push_back({left, right, 0, 0, 0});
      pairs_[id].count += counts_[cells_[i].word];
      ++pairs_[id].size;
      pair_at[i] = static_cast<int32_t>(id);
    }
    int64_t total = 0;
    for (size_t id = 0; id < pairs_.size(); ++id) {
      Pair& pair = pairs_[id];
      if (pair.count < threshold_) continue;
      pair.begin = total;
      total += pair.size;
      pair.size = 0;
      index_.add(pair_key(pair.left, pair.right), static_cast<int64_t>(id));
      heap_.push_back(candidate(static_cast<int32_t>(id)));
    }
    occurrences_.resize(total);
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (pair_at[i] < 0) continue;
      Pair& pair = pairs_[pair_at[i]];
      if (pair.count >= threshold_) occurrences_[pair.begin + pair.size++] = static_cast<Cell>(i);
    }
    std::make_heap(heap_.begin(), heap_.end(), order());
  }

  int32_t add_symbol(int32_t left, int32_t right) {
    const std::string& prefix = keys_[left];  // not final: something follows it
    keys_.push_back(prefix + keys_[right]);
    final_.push_back(final_[right]);
    lengths_.push_back(lengths_[left] + lengths_[right]);
    return static_cast<int32_t>(keys_.size()) - 1;
  }

  // Replaces every living occurrence of the pair by a new symbol and updates the pairs around.
  void merge(int32_t id) {
    const Pair pair = pairs_[id];
    const int32_t x = pair.left, y = pair.right, z = add_symbol(x, y);
    left_.reserve(keys_.size());
    right_.reserve(keys_.size());
    // In ascending order, here and for every pair that follows; of overlapping ones the left wins.
    const Cell* const begin = occurrences_.data() + pair.begin;
    const Cell x_cells = lengths_[x], y_cells = lengths_[y];
    for (int64_t k = 0; k < pair.size; ++k) {
      if (k + 2 * kAhead < pair.size) __builtin_prefetch(&cells_[begin[k + 2 * kAhead]]);
      if (k + kAhead < pair.size) __builtin_prefetch(&counts_[cells_[begin[k + kAhead]].word]);
      const Cell at = begin[k], middle = at + x_cells, end = middle + y_cells;
      if (cells_[at].symbol != x || cells_[middle].symbol != y) continue;
      const int64_t count = counts_[cells_[at].word];
      const int32_t before = cells_[at - 1].symbol, after = cells_[end].symbol;
      if (y_cells > 1) cells_[middle].symbol = kInside;
      cells_[at].symbol = cells_[end - 1].symbol = z;
      if (before != kGap) join_left(before, at, count, x, z);
      if (after != kGap) join_right(after, at, count);
    }
    forget(left_, [&](int32_t symbol) { return pair_key(symbol, x); });
    forget(right_, [&](int32_t symbol) { return pair_key(y, symbol); });
    pairs_[id].count = 0;
    enter(left_, [&](int32_t symbol) { return std::pair(symbol, z); });
    enter(right_, [&](int32_t symbol) { return std::pair(z, symbol); });
    left_.clear();
    right_.clear();
  }

  // `before x y` became `before z`.
  void join_left(int32_t before, Cell at, int64_t count, int32_t x, int32_t z) {
    Delta& delta = left_.touch(before);
    if (before == z) {
      // x y x y: the first occurrence took (y, x) away and entered (z, x), which is gone now.
      right_.of[x].gained -= count;
    } else {
      delta.lost += count;
    }
    delta.gained += count;
    left_.occurrences.push_back({before, static_cast<Cell>(at - lengths_[before])});
  }

  // `x y after` became `z after`.
  void join_right(int32_t after, Cell at, int64_t count) {
    Delta& delta = right_.touch(after);
    delta.lost += count;
    delta.gained += count;
    right_.occurrences.push_back({after, at});
  }

  template <class Key>
  void forget(const Deltas& side, Key key) {
    for (const int32_t symbol : side.touched)
      if (const int64_t lost = side.of[symbol].lost; lost != 0)
        if (const int64_t* id = index_.find(key(symbol))) pairs_[*id].count -= lost;
  }

  // Enters the new pairs that reach the threshold, with their occurrences.
  template <class MakePair>
  void enter(Deltas& side, MakePair make_pair) {
    constexpr int64_t kSkip = -1;
    for (const int32_t symbol : side.touched)
      side.of[symbol].seen = side.of[symbol].gained >= threshold_ ? 0 : kSkip;
    for (const Neighbour& neighbour : side.occurrences)
      if (int64_t& seen = side.of[neighbour.symbol].seen; seen != kSkip) ++seen;
    auto total = static_cast<int64_t>(occurrences_.size());
    for (const int32_t symbol : side.touched) {
      Delta& delta = side.of[symbol];
      if (delta.seen == kSkip) continue;
      const auto [left, right] = make_pair(symbol);
      const auto id = static_cast<int32_t>(pairs_.size());
      pairs_.push_back({left, right, delta.gained, total, delta.seen});
      index_.add(pair_key(left, right), id);
      total += delta.seen;
      delta.seen = pairs_.back().begin;
      push(candidate(id));
    }
    occurrences_.resize(total);
    for (const Neighbour& neighbour : side.occurrences)
      if (int64_t& next = side.of[neighbour.symbol].seen; next != kSkip)
        occurrences_[next++] = neighbour.at;
  }

  const int64_t* counts_;
  std::vector<std::string> keys_;
  std::vector<bool> final_;
  std::vector<Cell> lengths_;  // in cells
  int64_t threshold_;
  LargeVector<Place> cells_;
  std::vector<Pair> pairs_;
  PairTable index_;  // pairs at or above the threshold
  LargeVector<Cell> occurrences_;
  std::vector<Candidate> heap_;
  Deltas left_, right_;
};

// Global symbol ids to small local ones and back.
struct LocalSymbols {
  std::vector<int32_t> global{-1};
  LargeVector<int32_t> cells;

  // symbols: how many ids there are. Throws for a symbol that no merge has made.
  LocalSymbols(const SequencesView& view, int64_t symbols) {
    std::vector<int32_t> local(symbols);
    for (int64_t i = view.offsets[0]; i < view.offsets[view.words]; ++i) {
      const int32_t symbol = view.symbols[i];
      if (symbol >= symbols)
        throw std::invalid_argument("symbol " + std::to_string(i) + " is of no merge so far");
      if (local[symbol] == 0) {
        local[symbol] = static_cast<int32_t>(global.size());
        global.push_back(symbol);
      }
      cells.push_back(local[symbol]);
    }
  }
};

template <class Cell>
void learn_with(const SequencesView& view, const SymbolTexts& known, int64_t merged, int64_t limit,
                int64_t threshold, std::vector<int32_t>& left, std::vector<int32_t>& right,
                std::vector<int64_t>& counts) {
  const LocalSymbols local(view, kFirstMerged + merged);
  std::vector<std::string> keys{""};
  std::vector<bool> final{false};
  for (size_t k = 1; k < local.global.size(); ++k) {
    const int32_t symbol = local.global[k];
    keys.push_back(known.text(symbol) + (known.is_final(symbol) ? "</w>" : ""));
    final.push_back(known.is_final(symbol));
  }
  const auto old = static_cast<int32_t>(local.global.size());
  const auto global = [&](int32_t symbol) {
    return symbol < old ? local.global[symbol]
                        : kFirstMerged + static_cast<int32_t>(merged) + (symbol - old);
  };
  Learner<Cell> learner(local.cells, view, std::move(keys), std::move(final), threshold);
  for (const auto& merge : learner.learn(limit)) {
    left.push_back(global(merge.left));
    right.push_back(global(merge.right));
    counts.push_back(merge.count);
  }
}

py::tuple learn_merges(const Array<int32_t>& symbols, const Array<int64_t>& offsets,
                       const Array<int64_t>& counts, const Array<int32_t>& left,
                       const Array<int32_t>& right, int64_t limit, int64_t threshold) {
  const SequencesView view(symbols, offsets, counts);
  if (left.size() != right.size()) throw py::value_error("left and right differ in length");
  if (threshold < 1) throw py::value_error("the threshold must be 1 or more");
  std::vector<int32_t> new_left, new_right;
  std::vector<int64_t> new_counts;
  {
    const py::gil_scoped_release release;
    const int64_t merged = left.size();
    const SymbolTexts known(left.data(), right.data(), merged);
    const int64_t cells = view.offsets[view.words] - view.offsets[0] + view.words + 1;
    if (cells < INT32_MAX)
      learn_with<int32_t>(view, known, merged, limit, threshold, new_left, new_right, new_counts);
    else
      learn_with<int64_t>(view, known, merged, limit, threshold, new_left, new_right, new_counts);
  }
  return py::make_tuple(to_numpy(std::move(new_left)), to_numpy(std::move(new_right)),
                        to_numpy(std::move(new_counts)));
}

}  // namespace

void bind_learn(py::module_& module) {
  module.def("learn_merges", &learn_merges, py::arg("symbols"), py::arg("offsets"),
             py::arg("counts"), py::arg("left"), py::arg("right"), py::arg("limit"),
             py::arg("threshold"),
             "Byte-pair encoding on weighted sequences, after the merges (left, right) so far.\n\n"
             "Learns up to `limit` further merges while the best count is at least `threshold`. "
             "Ties: the greatest (left, right) by code point, `</w>` after a final symbol. "
             "Returns (left int32, right int32, counts int64) of the new merges.");
}

}  // namespace rareword
