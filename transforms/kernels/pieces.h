// From symbols to piece ids, for a vocabulary that does not have all symbols.
#pragma once

#include "arrays.h"
#include "symbols.h"
#include "text.h"

namespace rareword {

// A symbol without an id is split into what a merge joined, each part is looked up in turn, and so
// on to characters. A character without an id becomes the ids of its bytes, or the unknown piece.
class PieceTable {
 public:
  // ids: the piece id of each symbol, -1 if it has none. For the symbol kFirstMerged + s, sizes[s]
  // is the number of its characters, and (left[s], right[s]) what it is split into (-1: nothing, it
  // is the unknown piece then). byte_ids: the ids of bytes, entry 2 * byte + (1 if it ends a word),
  // or empty.
  PieceTable(const Array<int32_t>& ids, const Array<int32_t>& left, const Array<int32_t>& right,
             const Array<int32_t>& sizes, const Array<int32_t>& byte_ids, int32_t unknown)
      : ids_(ids.data(), ids.data() + ids.size()),
        byte_ids_(byte_ids.data(), byte_ids.data() + byte_ids.size()),
        unknown_(unknown) {
    if (ids.size() < kFirstMerged) throw py::value_error("ids are fewer than base symbols");
    if (left.size() != symbols() - kFirstMerged || right.size() != left.size() ||
        sizes.size() != left.size())
      throw py::value_error("left, right and sizes must have an entry for each merged symbol");
    if (byte_ids.size() != 0 && byte_ids.size() != 2 * 256)
      throw py::value_error("byte_ids must be empty or have 512 entries");
    const auto size_of = [&](int32_t symbol) {
      return symbol < kFirstMerged ? 1 : sizes.data()[symbol - kFirstMerged];
    };
    for (int64_t s = 0; s < left.size(); ++s) {
      const int32_t a = left.data()[s], b = right.data()[s];
      if (a < 0) continue;
      if (b < 0 || a >= symbols() || b >= symbols() || size_of(a) < 1 || size_of(b) < 1 ||
          int64_t{size_of(a)} + size_of(b) != sizes.data()[s])
        throw py::value_error("symbol " + std::to_string(s) + " cannot be split so");
    }
    if (byte_ids_.empty())
      for (int32_t s = 0; s < kFirstMerged; ++s)
        if (ids_[s] < 0) ids_[s] = unknown;
    std::vector<int32_t> pending;
    std::vector<int64_t> missing;
    for (int64_t s = 0; s < left.size(); ++s)
      if (ids_[kFirstMerged + s] < 0) missing.push_back(s);
    for (const int64_t s : missing) {
      if (left.data()[s] < 0) {
        ids_[kFirstMerged + s] = unknown;
        continue;
      }
      pending.assign({right.data()[s], left.data()[s]});
      while (!pending.empty()) {
        const int32_t symbol = pending.back();
        const int64_t merged = symbol - kFirstMerged;
        pending.pop_back();
        if (merged >= 0 && ids_[symbol] < 0 && left.data()[merged] >= 0) {
          pending.push_back(right.data()[merged]);
          pending.push_back(left.data()[merged]);
        } else if (merged >= 0) {
          flat_.push_back(ids_[symbol] < 0 ? unknown : ids_[symbol]);
        } else {
          add_base(symbol, flat_);
        }
      }
      offsets_.push_back(static_cast<int64_t>(flat_.size()));
      expansions_.push_back(kFirstMerged + static_cast<int32_t>(s));
    }
    // Only now: while symbols were split, -1 said that they have no id.
    for (size_t k = 0; k < expansions_.size(); ++k)
      ids_[expansions_[k]] = kFirstExpansion - static_cast<int32_t>(k);
  }

  int64_t symbols() const { return static_cast<int64_t>(ids_.size()); }

  // The id of a symbol, or a negative number if it has none or several.
  int32_t id(int32_t symbol) const { return ids_[symbol]; }

  void add(int32_t symbol, std::vector<int32_t>& out) const {
    const int32_t id = ids_[symbol];
    if (id >= 0) {
      out.push_back(id);
    } else if (id <= kFirstExpansion) {
      const int64_t k = kFirstExpansion - int64_t{id};
      out.insert(out.end(), flat_.begin() + offsets_[k], flat_.begin() + offsets_[k + 1]);
    } else {
      add_base(symbol, out);
    }
  }

 private:
  static constexpr int32_t kFirstExpansion = -2;

  void add_base(int32_t symbol, std::vector<int32_t>& out) const {
    if (ids_[symbol] >= 0) {
      out.push_back(ids_[symbol]);
      return;
    }
    std::string bytes;
    append_utf8(bytes, symbol >> 1);
    for (size_t k = 0; k < bytes.size(); ++k) {
      const bool ends = k + 1 == bytes.size() && (symbol & 1);
      out.push_back(byte_ids_[2 * static_cast<uint8_t>(bytes[k]) + ends]);
    }
  }

  std::vector<int32_t> ids_, byte_ids_, flat_, expansions_;
  std::vector<int64_t> offsets_{0};
  int32_t unknown_;
};

}  // namespace rareword
