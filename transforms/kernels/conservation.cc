// Checks that pieces give back the text that they were cut from.

#include <algorithm>
#include <vector>

#include "arrays.h"
#include "arrow.h"
#include "kernels.h"
#include "text.h"
#include "threads.h"

namespace rareword {
namespace {

int64_t spaces_in(std::string_view text) {
  int64_t spaces = 0;
  size_t at = 0;
  for (; at + 64 <= text.size(); at += 64) spaces += __builtin_popcountll(spaces_of(&text[at]));
  for (; at < text.size(); ++at) spaces += text[at] == ' ';
  return spaces;
}

// What one thread found.
struct alignas(kCacheLine) Found {
  int64_t wrong_row = INT64_MAX, unknown = 0;
  std::vector<uint8_t> used;
};

// ids, offsets, words: rows of pieces and how many words each row has. measures: of each piece, the
// bytes of its text, plus ends_word if it ends its word. unknown: the piece that stands for text
// without a piece; rows that have it are not checked. raw: spaces are part of the pieces' text, and
// no piece ends a word.
py::tuple check_pieces(const Array<int32_t>& ids, const Array<int64_t>& offsets,
                       const Array<int64_t>& words, const py::object& lines,
                       const Array<int64_t>& measures, int64_t ends_word, int32_t unknown, bool raw,
                       int threads) {
  const StringColumn text(lines);
  const SequencesView rows(ids, offsets, words, threads);
  if (rows.words != text.rows()) throw py::value_error("rows of pieces and of text differ");
  const auto pieces = static_cast<int32_t>(measures.size());
  const int64_t* const measure = measures.data();
  Array<uint8_t> used(pieces);
  Found all;
  {
    const py::gil_scoped_release release;
    const Blocks blocks(rows.words, threads);
    std::vector<Found> found(blocks.threads());
    blocks.run([&](int thread, int64_t, int64_t begin, int64_t end) {
      Found& mine = found[thread];
      mine.used.resize(pieces);
      for (int64_t row = begin; row < end; ++row) {
        int64_t sum = 0, unknowns = 0;
        for (int64_t k = rows.offsets[row]; k < rows.offsets[row + 1]; ++k) {
          const int32_t id = rows.symbols[k];
          if (id >= pieces) throw std::invalid_argument("id " + std::to_string(id) + " is no piece");
          sum += measure[id];
          unknowns += id == unknown;
          mine.used[id] = 1;
        }
        mine.unknown += unknowns;
        const std::string_view line = text[row];
        const auto size = static_cast<int64_t>(line.size());
        const int64_t wanted =
            raw ? size : size - spaces_in(line) + rows.counts[row] * ends_word;
        if (unknowns == 0 && sum != wanted) mine.wrong_row = std::min(mine.wrong_row, row);
      }
    });
    uint8_t* const flags = used.mutable_data();
    std::fill_n(flags, pieces, 0);
    for (const Found& part : found) {
      all.wrong_row = std::min(all.wrong_row, part.wrong_row);
      all.unknown += part.unknown;
      for (size_t i = 0; i < part.used.size(); ++i) flags[i] |= part.used[i];
    }
  }
  return py::make_tuple(all.wrong_row == INT64_MAX ? -1 : all.wrong_row, all.unknown, used);
}

}  // namespace

void bind_conservation(py::module_& module) {
  module.def("check_pieces", &check_pieces, py::arg("ids"), py::arg("offsets"), py::arg("words"),
             py::arg("lines"), py::arg("measures"), py::arg("ends_word"), py::arg("unknown"),
             py::arg("raw") = false, py::arg("threads") = 1,
             "Whether rows of pieces have their text's bytes and end as many words as it has.\n\n"
             "measures: of each piece, the bytes of its text, plus `ends_word` if it ends its word."
             "\nraw: spaces are part of the pieces. Returns (first wrong row or -1, number of "
             "`unknown` pieces, whether\neach piece occurs: uint8). Rows with unknown pieces cannot "
             "be checked.");
}

}  // namespace rareword
