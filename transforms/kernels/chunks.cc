// Chunks: what is left of the words when every junction whose pair cannot win is cut.

#include "arrays.h"
#include "kernels.h"
#include "tables.h"

namespace rareword {
namespace {

// Distinct symbol sequences with their weights.
struct ChunkTable {
  StringTable chunks;  // symbols as bytes
  std::vector<int64_t> counts;

  void add(std::string_view bytes, uint64_t hash, int64_t count) {
    bool is_new = false;
    const int64_t id = chunks.add(bytes, hash, is_new);
    if (is_new) counts.push_back(0);
    counts[id] += count;
  }

  void add(const int32_t* begin, const int32_t* end, int64_t count) {
    const std::string_view bytes(reinterpret_cast<const char*>(begin), (end - begin) * 4);
    add(bytes, hash_bytes(bytes), count);
  }

  void add_all(const ChunkTable& other) {
    for (int64_t k = 0; k < other.chunks.size(); ++k)
      add(other.chunks[k], other.chunks.hash(k), other.counts[k]);
  }
};

py::tuple to_python(ChunkTable&& table) {
  const int64_t n = table.chunks.size();
  std::vector<int32_t> symbols(table.chunks.bytes().size() / 4);
  memcpy(symbols.data(), table.chunks.bytes().data(), symbols.size() * 4);
  std::vector<int64_t> offsets(n + 1);
  for (int64_t k = 0; k <= n; ++k) offsets[k] = static_cast<int64_t>(table.chunks.begins()[k] / 4);
  std::vector<uint64_t> hashes(n);
  for (int64_t k = 0; k < n; ++k) hashes[k] = table.chunks.hash(k) >> 16;
  return py::make_tuple(to_numpy(std::move(symbols)), to_numpy(std::move(offsets)),
                        to_numpy(std::move(table.counts)), to_numpy(std::move(hashes)));
}

py::tuple cut_chunks(const Array<int32_t>& symbols, const Array<int64_t>& offsets,
                     const Array<int64_t>& counts, const Array<int32_t>& active_left,
                     const Array<int32_t>& active_right, int threads) {
  const SequencesView view(symbols, offsets, counts);
  if (active_left.size() != active_right.size())
    throw py::value_error("active pairs differ in length");
  std::vector<ChunkTable> parts(std::max(threads, 1));
  {
    const py::gil_scoped_release release;
    PairTable active;
    for (int64_t k = 0; k < active_left.size(); ++k)
      active.add(pair_key(active_left.data()[k], active_right.data()[k]), 1);
    in_parallel(view.words, threads, [&](int t, int64_t first, int64_t last) {
      for (int64_t w = first; w < last; ++w) {
        int64_t begin = view.offsets[w];
        const int64_t end = view.offsets[w + 1];
        for (int64_t i = begin; i < end; ++i) {
          const bool cut = i + 1 == end ||
                           !active.find(pair_key(view.symbols[i], view.symbols[i + 1]));
          if (!cut) continue;
          if (i > begin) parts[t].add(view.symbols + begin, view.symbols + i + 1, view.counts[w]);
          begin = i + 1;
        }
      }
    });
    for (size_t t = 1; t < parts.size(); ++t) parts[0].add_all(parts[t]);
  }
  return to_python(std::move(parts[0]));
}

py::tuple sum_chunks(const Array<int32_t>& symbols, const Array<int64_t>& offsets,
                     const Array<int64_t>& counts) {
  const SequencesView view(symbols, offsets, counts);
  ChunkTable sums;
  {
    const py::gil_scoped_release release;
    for (int64_t w = 0; w < view.words; ++w)
      sums.add(view.symbols + view.offsets[w], view.symbols + view.offsets[w + 1], view.counts[w]);
  }
  return to_python(std::move(sums));
}

}  // namespace

void bind_chunks(py::module_& module) {
  module.def("cut_chunks", &cut_chunks, py::arg("symbols"), py::arg("offsets"), py::arg("counts"),
             py::arg("active_left"), py::arg("active_right"), py::arg("threads") = 1,
             "Cuts every sequence at each junction whose pair is not active, drops single symbols "
             "and adds the counts of equal chunks.\n\nReturns (symbols int32, offsets int64, "
             "counts int64, hashes uint64).");
  module.def("sum_chunks", &sum_chunks, py::arg("symbols"), py::arg("offsets"), py::arg("counts"),
             "Adds the counts of equal chunks; returns as cut_chunks.");
}

}  // namespace rareword
