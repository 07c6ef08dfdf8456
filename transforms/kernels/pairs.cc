// Weighted counts of adjacent symbol pairs.

#include "arrays.h"
#include "kernels.h"
#include "tables.h"

namespace rareword {
namespace {

struct PairCounts {
  PairTable index;
  std::vector<int32_t> left, right;
  std::vector<int64_t> counts;

  void add(int32_t a, int32_t b, int64_t count) {
    const auto next = static_cast<int64_t>(counts.size());
    const int64_t at = index.add(pair_key(a, b), next);
    if (at == next) {
      left.push_back(a);
      right.push_back(b);
      counts.push_back(0);
    }
    counts[at] += count;
  }
};

py::tuple to_python(PairCounts&& pairs) {
  std::vector<uint64_t> hashes(pairs.counts.size());
  for (size_t k = 0; k < hashes.size(); ++k)
    hashes[k] = hash_pair(pair_key(pairs.left[k], pairs.right[k])) >> 16;
  return py::make_tuple(to_numpy(std::move(pairs.left)), to_numpy(std::move(pairs.right)),
                        to_numpy(std::move(pairs.counts)), to_numpy(std::move(hashes)));
}

py::tuple count_pairs(const Array<int32_t>& symbols, const Array<int64_t>& offsets,
                      const Array<int64_t>& counts, int threads) {
  const SequencesView view(symbols, offsets, counts);
  std::vector<PairCounts> parts(std::max(threads, 1));
  {
    const py::gil_scoped_release release;
    in_parallel(view.words, threads, [&](int t, int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w)
        for (int64_t i = view.offsets[w]; i + 1 < view.offsets[w + 1]; ++i)
          parts[t].add(view.symbols[i], view.symbols[i + 1], view.counts[w]);
    });
    for (size_t t = 1; t < parts.size(); ++t)
      for (size_t k = 0; k < parts[t].counts.size(); ++k)
        parts[0].add(parts[t].left[k], parts[t].right[k], parts[t].counts[k]);
  }
  return to_python(std::move(parts[0]));
}

py::tuple sum_pairs(const Array<int32_t>& left, const Array<int32_t>& right,
                    const Array<int64_t>& counts) {
  const int64_t n = counts.size();
  if (left.size() != n || right.size() != n) throw py::value_error("columns differ in length");
  PairCounts sums;
  {
    const py::gil_scoped_release release;
    for (int64_t k = 0; k < n; ++k) sums.add(left.data()[k], right.data()[k], counts.data()[k]);
  }
  return to_python(std::move(sums));
}

}  // namespace

void bind_pairs(py::module_& module) {
  module.def("count_pairs", &count_pairs, py::arg("symbols"), py::arg("offsets"),
             py::arg("counts"), py::arg("threads") = 1,
             "Adds, over all sequences, count times the adjacent positions of each pair "
             "(overlapping ones too: a a a holds (a, a) twice).\n\nReturns (left int32, right "
             "int32, counts int64, hashes uint64).");
  module.def("sum_pairs", &sum_pairs, py::arg("left"), py::arg("right"), py::arg("counts"),
             "Adds the counts of equal pairs; returns as count_pairs.");
}

}  // namespace rareword
