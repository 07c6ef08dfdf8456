// Segments lines into piece ids, with a bounded cache of words.

#include <mutex>

#include "arrays.h"
#include "arrow.h"
#include "kernels.h"
#include "merge_table.h"
#include "symbols.h"
#include "tables.h"
#include "text.h"

namespace rareword {
namespace {

// The pieces of the words seen so far. Emptied when it is full: what is frequent is soon back.
struct WordCache {
  StringTable words;
  std::vector<int32_t> pieces;
  std::vector<int64_t> begins{0};

  size_t memory() const { return words.memory() + pieces.size() * 4 + begins.size() * 8; }
  void clear() {
    words.clear();
    pieces.clear();
    begins.assign(1, 0);
  }
};

class Segmenter {
 public:
  // left, right, result: symbol ids of the merges by rank. ids: the piece id of every symbol id
  // (base symbols 0 .. kFirstMerged-1, then merged ones).
  Segmenter(const Array<int32_t>& left, const Array<int32_t>& right, const Array<int32_t>& result,
            const Array<int32_t>& ids, int64_t cache_bytes)
      : merges_(checked(left, right, result, ids), right.data(), result.data(), left.size()),
        ids_(ids.data(), ids.data() + ids.size()),
        cache_bytes_(cache_bytes) {}

  // Rows of piece ids: (ids int32, offsets int64, words of each row int64).
  py::tuple segment(const py::object& lines, int threads) {
    const StringColumn column(lines);
    struct Part {
      std::vector<int32_t> ids;
      std::vector<int64_t> sizes, words;
    };
    std::vector<Part> parts(std::max(threads, 1));
    std::vector<int32_t> all;
    std::vector<int64_t> offsets{0}, words;
    {
      const py::gil_scoped_release release;
      in_parallel(column.rows(), threads, [&](int t, int64_t begin, int64_t end) {
        const auto cache = borrow();
        Part& part = parts[t];
        MergeTable::Scratch scratch;
        std::vector<int32_t> symbols;
        for (int64_t row = begin; row < end; ++row) {
          const size_t before = part.ids.size();
          int64_t count = 0;
          for_each_word(column[row], [&](std::string_view word, size_t first) {
            ++count;
            append(word, row, first, *cache, symbols, scratch, part.ids);
          });
          part.sizes.push_back(static_cast<int64_t>(part.ids.size() - before));
          part.words.push_back(count);
        }
        give_back(cache);
      });
      all.swap(parts[0].ids);
      for (size_t t = 0; t < parts.size(); ++t) {
        if (t > 0) all.insert(all.end(), parts[t].ids.begin(), parts[t].ids.end());
        for (const int64_t size : parts[t].sizes) offsets.push_back(offsets.back() + size);
        words.insert(words.end(), parts[t].words.begin(), parts[t].words.end());
      }
    }
    return py::make_tuple(to_numpy(std::move(all)), to_numpy(std::move(offsets)),
                          to_numpy(std::move(words)));
  }

 private:
  static const int32_t* checked(const Array<int32_t>& left, const Array<int32_t>& right,
                                const Array<int32_t>& result, const Array<int32_t>& ids) {
    if (right.size() != left.size() || result.size() != left.size())
      throw py::value_error("left, right and result differ in length");
    if (ids.size() < kFirstMerged) throw py::value_error("ids must cover all base symbols");
    for (int64_t r = 0; r < left.size(); ++r)
      for (const int32_t symbol : {left.data()[r], right.data()[r], result.data()[r]})
        if (symbol < 0 || symbol >= ids.size())
          throw py::value_error("merge " + std::to_string(r) + " names a symbol without an id");
    return left.data();
  }

  void append(std::string_view word, int64_t row, size_t first, WordCache& cache,
              std::vector<int32_t>& symbols, MergeTable::Scratch& scratch,
              std::vector<int32_t>& out) const {
    if (cache.memory() > static_cast<size_t>(cache_bytes_)) cache.clear();
    bool is_new = false;
    const int64_t id = cache.words.add(word, hash_bytes(word), is_new);
    if (is_new) {
      symbols.clear();
      try {
        for (size_t at = 0; at < word.size();) {
          const size_t begin = at;
          const int32_t code = next_code_point(word, at);
          if (code < 0) throw_not_utf8(row, first + begin);
          symbols.push_back(2 * code + (at == word.size()));
        }
      } catch (...) {
        cache.clear();  // the word has no pieces and must not be found again
        throw;
      }
      merges_.merge(symbols, scratch);
      for (const int32_t symbol : symbols) cache.pieces.push_back(ids_[symbol]);
      cache.begins.push_back(static_cast<int64_t>(cache.pieces.size()));
    }
    out.insert(out.end(), cache.pieces.begin() + cache.begins[id],
               cache.pieces.begin() + cache.begins[id + 1]);
  }

  // Each running thread has a cache of its own; they outlive the call.
  std::shared_ptr<WordCache> borrow() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return std::make_shared<WordCache>();
    auto cache = idle_.back();
    idle_.pop_back();
    return cache;
  }
  void give_back(const std::shared_ptr<WordCache>& cache) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(cache);
  }

  MergeTable merges_;
  std::vector<int32_t> ids_;
  int64_t cache_bytes_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<WordCache>> idle_;
};

}  // namespace

void bind_segment(py::module_& module) {
  py::class_<Segmenter>(module, "Segmenter",
                        "Merges by rank and the piece id of every symbol; segments lines.")
      .def(py::init<const Array<int32_t>&, const Array<int32_t>&, const Array<int32_t>&,
                    const Array<int32_t>&, int64_t>(),
           py::arg("left"), py::arg("right"), py::arg("result"), py::arg("ids"),
           py::arg("cache_bytes") = int64_t{256} << 20)
      .def("segment", &Segmenter::segment, py::arg("lines"), py::arg("threads") = 1,
           "Piece ids of each line of an Arrow string array (words split at U+0020).\n\n"
           "Returns (ids int32, offsets int64, words of each line int64). Raises ValueError "
           "naming row and byte for text that is not UTF-8.");
}

}  // namespace rareword
