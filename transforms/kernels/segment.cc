// Segments lines into piece ids, and piece ids anew with merges left out at random.

#include <pybind11/stl.h>

#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "arrays.h"
#include "arrow.h"
#include "dropout.h"
#include "kernels.h"
#include "merge_table.h"
#include "pieces.h"
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
  // cut into bytes instead of characters before they are merged. glossary: None, or a function from
  // a word to None (nothing in it is kept) or its parts, each with its symbol if it stays whole,
  // else -1; parts are merged as words of their own, and inner[s] is the symbol kFirstMerged + s as
  // the last one of a part that does not end its word.
  Segmenter(const Array<int32_t>& left, const Array<int32_t>& right, const Array<int32_t>& result,
            int64_t symbols, bool bytes, int64_t cache_bytes, py::object glossary,
            const Array<int32_t>& inner)
      : merges_(checked(left, right, result, symbols), right.data(), result.data(), left.size()),
        symbols_(symbols),
        bytes_(bytes),
        cache_(cache_bytes),
        glossary_(std::move(glossary)),
        inner_(inner.data(), inner.data() + inner.size()) {
    if (!glossary_.is_none() && inner.size() != symbols - kFirstMerged)
      throw py::value_error("inner must have an entry for each merged symbol");
    for (const int32_t symbol : inner_)
      if (symbol < 0 || symbol >= symbols) throw py::value_error("inner names an unknown symbol");
  }

  // Rows of piece ids: (ids int32, offsets int64, words of each row int64). to_ids: the piece id of
  // every symbol. If it is empty, `pieces` says what symbols become; without it, too, the symbols
  // themselves are returned.
  py::tuple segment(const py::object& lines, const Array<int32_t>& to_ids, int threads,
                    const PieceTable* pieces) {
    if (to_ids.size() != 0 && to_ids.size() != symbols_)
      throw py::value_error("ids must be none, or one for each of the " +
                            std::to_string(symbols_) + " symbols");
    check(pieces);
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
        if (pieces != nullptr) {
          replace(*pieces, worker.ids.get(), &offsets[0], part);
          return;
        }
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

  // Rows of piece ids with their words segmented anew, merges left out with this probability:
  // (ids int32, offsets int64). spelling: the base symbols of piece i are spelling[spelling_offsets
  // [i] .. spelling_offsets[i + 1]); a byte b of a character is -1 - (2 * b + (1 if it ends a
  // word)); a piece without any stays as it is, and nothing is merged across it. The random numbers
  // of a row are a function of seed and rows[r]. The cache takes no part in this.
  py::tuple draw(const Array<int32_t>& ids, const Array<int64_t>& offsets,
                 const Array<int64_t>& rows, const Array<int32_t>& spelling,
                 const Array<int64_t>& spelling_offsets, const PieceTable& pieces,
                 double probability, uint64_t seed, int threads) {
    check(&pieces);
    const SequencesView view(ids, offsets, rows, threads);
    const Spelling spelled(spelling, spelling_offsets, symbols_);
    for (int64_t i = offsets.data()[0]; i < offsets.data()[view.words]; ++i)
      if (view.symbols[i] >= spelled.pieces)
        throw py::value_error("piece id " + std::to_string(view.symbols[i]) +
                              " is not in the vocabulary");
    Buffer<int64_t> ends(view.words + 1);
    std::unique_ptr<Buffer<int32_t>> found;
    {
      const py::gil_scoped_release release;
      const Blocks blocks(view.words, threads);
      std::vector<Part> parts(blocks.number());
      blocks.run([&](int, int64_t block, int64_t begin, int64_t end) {
        Drawing drawing(*this, pieces, Draws(seed, probability));
        for (int64_t r = begin; r < end; ++r) {
          drawing.add_row(view.symbols + view.offsets[r], view.symbols + view.offsets[r + 1],
                          view.counts[r], spelled);
          ends[r + 1] = static_cast<int64_t>(drawing.out.size());
        }
        const auto size = static_cast<int64_t>(drawing.out.size());
        parts[block] = {begin, end, size, std::unique_ptr<int32_t[]>(new int32_t[size])};
        std::copy_n(drawing.out.data(), size, parts[block].ids.get());
      });
      ends[0] = 0;
      found = joined(parts, ends, threads);
    }
    return py::make_tuple(to_numpy(std::move(*found)), to_numpy(std::move(ends)));
  }

 private:
  // A part of a word: text, and its symbol if a glossary keeps it whole, else -1.
  using GlossaryParts = std::vector<std::pair<std::string, int32_t>>;

  // The base symbols of each piece, borrowed from NumPy and checked.
  struct Spelling {
    Spelling(const Array<int32_t>& symbols_, const Array<int64_t>& offsets_, int64_t limit)
        : symbols(symbols_.data()), offsets(offsets_.data()), pieces(offsets_.size() - 1) {
      if (pieces < 0 || offsets[0] != 0 || offsets[pieces] != symbols_.size())
        throw py::value_error("the spelling's offsets do not fit it");
      for (int64_t i = 0; i < pieces; ++i)
        if (offsets[i + 1] < offsets[i]) throw py::value_error("offsets run backwards");
      for (int64_t i = 0; i < symbols_.size(); ++i)
        if (symbols[i] < -2 * 256 || symbols[i] >= std::min<int64_t>(limit, kFirstMerged))
          throw py::value_error("a piece is spelled with what is no base symbol");
    }
    const int32_t* symbols;
    const int64_t* offsets;
    int64_t pieces;
  };

  // Rows of ids on their way to symbols and back, in one thread.
  class Drawing {
   public:
    Drawing(const Segmenter& owner, const PieceTable& pieces, const Draws& draws)
        : owner_(owner), pieces_(pieces), draws_(draws) {}

    void add_row(const int32_t* id, const int32_t* end, int64_t row, const Spelling& spelling) {
      draws_.begin_line(row);
      for (; id < end; ++id) {
        const int64_t first = spelling.offsets[*id], last = spelling.offsets[*id + 1];
        if (first == last) {
          end_word();
          out.push_back(*id);
          continue;
        }
        for (int64_t i = first; i < last; ++i) {
          const int32_t symbol = spelling.symbols[i];
          if (symbol < 0)
            add_byte(-1 - symbol, *id);
          else
            add_base(symbol);
        }
      }
      end_word();
    }

    std::vector<int32_t> out;

   private:
    void add_base(int32_t symbol) {
      keep_bytes();
      word_.push_back(symbol);
      if (symbol & 1) end_word();
    }

    // Bytes become a character when they are complete.
    void add_byte(int32_t byte, int32_t id) {
      bytes_ += static_cast<char>(byte >> 1);
      byte_ids_.push_back(id);
      size_t at = 0;
      const int32_t code = next_code_point(bytes_, at);
      if (code >= 0) {
        bytes_.clear();
        byte_ids_.clear();
        add_base(2 * code + (byte & 1));
      } else if (byte & 1) {
        end_word();
      }
    }

    // What is no character stays as it is: symbols above all others, which nothing merges.
    void keep_bytes() {
      for (const int32_t id : byte_ids_)
        word_.push_back(static_cast<int32_t>(owner_.symbols_) + id);
      bytes_.clear();
      byte_ids_.clear();
    }

    void end_word() {
      keep_bytes();
      if (word_.empty()) return;
      const auto merge = [&](std::vector<int32_t>& symbols) {
        if (draws_.active())
          merge_with_dropout(owner_.merges_, symbols, draws_, scratch_);
        else
          owner_.merges_.merge(symbols, scratch_);
      };
      const GlossaryParts* const parts = glossary_parts();
      if (parts == nullptr) {
        merge(word_);
      } else {
        word_.clear();
        owner_.append_parts(*parts, word_, part_symbols_, merge);
      }
      for (const int32_t symbol : word_)
        if (symbol < owner_.symbols_)
          pieces_.add(symbol, out);
        else
          out.push_back(symbol - static_cast<int32_t>(owner_.symbols_));
      word_.clear();
    }

    // What the glossary makes of the word, null for nothing. Only of whole words: what stands
    // beside an unknown piece is none.
    const GlossaryParts* glossary_parts() {
      if (owner_.glossary_.is_none() || !(word_.back() & 1)) return nullptr;
      std::string text;
      for (const int32_t symbol : word_) {
        if (symbol >= kFirstMerged) return nullptr;
        append_utf8(text, symbol >> 1);
      }
      if (known_.size() >= kKnownWords) known_.clear();
      auto [found, is_new] = known_.try_emplace(text);
      if (is_new) found->second = owner_.parts_of(text);
      return found->second.empty() ? nullptr : &found->second;
    }

    static constexpr size_t kKnownWords = 1 << 18;

    const Segmenter& owner_;
    const PieceTable& pieces_;
    Draws draws_;
    MergeTable::Scratch scratch_;
    std::vector<int32_t> word_, part_symbols_, byte_ids_;
    std::string bytes_;
    std::unordered_map<std::string, GlossaryParts> known_;
  };

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

  // Symbols of a part become ids, and its offsets follow.
  static void replace(const PieceTable& pieces, const int32_t* symbols, int64_t* offsets,
                      Part& part) {
    part.ids.reset(new int32_t[part.size]);
    int32_t sign = 0;
    for (int64_t i = 0; i < part.size; ++i) sign |= part.ids[i] = pieces.id(symbols[i]);
    if (sign >= 0) return;
    std::vector<int32_t> out;
    out.reserve(part.size + part.size / 8);
    int64_t i = 0;
    for (int64_t row = part.begin; row < part.end; ++row) {
      for (; i < offsets[row + 1]; ++i)
        if (part.ids[i] >= 0)
          out.push_back(part.ids[i]);
        else
          pieces.add(symbols[i], out);
      offsets[row + 1] = static_cast<int64_t>(out.size());
    }
    part.size = static_cast<int64_t>(out.size());
    part.ids.reset(new int32_t[part.size]);
    std::copy_n(out.data(), part.size, part.ids.get());
  }

  void check(const PieceTable* pieces) const {
    if (pieces != nullptr && pieces->symbols() != symbols_)
      throw py::value_error("pieces must be those of the " + std::to_string(symbols_) +
                            " symbols");
  }

  // Empty: nothing in the word is kept.
  GlossaryParts parts_of(std::string_view word) const {
    const py::gil_scoped_acquire acquire;
    auto parts = glossary_(py::str(word.data(), word.size())).cast<std::optional<GlossaryParts>>();
    for (const auto& part : parts.value_or(GlossaryParts()))
      if (part.first.empty() || part.second < -1 || part.second >= symbols_)
        throw py::value_error("a glossary's part is empty or names an unknown symbol");
    return std::move(parts).value_or(GlossaryParts());
  }

  // Calls merge(symbols) for each part that is not kept; the symbols of all parts are appended.
  template <class Merge>
  void append_parts(const GlossaryParts& parts, std::vector<int32_t>& symbols,
                    std::vector<int32_t>& part_symbols, Merge merge) const {
    for (size_t k = 0; k < parts.size(); ++k) {
      const auto& [text, whole] = parts[k];
      if (whole >= 0) {
        symbols.push_back(whole);
        continue;
      }
      part_symbols.clear();
      append_base_symbols(text, 0, 0, bytes_, part_symbols);
      merge(part_symbols);
      int32_t& last = part_symbols.back();
      if (k + 1 < parts.size()) last = last < kFirstMerged ? last & ~1 : inner_[last - kFirstMerged];
      symbols.insert(symbols.end(), part_symbols.begin(), part_symbols.end());
    }
  }

  // What one thread uses again for each of its parts.
  struct alignas(kCacheLine) Worker {
    explicit Worker(WordCache<int32_t>& cache) : writer(cache) {}

    WordCache<int32_t>::Writer writer;
    MergeTable::Scratch scratch;
    std::vector<int32_t> symbols, part_symbols;
    std::unique_ptr<int32_t[]> ids;
    int64_t room = 0;
  };

  // The symbols of a word that the cache does not know.
  void segment_word(const Word& word, Worker& worker) {
    auto& symbols = worker.symbols;
    symbols.clear();
    append_base_symbols(word.text, word.row, word.first, bytes_, symbols);
    if (!glossary_.is_none()) {
      const GlossaryParts parts = parts_of(word.text);
      if (!parts.empty()) {
        symbols.clear();
        append_parts(parts, symbols, worker.part_symbols,
                     [&](std::vector<int32_t>& part) { merges_.merge(part, worker.scratch); });
        return;
      }
    }
    merges_.merge(symbols, worker.scratch);
  }

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
            segment_word(word, worker);
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
  py::object glossary_;
  std::vector<int32_t> inner_;
};

}  // namespace

void bind_segment(py::module_& module) {
  py::class_<PieceTable>(module, "PieceTable",
                         "The piece ids of symbols, for a vocabulary that does not have all.")
      .def(py::init<const Array<int32_t>&, const Array<int32_t>&, const Array<int32_t>&,
                    const Array<int32_t>&, const Array<int32_t>&, int32_t>(),
           py::arg("ids"), py::arg("left"), py::arg("right"), py::arg("sizes"),
           py::arg("byte_ids"), py::arg("unknown"),
           "ids: the piece id of each symbol, -1 for none. left, right: what merged symbols are "
           "split into then (-1: nothing); sizes: their characters. byte_ids: the ids of the bytes "
           "of characters without id, at 2 * byte + (1 if it ends a word), or empty: they are the "
           "unknown piece.");
  py::class_<Segmenter>(module, "Segmenter", "Cuts lines into pieces, by merges in their order.")
      .def(py::init<const Array<int32_t>&, const Array<int32_t>&, const Array<int32_t>&, int64_t,
                    bool, int64_t, py::object, const Array<int32_t>&>(),
           py::arg("left"), py::arg("right"), py::arg("result"), py::arg("symbols"),
           py::arg("bytes") = false, py::arg("cache_bytes") = int64_t{256} << 20,
           py::arg("glossary") = py::none(), py::arg("inner") = Array<int32_t>(0),
           "left, right, result: symbol ids of the merges by rank, below `symbols`. bytes: words "
           "are cut into bytes, not characters, before they are merged. glossary: None, or a "
           "function from a word to None or its parts, (text, symbol if it stays whole, else -1); "
           "inner: merged symbols as the last of a part that does not end its word.")
      .def("segment", &Segmenter::segment, py::arg("lines"), py::arg("ids"),
           py::arg("threads") = 1, py::arg("pieces") = nullptr,
           "The pieces of each line of an Arrow string array (words split at U+0020).\n\n"
           "ids: the piece id of each symbol, or empty: `pieces` gives them, or without it symbols "
           "are returned. Returns (ids int32, offsets int64, words of each line int64). Raises "
           "ValueError naming row and byte for text that is not UTF-8.")
      .def("draw", &Segmenter::draw, py::arg("ids"), py::arg("offsets"), py::arg("rows"),
           py::arg("spelling"), py::arg("spelling_offsets"), py::arg("pieces"),
           py::arg("probability"), py::arg("seed"), py::arg("threads") = 1,
           "Rows of piece ids segmented anew with BPE-dropout: (ids int32, offsets int64).\n\n"
           "rows: the number of each row; its random numbers are a function of it and the seed. "
           "spelling: the base symbols of each piece.");
}

}  // namespace rareword
