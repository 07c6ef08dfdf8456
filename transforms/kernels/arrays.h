// NumPy arrays in and out.
#pragma once

#include <pybind11/numpy.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "threads.h"

namespace rareword {

namespace py = pybind11;

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

// Hands a vector over to NumPy without copying it.
template <class T>
py::array_t<T> to_numpy(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  py::capsule owner(kept, [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(static_cast<py::ssize_t>(kept->size()), kept->data(), owner);
}

// An array of known size that is written once: unlike a vector's, its memory is not cleared first.
template <class T>
struct Buffer {
  explicit Buffer(int64_t size) : data(new T[size]), size(size) {}
  Buffer(std::unique_ptr<T[]> data, int64_t size) : data(std::move(data)), size(size) {}
  T& operator[](int64_t i) { return data[i]; }

  std::unique_ptr<T[]> data;
  int64_t size;
};

template <class T>
py::array_t<T> to_numpy(Buffer<T>&& values) {
  T* const data = values.data.release();
  py::capsule owner(data, [](void* p) { delete[] static_cast<T*>(p); });
  return py::array_t<T>(static_cast<py::ssize_t>(values.size), data, owner);
}

// Words or chunks as flat symbols: word w is symbols[offsets[w] .. offsets[w + 1]), `counts[w]`
// times.
struct Sequences {
  std::vector<int32_t> symbols;
  std::vector<int64_t> offsets{0};
  std::vector<int64_t> counts;

  void end_word(int64_t count) {
    offsets.push_back(static_cast<int64_t>(symbols.size()));
    counts.push_back(count);
  }
};

// The same, borrowed from NumPy and checked.
struct SequencesView {
  const int32_t* symbols;
  const int64_t* offsets;
  const int64_t* counts;
  int64_t words;

  SequencesView(const Array<int32_t>& symbols_, const Array<int64_t>& offsets_,
                const Array<int64_t>& counts_, int threads = 1)
      : symbols(symbols_.data()),
        offsets(offsets_.data()),
        counts(counts_.data()),
        words(counts_.size()) {
    if (offsets_.size() != words + 1)
      throw py::value_error("offsets must have one entry more than counts");
    if (offsets[0] < 0 || offsets[words] > symbols_.size())
      throw py::value_error("offsets reach outside the symbols");
    const py::gil_scoped_release release;
    Blocks(words, threads).run([&](int, int64_t, int64_t begin, int64_t end) {
      check(begin, end, symbols_.size());
    });
  }

 private:
  // First whether all is well, in loops without a way out, which the compiler makes wide.
  void check(int64_t begin, int64_t end, int64_t size) const {
    int64_t backwards = 0;
    for (int64_t w = begin; w < end; ++w) backwards |= offsets[w + 1] - offsets[w];
    for (int64_t w = begin; backwards < 0 && w < end; ++w)
      if (offsets[w + 1] < offsets[w])
        throw std::invalid_argument("word " + std::to_string(w) + ": offsets run backwards");
    if (offsets[begin] < 0 || offsets[end] > size)
      throw std::invalid_argument("offsets reach outside the symbols");
    int32_t sign = 0;
    for (int64_t i = offsets[begin]; i < offsets[end]; ++i) sign |= symbols[i];
    for (int64_t i = offsets[begin]; sign < 0 && i < offsets[end]; ++i)
      if (symbols[i] < 0)
        throw std::invalid_argument("symbol " + std::to_string(i) + " is negative");
  }
};

inline py::tuple to_python(Sequences&& result) {
  return py::make_tuple(to_numpy(std::move(result.symbols)), to_numpy(std::move(result.offsets)),
                        to_numpy(std::move(result.counts)));
}

// Where the rows of each part begin, when rows of several tables are laid out part by part.
class PartLayout {
 public:
  PartLayout(size_t tables, int64_t parts) : next_(tables, std::vector<int64_t>(parts)) {}

  // First each table counts its rows (or bytes) of each part ...
  int64_t& count(size_t table, int64_t part) { return next_[table][part]; }

  // ... then the counts become the places where each table's rows of a part begin. Returns where
  // the parts begin, and the total.
  std::vector<int64_t> settle() {
    const size_t parts = next_.empty() ? 0 : next_[0].size();
    std::vector<int64_t> bounds{0};
    int64_t total = 0;
    for (size_t part = 0; part < parts; ++part) {
      for (auto& table : next_) {
        const int64_t here = table[part];
        table[part] = total;
        total += here;
      }
      bounds.push_back(total);
    }
    return bounds;
  }

  // The next place of a table's row of a part; `step` is the row's size.
  int64_t take(size_t table, int64_t part, int64_t step = 1) {
    const int64_t place = next_[table][part];
    next_[table][part] += step;
    return place;
  }

 private:
  std::vector<std::vector<int64_t>> next_;
};

}  // namespace rareword
