// Segments lines into piece ids.

#include <shared_mutex>

#include "arrays.h"
#include "arrow.h"
#include "kernels.h"
#include "merge_table.h"
#include "symbols.h"
#include "tables.h"
#include "text.h"
#include "threads.h"
#include "word_cache.h"

namespace rareword {
namespace {

class Segmenter {
 public:
  // left, right, result: symbol ids of the merges by rank, all below `symbols`. bytes: words are
  // cut into bytes instead of characters before they are merged.
  Segmenter(const Array<int32_t>& left, const Array<int32_t>& right, const Array<int32_t>& result,
            int64_t symbols, bool bytes, int64_t cache_bytes)
      : merges_(checked(left, right, result, symbols), right.data(), result.data(), left.size()),
        symbols_(symbols),
        bytes_(bytes),
        cache_(cache_bytes) {}

  // Rows of piece ids: (ids int32, offsets int64, words of each row int64). to_ids: the piece id of
  // every symbol; if it is empty, the symbols themselves are returned.
  py::tuple segment(const py::object& lines, const Array<int32_t>& to_ids, int threads) {
    if (to_ids.size() != 0 && to_ids.size() != symbols_)
      throw py::value_error("ids must be none, or one for each of the " +
                            std::to_string(symbols_) + " symbols");
    const StringColumn column(lines);
    const int64_t rows = column.rows();
    const int32_t* const map = to_ids.size() != 0 ? to_ids.data() : nullptr;
    Buffer<int64_t> offsets(rows + 1), words(rows);
    std::unique_ptr<Buffer<int32_t>> ids;
    {
      const py::gil_scoped_release release;
      empty_full_cache();
      const std::shared_lock<std::shared_mutex> using_cache(cache_mutex_);
      const Blocks blocks(rows, threads);
      std::vector<Part> parts(blocks.number());
      std::vector<std::unique_ptr<Worker>> workers(blocks.threads());
      blocks.run([&](int t, int64_t block, int64_t begin, int64_t end) {
        if (!workers[t]) workers[t] = std::make_unique<Worker>(cache_);
        Worker& worker = *workers[t];
        Part& part = parts[block];
        part.begin = begin;
        part.end = end;
        part.size = segment_rows(column, begin, end, worker, &offsets[0], words.data.get());
        if (parts.size() == 1)
          part.ids = std::move(worker.ids);
        else
          part.ids.reset(new int32_t[part.size]);
        const int32_t* const found = parts.size() == 1 ? part.ids.get() : worker.ids.get();
        if (map != nullptr)
          std::transform(found, found + part.size, part.ids.get(),
                         [&](int32_t symbol) { return map[symbol]; });
        else if (parts.size() > 1)
          std::copy_n(found, part.size, part.ids.get());
      });
      offsets[0] = 0;
      ids = joined(parts, offsets, threads);
    }
    return py::make_tuple(to_numpy(std::move(*ids)), to_numpy(std::move(offsets)),
                          to_numpy(std::move(words)));
  }

 private:
  struct Word {
    std::string_view text;
    uint64_t hash;
    int64_t row;
    size_t first;
  };

  // The ids of rows begin .. end; offsets count from this part's start until the parts are joined.
  struct Part {
    int64_t begin = 0, end = 0, size = 0;
    std::unique_ptr<int32_t[]> ids;
  };

  // What one thread uses again for each of its parts.
  struct alignas(kCacheLine) Worker {
    explicit Worker(WordCache<int32_t>& cache) : writer(cache) {}

    WordCache<int32_t>::Writer writer;
    MergeTable::Scratch scratch;
    std::vector<int32_t> symbols;
    std::unique_ptr<int32_t[]> ids;
    int64_t room = 0;
  };

  static const int32_t* checked(const Array<int32_t>& left, const Array<int32_t>& right,
                                const Array<int32_t>& result, int64_t symbols) {
    if (right.size() != left.size() || result.size() != left.size())
      throw py::value_error("left, right and result differ in length");
    if (symbols < kFirstMerged) throw py::value_error("there are more base symbols than that");
    for (int64_t r = 0; r < left.size(); ++r)
      for (const int32_t symbol : {left.data()[r], right.data()[r], result.data()[r]})
        if (symbol < 0 || symbol >= symbols)
          throw py::value_error("merge " + std::to_string(r) + " names a symbol that is not there");
    return left.data();
  }

  // What is frequent is soon back in it.
  void empty_full_cache() {
    if (!cache_.full()) return;
    const std::unique_lock<std::shared_mutex> alone(cache_mutex_);
    if (cache_.full()) cache_.clear();
  }

  // Leaves the symbols in worker.ids; returns how many there are.
  int64_t segment_rows(const StringColumn& column, int64_t begin, int64_t end, Worker& worker,
                       int64_t* offsets, int64_t* words_of) {
    // A piece has a byte or more, so this is room enough; what is not used is never touched.
    const int64_t room = column.bytes(begin, end) + static_cast<int64_t>(kReadable);
    if (room > worker.room) {
      worker.ids.reset(new int32_t[room]);
      worker.room = room;
    }
    int32_t* const ids = worker.ids.get();
    auto& symbols = worker.symbols;
    int64_t size = 0, row = begin;
    const auto end_rows_before = [&](int64_t next) {
      for (; row < next; ++row) offsets[row + 1] = size;
    };
    auto words = lookahead<Word>(
        [&](const Word& word) { cache_.fetch_slot(word.hash); },
        [&](const Word& word) { cache_.fetch_entry(word.hash); },
        [&](const Word& word) {
          end_rows_before(word.row);
          auto pieces = cache_.find(word.text, word.hash);
          if (pieces.values == nullptr) {
            symbols.clear();
            append_base_symbols(word.text, word.row, word.first, bytes_, symbols);
            merges_.merge(symbols, worker.scratch);
            worker.writer.add(word.text, word.hash, symbols.data(), symbols.size());
            memcpy(ids + size, symbols.data(), symbols.size() * sizeof(int32_t));
            size += static_cast<int64_t>(symbols.size());
            return;
          }
          // Most words have few pieces: one copy of fixed size.
          memcpy(ids + size, pieces.values, kReadable * sizeof(int32_t));
          if (pieces.size > kReadable)
            memcpy(ids + size, pieces.values, pieces.size * sizeof(int32_t));
          size += static_cast<int64_t>(pieces.size);
        });
    for (int64_t r = begin; r < end; ++r) {
      int64_t count = 0;
      for_each_word(column[r], [&](std::string_view text, size_t first) {
        ++count;
        words.push({text, hash_bytes(text), r, first});
      });
      words_of[r] = count;
    }
    words.finish();
    end_rows_before(end);
    return size;
  }

  static std::unique_ptr<Buffer<int32_t>> joined(std::vector<Part>& parts, Buffer<int64_t>& offsets,
                                                 int threads) {
    if (parts.size() == 1)
      return std::make_unique<Buffer<int32_t>>(std::move(parts[0].ids), parts[0].size);
    std::vector<int64_t> bases{0};
    for (const Part& part : parts) bases.push_back(bases.back() + part.size);
    auto all = std::make_unique<Buffer<int32_t>>(bases.back());
    Blocks(static_cast<int64_t>(parts.size()), threads)
        .run([&](int, int64_t, int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            Part& part = parts[k];
            std::copy_n(part.ids.get(), part.size, all->data.get() + bases[k]);
            part.ids.reset();
            for (int64_t row = part.begin; row < part.end; ++row) offsets[row + 1] += bases[k];
          }
        });
    return all;
  }

  static constexpr size_t kReadable = WordCache<int32_t>::kReadable;

  MergeTable merges_;
  int64_t symbols_;
  bool bytes_;
  WordCache<int32_t> cache_;
  std::shared_mutex cache_mutex_;
};

}  // namespace

void bind_segment(py::module_& module) {
  py::class_<Segmenter>(module, "Segmenter", "Cuts lines into pieces, by merges in their order.")
      .def(py::init<const Array<int32_t>&, const Array<int32_t>&, const Array<int32_t>&, int64_t,
                    bool, int64_t>(),
           py::arg("left"), py::arg("right"), py::arg("result"), py::arg("symbols"),
           py::arg("bytes") = false, py::arg("cache_bytes") = int64_t{256} << 20,
           "left, right, result: symbol ids of the merges by rank, below `symbols`. bytes: words "
           "are cut into bytes, not characters, before they are merged.")
      .def("segment", &Segmenter::segment, py::arg("lines"), py::arg("ids"),
           py::arg("threads") = 1,
           "The pieces of each line of an Arrow string array (words split at U+0020).\n\n"
           "ids: the piece id of each symbol, or empty: symbols are returned. Returns (ids int32, "
           "offsets int64, words of each line int64). Raises ValueError naming row and byte for "
           "text that is not UTF-8.");
}

}  // namespace rareword
