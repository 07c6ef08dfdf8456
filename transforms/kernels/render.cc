// Segments text to text: lines of words in, lines of pieces out, with a bounded cache of words.

#include <pybind11/stl.h>

#include <mutex>
#include <optional>
#include <shared_mutex>

#include "arrays.h"
#include "arrow.h"
#include "dropout.h"
#include "kernels.h"
#include "line_text.h"
#include "merge_table.h"
#include "symbols.h"
#include "tables.h"
#include "text.h"
#include "threads.h"
#include "word_cache.h"

namespace rareword {
namespace {

// The end of a word as a symbol of its own, as in codes of version 0.1: a surrogate, so no text has
// it.
constexpr int32_t kEndOfWord = 2 * 0xD800 + 1;

// What the glossaries make of a word: parts that are segmented by themselves or kept whole, one
// behind the other, each with its size and whether it is kept before it. Empty: nothing is kept.
struct PartHead {
  uint32_t size;
  bool whole;
};

class Renderer {
 public:
  // left, right, result: the merges by rank, as symbol ids. For the symbol kFirstMerged + s,
  // sizes[s] is the number of its bytes and (split_left[s], split_right[s]) what it is split into
  // when the vocabulary lacks it (-1: nothing). in_vocabulary[s] has bit 0 set if it has the symbol
  // before other pieces of its word and bit 1 if as the last one; an empty in_vocabulary is no
  // filter. glossary: None, or a function from a word to None (nothing in it is kept) or its parts.
  Renderer(const Array<int32_t>& left, const Array<int32_t>& right, const Array<int32_t>& result,
           const Array<int32_t>& sizes, const Array<int32_t>& split_left,
           const Array<int32_t>& split_right, const Array<uint8_t>& in_vocabulary,
           const std::string& separator, bool end_symbol, py::object glossary, int64_t cache_bytes)
      : merges_(checked(left, right, result, sizes), right.data(), result.data(), left.size()),
        sizes_(sizes.data(), sizes.data() + sizes.size()),
        split_left_(split_left.data(), split_left.data() + split_left.size()),
        split_right_(split_right.data(), split_right.data() + split_right.size()),
        in_vocabulary_(in_vocabulary.data(), in_vocabulary.data() + in_vocabulary.size()),
        joiner_(separator + " "),
        end_symbol_(end_symbol),
        glossary_(std::move(glossary)),
        cache_(cache_bytes) {
    if (split_left.size() != sizes.size() || split_right.size() != sizes.size())
      throw py::value_error("sizes and splits differ in length");
    if (in_vocabulary.size() != 0 && in_vocabulary.size() != sizes.size())
      throw py::value_error("in_vocabulary must be empty or as long as sizes");
    // Parts are shorter than the whole, or one of them is the mark of a word's end.
    const auto limit = kFirstMerged + static_cast<int32_t>(sizes_.size());
    for (size_t s = 0; s < sizes_.size(); ++s) {
      const auto whole = kFirstMerged + static_cast<int32_t>(s);
      const int32_t a = split_left_[s], b = split_right_[s];
      if (a < 0) continue;
      if (b < 0 || a >= limit || b >= limit || a == whole || b == whole ||
          size_of(a) + size_of(b) != sizes_[s])
        throw py::value_error("symbol " + std::to_string(s) + " cannot be split so");
    }
  }

  // The text, whole lines, with its words in pieces: a list of bytes to be written one by one.
  py::list render(const py::bytes& text, int64_t first_line, int threads, double dropout,
                  uint64_t seed) {
    const std::string_view all = text;
    std::vector<std::string> outs;
    {
      const py::gil_scoped_release release;
      const auto using_cache = use_cache(dropout > 0);
      const LineShares shares(all, first_line, std::max(threads, 1));
      outs.resize(shares.size());
      in_threads(shares.size(), [&](int t) {
        Work work(cache_, dropout, seed);
        add_lines(shares.text(t), shares.first_line(t), work, outs[t]);
      });
    }
    py::list result;
    for (auto& out : outs) {
      if (!out.empty()) result.append(py::bytes(out));
      out = std::string();
    }
    return result;
  }

  // The words of an Arrow string array in pieces: (offsets int64, bytes uint8).
  py::tuple render_words(const py::object& words) {
    const StringColumn column(words);
    std::string out;
    std::vector<int64_t> offsets{0};
    {
      const py::gil_scoped_release release;
      const auto using_cache = use_cache(false);
      Work work(cache_, 0, 0);
      for (int64_t row = 0; row < column.rows(); ++row) {
        add_word(column[row], hash_bytes(column[row]), row, 0, work, out);
        offsets.push_back(static_cast<int64_t>(out.size()));
      }
    }
    std::vector<uint8_t> bytes(out.begin(), out.end());
    return py::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(bytes)));
  }

 private:
  static constexpr size_t kWaiting = 32;
  struct Waiting {
    std::string_view word;
    uint64_t hash;
    size_t at;
  };

  // Buffers of one thread.
  struct Work {
    Work(WordCache<char>& cache, double dropout, uint64_t seed)
        : writer(cache), draws(seed, dropout) {}
    WordCache<char>::Writer writer;
    Draws draws;
    MergeTable::Scratch scratch;
    std::vector<int32_t> symbols;
    std::vector<std::pair<int32_t, bool>> pending;
    std::string word;
    Waiting waiting[kWaiting];
  };

  // The cache holds words as they are printed; with dropout, what the glossaries make of them. What
  // is of the other kind, or full, is forgotten: what is frequent is soon back.
  std::shared_lock<std::shared_mutex> use_cache(bool random) {
    std::shared_lock<std::shared_mutex> using_cache(cache_mutex_);
    while (random_ != random || cache_.full()) {
      using_cache.unlock();
      {
        const std::unique_lock<std::shared_mutex> alone(cache_mutex_);
        if (random_ != random || cache_.full()) cache_.clear();
        random_ = random;
      }
      using_cache.lock();
    }
    return using_cache;
  }

  static const int32_t* checked(const Array<int32_t>& left, const Array<int32_t>& right,
                                const Array<int32_t>& result, const Array<int32_t>& sizes) {
    if (right.size() != left.size() || result.size() != left.size())
      throw py::value_error("left, right and result differ in length");
    const int64_t limit = kFirstMerged + sizes.size();
    for (int64_t r = 0; r < left.size(); ++r)
      for (const int32_t symbol : {left.data()[r], right.data()[r], result.data()[r]})
        if (symbol < 0 || symbol >= limit)
          throw py::value_error("merge " + std::to_string(r) + " names a symbol without a size");
    return left.data();
  }

  int32_t size_of(int32_t symbol) const {
    if (symbol >= kFirstMerged) return sizes_[symbol - kFirstMerged];
    if (symbol == kEndOfWord) return 0;
    const int32_t code = symbol >> 1;
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }

  void add_lines(std::string_view text, int64_t line, Work& work, std::string& out) {
    out.reserve(text.size() + text.size() / 2);
    for_each_line(text, [&](const Line& found) {
      if (work.draws.active()) work.draws.begin_line(line);
      out += found.before;
      // Words wait a little, until what the cache knows of them has come from memory.
      bool inner = false;
      size_t waiting = 0;
      const auto finish = [&] {
        for (size_t k = 0; k < waiting; ++k) cache_.fetch_entry(work.waiting[k].hash);
        for (size_t k = 0; k < waiting; ++k) {
          if (inner) out += ' ';
          inner = true;
          const Waiting& next = work.waiting[k];
          add_word(next.word, next.hash, line, found.before.size() + next.at, work, out);
        }
        waiting = 0;
      };
      for_each_word(found.words, [&](std::string_view word, size_t at) {
        const uint64_t hash = hash_bytes(word);
        cache_.fetch_slot(hash);
        work.waiting[waiting++] = {word, hash, at};
        if (waiting == kWaiting) finish();
      });
      finish();
      out += found.after;
      ++line;
    });
  }

  // `row` and `byte` say where the word stands, for errors.
  void add_word(std::string_view word, uint64_t hash, int64_t row, size_t byte, Work& work,
                std::string& out) {
    const bool random = work.draws.active();
    if (random && glossary_.is_none()) {
      add_parts(word, {}, row, byte, work, out);
      return;
    }
    const auto found = cache_.find(word, hash);
    std::string_view known(found.values, found.size);
    if (found.values == nullptr) {
      work.word.clear();
      if (random)
        work.word = parts_of(word, row, byte);
      else
        add_parts(word, glossary_.is_none() ? "" : parts_of(word, row, byte), row, byte, work,
                  work.word);
      work.writer.add(word, hash, work.word.data(), work.word.size());
      known = work.word;
    }
    if (random)
      add_parts(word, known, row, byte, work, out);
    else
      out += known;
  }

  std::string parts_of(std::string_view word, int64_t row, size_t byte) const {
    check_utf8(word, row, byte);
    const py::gil_scoped_acquire acquire;
    using Parts = std::vector<std::pair<std::string, bool>>;
    const auto parts =
        glossary_(py::str(word.data(), word.size())).cast<std::optional<Parts>>();
    std::string packed;
    for (const auto& [text, whole] : parts.value_or(Parts())) {
      const PartHead head{static_cast<uint32_t>(text.size()), whole};
      packed.append(reinterpret_cast<const char*>(&head), sizeof head);
      packed += text;
    }
    return packed;
  }

  void add_parts(std::string_view word, std::string_view parts, int64_t row, size_t byte,
                 Work& work, std::string& out) const {
    bool first = true;
    if (parts.empty()) add_pieces(word, row, byte, work, first, out);
    while (!parts.empty()) {
      PartHead head;
      memcpy(&head, parts.data(), sizeof head);
      const std::string_view text = parts.substr(sizeof head, head.size);
      parts.remove_prefix(sizeof head + head.size);
      if (head.whole)
        add_piece(text, first, out);
      else
        add_pieces(text, row, byte, work, first, out);
    }
  }

  // Merges `text` as a word of its own and prints its pieces. `first`: nothing of the word is
  // printed yet.
  void add_pieces(std::string_view text, int64_t row, size_t byte, Work& work, bool& first,
                  std::string& out) const {
    auto& symbols = work.symbols;
    symbols.clear();
    append_base_symbols(text, row, byte, false, symbols);
    if (end_symbol_) symbols.back() &= ~1;
    if (end_symbol_) symbols.push_back(kEndOfWord);
    if (work.draws.active())
      merge_with_dropout(merges_, symbols, work.draws, work.scratch);
    else
      merges_.merge(symbols, work.scratch);
    if (symbols.back() == kEndOfWord) symbols.pop_back();
    size_t at = 0;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool last = i + 1 == symbols.size();
      if (in_vocabulary_.empty()) {
        const auto size = static_cast<size_t>(size_of(symbols[i]));
        add_piece(text.substr(at, size), first, out);
        at += size;
      } else {
        split(symbols[i], last, text, at, work.pending, first, out);
      }
    }
  }

  // Prints a symbol that the vocabulary has, or its parts, or their parts. Last comes `last`: the
  // piece ends the text.
  void split(int32_t symbol, bool last, std::string_view text, size_t& at,
             std::vector<std::pair<int32_t, bool>>& pending, bool& first, std::string& out) const {
    pending.assign(1, {symbol, last});
    while (!pending.empty()) {
      std::tie(symbol, last) = pending.back();
      pending.pop_back();
      const int32_t s = symbol - kFirstMerged;
      if (s >= 0 && split_left_[s] >= 0 && !(in_vocabulary_[s] >> last & 1)) {
        const bool ends = split_right_[s] == kEndOfWord;  // version 0.1: nothing to print
        if (!ends) pending.emplace_back(split_right_[s], last);
        pending.emplace_back(split_left_[s], last && ends);
        continue;
      }
      const auto size = static_cast<size_t>(size_of(symbol));
      add_piece(text.substr(at, size), first, out);
      at += size;
    }
  }

  void add_piece(std::string_view piece, bool& first, std::string& out) const {
    if (!first) out += joiner_;
    first = false;
    out += piece;
  }

  MergeTable merges_;
  std::vector<int32_t> sizes_, split_left_, split_right_;
  std::vector<uint8_t> in_vocabulary_;
  std::string joiner_;
  bool end_symbol_;
  py::object glossary_;
  WordCache<char> cache_;
  bool random_ = false;
  std::shared_mutex cache_mutex_;
};

}  // namespace

void bind_render(py::module_& module) {
  py::class_<Renderer>(module, "Renderer",
                       "Merges by rank, a vocabulary and glossaries; segments text to text.")
      .def(py::init<const Array<int32_t>&, const Array<int32_t>&, const Array<int32_t>&,
                    const Array<int32_t>&, const Array<int32_t>&, const Array<int32_t>&,
                    const Array<uint8_t>&, const std::string&, bool, py::object, int64_t>(),
           py::arg("left"), py::arg("right"), py::arg("result"), py::arg("sizes"),
           py::arg("split_left"), py::arg("split_right"), py::arg("in_vocabulary"),
           py::arg("separator"), py::arg("end_symbol"), py::arg("glossary"),
           py::arg("cache_bytes") = int64_t{256} << 20)
      .def("render", &Renderer::render, py::arg("text"), py::arg("first_line") = 0,
           py::arg("threads") = 1, py::arg("dropout") = 0.0, py::arg("seed") = 0,
           "Whole lines of text with their words in pieces, as a list of bytes.\n\n"
           "Words are split at U+0020; `\\r`, `\\n` and spaces at both ends of a line stay. The "
           "random numbers of line i are a function of seed and first_line + i. Raises ValueError "
           "naming row and byte for text that is not UTF-8.")
      .def("render_words", &Renderer::render_words, py::arg("words"),
           "Each word of an Arrow string array in pieces: (offsets int64, bytes uint8).");
  module.attr("END_OF_WORD") = kEndOfWord;
}

}  // namespace rareword
