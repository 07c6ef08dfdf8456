// Weighted counts of adjacent symbol pairs.

#include "arrays.h"
#include "kernels.h"
#include "tables.h"
#include "threads.h"

namespace rareword {
namespace {

constexpr int64_t kPositionsPerPair = 50;  // in words of many languages there are 30 to 200

struct CountedPair {
  uint64_t key, hash;
  int64_t count;
};

// What takes pairs into a table.
auto sink(PairTable& table) {
  return lookahead<CountedPair>(
      [&table](const CountedPair& pair) { table.fetch_slot(pair.hash); }, [](const CountedPair&) {},
      [&table](const CountedPair& pair) { table.add(pair.key, pair.hash, 0) += pair.count; });
}

CountedPair counted(int32_t left, int32_t right, int64_t count) {
  const uint64_t key = pair_key(left, right);
  return {key, hash_pair(key), count};
}

// The pairs of all tables, each once, part by part: (left, right, counts, bounds).
py::tuple to_python(std::vector<PairTable>&& tables, int64_t parts) {
  struct Columns {
    Buffer<int32_t> left, right;
    Buffer<int64_t> counts;
    explicit Columns(int64_t rows) : left(rows), right(rows), counts(rows) {}
  };
  std::unique_ptr<Columns> columns;
  std::vector<int64_t> bounds;
  {
    const py::gil_scoped_release release;
    const auto n = static_cast<int>(tables.size());
    fold(tables, add_atomically);
    // Each thread takes a share of every table: after folding the first has most of the pairs.
    const auto for_share = [&](int t, auto use) {
      for (const PairTable& table : tables) table.for_each(t, n, use);
    };
    PartLayout rows(n, parts);
    in_threads(n, [&](int t) {
      for_share(t, [&](uint64_t key, int64_t) { ++rows.count(t, part_of(hash_pair(key), parts)); });
    });
    bounds = rows.settle();
    columns = std::make_unique<Columns>(bounds.back());
    in_threads(n, [&](int t) {
      for_share(t, [&](uint64_t key, int64_t count) {
        const int64_t row = rows.take(t, part_of(hash_pair(key), parts));
        columns->left[row] = static_cast<int32_t>(key >> 32);
        columns->right[row] = static_cast<int32_t>(key);
        columns->counts[row] = count;
      });
    });
  }
  return py::make_tuple(to_numpy(std::move(columns->left)), to_numpy(std::move(columns->right)),
                        to_numpy(std::move(columns->counts)), to_numpy(std::move(bounds)));
}

void check_parts(int64_t parts) {
  if (parts < 1) throw py::value_error("parts must be 1 or more");
}

py::tuple count_pairs(const Array<int32_t>& symbols, const Array<int64_t>& offsets,
                      const Array<int64_t>& counts, int threads, int64_t parts) {
  check_parts(parts);
  const SequencesView view(symbols, offsets, counts, threads);
  std::vector<PairTable> tables(std::max(threads, 1));
  {
    const py::gil_scoped_release release;
    const Blocks blocks(view.words, threads);
    const int64_t positions = view.offsets[view.words] - view.offsets[0];
    in_threads(blocks.threads(), [&](int t) { tables[t] = PairTable(positions / kPositionsPerPair); });
    blocks.run([&](int t, int64_t, int64_t begin, int64_t end) {
      auto pairs = sink(tables[t]);
      for (int64_t w = begin; w < end; ++w)
        for (int64_t i = view.offsets[w]; i + 1 < view.offsets[w + 1]; ++i)
          pairs.push(counted(view.symbols[i], view.symbols[i + 1], view.counts[w]));
      pairs.finish();
    });
  }
  return to_python(std::move(tables), parts);
}

py::tuple sum_pairs(const Array<int32_t>& left, const Array<int32_t>& right,
                    const Array<int64_t>& counts) {
  const int64_t n = counts.size();
  if (left.size() != n || right.size() != n) throw py::value_error("columns differ in length");
  const int32_t *l = left.data(), *r = right.data();
  const int64_t* c = counts.data();
  for (int64_t k = 0; k < n; ++k)
    if (l[k] < 0 || r[k] < 0) throw py::value_error("symbol " + std::to_string(k) + " is negative");
  std::vector<PairTable> tables(1);
  {
    const py::gil_scoped_release release;
    auto pairs = sink(tables[0]);
    for (int64_t k = 0; k < n; ++k) pairs.push(counted(l[k], r[k], c[k]));
    pairs.finish();
  }
  return to_python(std::move(tables), 1);
}

}  // namespace

void bind_pairs(py::module_& module) {
  module.def("count_pairs", &count_pairs, py::arg("symbols"), py::arg("offsets"),
             py::arg("counts"), py::arg("threads") = 1, py::arg("parts") = 1,
             "Adds, over all sequences, count times the adjacent positions of each pair "
             "(overlapping ones too: a a a holds (a, a) twice).\n\nReturns (left int32, right "
             "int32, counts int64, bounds int64): each pair once; those of part p, which a hash of "
             "the pair decides, are rows bounds[p] .. bounds[p + 1].");
  module.def("sum_pairs", &sum_pairs, py::arg("left"), py::arg("right"), py::arg("counts"),
             "Adds the counts of equal pairs; returns as count_pairs, in one part.");
}

}  // namespace rareword
