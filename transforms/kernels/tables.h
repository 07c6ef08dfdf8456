// Hash tables of the kernels: byte strings (words, chunks of symbols) and symbol pairs.
//
// Hashes are functions of the bytes alone, so that every process and machine agrees on them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace rareword {

inline uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// At most 8 bytes as a number, by two loads that may overlap instead of a copy of unknown size.
inline uint64_t short_word(const char* at, size_t size) {
  if (size >= 4) {
    uint32_t head, tail;
    memcpy(&head, at, 4);
    memcpy(&tail, at + size - 4, 4);
    return static_cast<uint64_t>(tail) << 32 | head;
  }
  if (size == 0) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(at[i])); };
  return byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
}

inline uint64_t hash_bytes(std::string_view text) {
  const char* at = text.data();
  size_t left = text.size();
  uint64_t hash = left * 0x9E3779B97F4A7C15ull;
  uint64_t word = 0;
  for (; left > 8; at += 8, left -= 8) {
    memcpy(&word, at, 8);
    hash = mix(hash ^ word, 0xA0761D6478BD642Full);
  }
  return mix(hash ^ short_word(at, left), 0xE7037ED1A0B428DBull);
}

// Distinct byte strings, numbered in the order of their first appearance. Open addressing; the
// bytes live one after the other in `bytes`, string i from begin(i) on.
class StringTable {
 public:
  StringTable() : slots_(1 << 12) { begins_.push_back(0); }

  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }
  std::string_view operator[](int64_t id) const {
    return {bytes_.data() + begins_[id], begins_[id + 1] - begins_[id]};
  }
  uint64_t hash(int64_t id) const { return hashes_[id]; }
  const std::vector<char>& bytes() const { return bytes_; }
  const std::vector<uint64_t>& begins() const { return begins_; }
  size_t memory() const { return bytes_.size() + begins_.size() * 16 + slots_.size() * 16; }

  // The number of a string; `is_new` tells whether this call added it.
  int64_t add(std::string_view text, uint64_t hash, bool& is_new) {
    size_t at = hash & (slots_.size() - 1);
    for (; slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].hash == hash && (*this)[slots_[at].id] == text) {
        is_new = false;
        return slots_[at].id;
      }
    is_new = true;
    const int64_t id = size();
    slots_[at] = {hash, id};
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    begins_.push_back(bytes_.size());
    hashes_.push_back(hash);
    if (static_cast<size_t>(size()) * 2 > slots_.size()) grow();
    return id;
  }

  void clear() {
    slots_.assign(1 << 12, Slot{});
    bytes_.clear();
    begins_.assign(1, 0);
    hashes_.clear();
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    int64_t id = -1;
  };

  void grow() {
    slots_.assign(slots_.size() * 2, Slot{});
    const size_t mask = slots_.size() - 1;
    for (int64_t id = 0; id < size(); ++id) {
      size_t at = hashes_[id] & mask;
      while (slots_[at].id >= 0) at = (at + 1) & mask;
      slots_[at] = {hashes_[id], id};
    }
  }

  std::vector<Slot> slots_;
  std::vector<char> bytes_;
  std::vector<uint64_t> begins_;
  std::vector<uint64_t> hashes_;
};

inline uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

inline uint64_t hash_pair(uint64_t key) {
  key *= 0x9E3779B97F4A7C15ull;
  return key ^ key >> 32;
}

// Symbol pair -> a number the caller chooses.
class PairTable {
 public:
  PairTable() : keys_(1 << 10, kEmpty), values_(1 << 10) {}

  // The value of a pair, or null.
  int64_t* find(uint64_t key) {
    for (size_t at = hash_pair(key) & mask(); keys_[at] != kEmpty; at = (at + 1) & mask())
      if (keys_[at] == key) return &values_[at];
    return nullptr;
  }
  const int64_t* find(uint64_t key) const { return const_cast<PairTable*>(this)->find(key); }

  // The value of a pair, entered as `value` if it was not there.
  int64_t& add(uint64_t key, int64_t value) {
    if (++used_ * 2 > keys_.size()) grow();
    size_t at = hash_pair(key) & mask();
    for (; keys_[at] != kEmpty; at = (at + 1) & mask())
      if (keys_[at] == key) {
        --used_;
        return values_[at];
      }
    keys_[at] = key;
    return values_[at] = value;
  }

 private:
  static constexpr uint64_t kEmpty = ~0ull;  // symbols are not negative, so no pair has this key
  size_t mask() const { return keys_.size() - 1; }

  void grow() {
    std::vector<uint64_t> keys(keys_.size() * 2, kEmpty);
    std::vector<int64_t> values(keys.size());
    keys.swap(keys_);
    values.swap(values_);
    for (size_t old = 0; old < keys.size(); ++old) {
      if (keys[old] == kEmpty) continue;
      size_t at = hash_pair(keys[old]) & mask();
      while (keys_[at] != kEmpty) at = (at + 1) & mask();
      keys_[at] = keys[old];
      values_[at] = values[old];
    }
  }

  std::vector<uint64_t> keys_;
  std::vector<int64_t> values_;
  size_t used_ = 0;
};

}  // namespace rareword
