// Hash tables of the kernels: byte strings (words, chunks of symbols) and symbol pairs.
//
// Hashes are functions of the bytes alone, so that every process and machine agrees on them. Tables
// use a hash's high bits for the slot; its low bits are left to spread entries over shards.
//
// Tables of several threads may lie side by side, so each begins a new line of the cache
// (kCacheLine): one thread's insertions must not take from another what it reads all the time.
//
// What a large table costs is waiting for memory. So each table can fetch the memory of a key
// ahead of its turn (`fetch_slot`, then `fetch_entry`), and `Lookahead` keeps the keys waiting.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "memory.h"

namespace rareword {

constexpr size_t kCacheLine = 128;  // two lines of 64, which processors fetch together

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

// Whether two byte strings are equal; for strings as short as words this beats memcmp.
inline bool equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  const size_t size = a.size();
  if (size <= 8) return short_word(a.data(), size) == short_word(b.data(), size);
  const auto differ = [&](size_t at) {
    uint64_t x, y;
    memcpy(&x, a.data() + at, 8);
    memcpy(&y, b.data() + at, 8);
    return x != y;
  };
  for (size_t at = 0; at + 8 < size; at += 8)
    if (differ(at)) return false;
  return !differ(size - 8);
}

inline uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

inline uint64_t hash_pair(uint64_t key) { return mix(key, 0x9E3779B97F4A7C15ull); }

// The part of `parts` that an entry belongs to.
inline int64_t part_of(uint64_t hash, int64_t parts) {
  if (parts == 1) return 0;
  return static_cast<int64_t>((hash & 0xFFFFFFFF) % static_cast<uint64_t>(parts));
}

// Which of `threads` threads merges an entry; independent of its part and its slot.
inline int thread_of(uint64_t hash, int threads) {
  return static_cast<int>((hash >> 32 & 0xFFFF) * static_cast<uint64_t>(threads) >> 16);
}

// A queue between finding a key and using it. A key is first given to `fetch_slot`, half a queue
// later to `fetch_entry`, and at last, when both have arrived in the cache, to `use`.
template <class Key, class FetchSlot, class FetchEntry, class Use>
class alignas(kCacheLine) Lookahead {
 public:
  Lookahead(FetchSlot fetch_slot, FetchEntry fetch_entry, Use use)
      : fetch_slot_(fetch_slot), fetch_entry_(fetch_entry), use_(use) {}

  void push(const Key& key) {
    fetch_slot_(key);
    if (pushed_ >= kSize / 2) fetch_entry_(keys_[(pushed_ - kSize / 2) % kSize]);
    Key& place = keys_[pushed_ % kSize];
    if (pushed_ >= kSize) use_(place);
    place = key;
    ++pushed_;
  }

  // Uses the keys that still wait.
  void finish() {
    for (size_t k = pushed_ > kSize ? pushed_ - kSize : 0; k < pushed_; ++k) use_(keys_[k % kSize]);
    pushed_ = 0;
  }

 private:
  static constexpr size_t kSize = 32;
  FetchSlot fetch_slot_;
  FetchEntry fetch_entry_;
  Use use_;
  Key keys_[kSize];
  size_t pushed_ = 0;
};

template <class Key, class FetchSlot, class FetchEntry, class Use>
auto lookahead(FetchSlot fetch_slot, FetchEntry fetch_entry, Use use) {
  return Lookahead<Key, FetchSlot, FetchEntry, Use>(fetch_slot, fetch_entry, use);
}

// Distinct byte strings, each with a Value, in the order of their first appearance. Open
// addressing; entries lie one behind the other: value, size, bytes, padding to 8.
template <class Value>
class alignas(kCacheLine) StringTable {
  struct Head;

 public:
  StringTable() : slots_(1 << kFirstBits) {}

  int64_t size() const { return size_; }
  // Bytes of all strings.
  int64_t text_bytes() const { return text_bytes_; }
  size_t memory() const { return entries_.capacity() + slots_.size() * sizeof(Slot); }

  void fetch_slot(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> shift_]); }
  void fetch_entry(uint64_t hash) const {
    // Of an empty slot this fetches the first entry, which does no harm.
    __builtin_prefetch(entries_.data() + slots_[hash >> shift_].begin);
  }

  // The value of a string, a new one's being Value{}. Valid until the next call.
  Value& add(std::string_view text, uint64_t hash, bool& is_new) {
    size_t at = hash >> shift_;
    for (; slots_[at].used; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].hash != hash) continue;
      Head* const head = head_at(slots_[at].begin);
      if (!equal(text_of(head), text)) continue;
      is_new = false;
      return head->value;
    }
    is_new = true;
    const size_t begin = entries_.size();
    slots_[at] = {hash, begin, true};
    entries_.resize(begin + entry_bytes(text.size()));
    Head* const head = head_at(begin);
    *head = {Value{}, text.size(), 0};
    memcpy(head + 1, text.data(), text.size());
    text_bytes_ += static_cast<int64_t>(text.size());
    if (static_cast<size_t>(++size_) * 2 > slots_.size()) grow();
    return head->value;
  }

  Value& add(std::string_view text, uint64_t hash) {
    bool is_new = false;
    return add(text, hash, is_new);
  }

  // The value of a string, or null.
  Value* find(std::string_view text, uint64_t hash) {
    for (size_t at = hash >> shift_; slots_[at].used; at = (at + 1) & (slots_.size() - 1)) {
      Head* const head = head_at(slots_[at].begin);
      if (slots_[at].hash == hash && equal(text_of(head), text)) return &head->value;
    }
    return nullptr;
  }

  // Calls use(text, value) for every string that was not dropped.
  template <class Use>
  void for_each(Use use) const {
    for (size_t begin = 0; begin < entries_.size();) {
      const Head* const head = reinterpret_cast<const Head*>(entries_.data() + begin);
      begin += entry_bytes(head->size);
      if (!head->dropped) use(text_of(head), head->value);
    }
  }

  // An entry that may be dropped; see `fold`.
  class Entry {
   public:
    std::string_view text() const { return text_of(head_); }
    const Value& value() const { return head_->value; }
    void drop() const { head_->dropped = 1; }
    uint64_t hash;

   private:
    friend class StringTable;
    typename StringTable::Head* head_;
  };

  // The entries that are thread k's of n.
  template <class Use>
  void for_each_entry(int k, int n, Use use) {
    Entry entry;
    for (size_t begin = 0; begin < entries_.size();) {
      entry.head_ = head_at(begin);
      entry.hash = hash_bytes(entry.text());
      begin += entry_bytes(entry.head_->size);
      if (thread_of(entry.hash, n) == k) use(entry);
    }
  }
  Value* find(const Entry& entry) { return find(entry.text(), entry.hash); }

 private:
  static constexpr int kFirstBits = 12;
  struct Slot {
    uint64_t hash = 0;
    uint64_t begin : 63;
    uint64_t used : 1;
    Slot() : begin(0), used(0) {}
    Slot(uint64_t hash, uint64_t begin, bool used) : hash(hash), begin(begin), used(used) {}
  };
  struct Head {
    Value value;
    uint64_t size : 63;
    uint64_t dropped : 1;
  };
  static_assert(sizeof(Head) % 8 == 0, "entries stay aligned");

  Head* head_at(uint64_t begin) { return reinterpret_cast<Head*>(entries_.data() + begin); }
  static std::string_view text_of(const Head* head) {
    return {reinterpret_cast<const char*>(head + 1), head->size};
  }
  static size_t entry_bytes(size_t size) { return sizeof(Head) + (size + 7) / 8 * 8; }

  void grow() {
    LargeVector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    --shift_;
    for (const Slot& slot : old) {
      if (!slot.used) continue;
      size_t at = slot.hash >> shift_;
      while (slots_[at].used) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  LargeVector<Slot> slots_;
  int shift_ = 64 - kFirstBits;
  LargeVector<char> entries_;
  int64_t size_ = 0, text_bytes_ = 0;
};

// Symbol pair (pair_key) -> a number.
class alignas(kCacheLine) PairTable {
  struct Slot;

 public:
  // room: a guess at the number of pairs, which saves growing.
  explicit PairTable(int64_t room = 0) {
    int bits = kFirstBits;
    while (int64_t{1} << bits < 2 * room) ++bits;
    slots_.resize(size_t{1} << bits);
    shift_ = 64 - bits;
  }

  int64_t size() const { return static_cast<int64_t>(used_); }

  void fetch_slot(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> shift_]); }
  void fetch_entry(uint64_t) const {}  // a slot is all there is

  // The value of a pair, or null.
  const int64_t* find(uint64_t key) const {
    for (size_t at = hash_pair(key) >> shift_; slots_[at].key != kEmpty;
         at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].key == key) return &slots_[at].value;
    return nullptr;
  }
  int64_t* find(uint64_t key) {
    return const_cast<int64_t*>(static_cast<const PairTable*>(this)->find(key));
  }

  // The value of a pair, entered as `value` if it was not there. Valid until the next call.
  int64_t& add(uint64_t key, int64_t value) { return add(key, hash_pair(key), value); }
  int64_t& add(uint64_t key, uint64_t hash, int64_t value) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    size_t at = hash >> shift_;
    for (; slots_[at].key != kEmpty; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].key == key) return slots_[at].value;
    ++used_;
    slots_[at] = {key, value};
    return slots_[at].value;
  }

  // Calls use(key, value) for every pair that was not dropped, in share `k` of `n` of the table.
  template <class Use>
  void for_each(int k, int n, Use use) const {
    const size_t end = slots_.size() * (k + 1) / n;
    for (size_t at = slots_.size() * k / n; at < end; ++at)
      if (slots_[at].key != kEmpty && slots_[at].value != kDropped)
        use(slots_[at].key, slots_[at].value);
  }

  // An entry that may be dropped; see `fold`.
  class Entry {
   public:
    int64_t value() const { return slot_->value; }
    void drop() const { slot_->value = kDropped; }
    uint64_t hash;

   private:
    friend class PairTable;
    PairTable::Slot* slot_;
  };

  // The entries that are thread k's of n.
  template <class Use>
  void for_each_entry(int k, int n, Use use) {
    Entry entry;
    const size_t end = slots_.size() * (k + 1) / n;
    for (size_t at = slots_.size() * k / n; at < end; ++at) {
      if (slots_[at].key == kEmpty) continue;
      entry.slot_ = &slots_[at];
      entry.hash = hash_pair(slots_[at].key);
      use(entry);
    }
  }
  int64_t* find(const Entry& entry) { return find(entry.slot_->key); }

 private:
  static constexpr int kFirstBits = 10;
  static constexpr uint64_t kEmpty = ~0ull;  // symbols are not negative, so no pair has this key
  static constexpr int64_t kDropped = INT64_MIN;
  struct Slot {
    uint64_t key = kEmpty;
    int64_t value = 0;
  };

  void grow() {
    LargeVector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    --shift_;
    for (const Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      size_t at = hash_pair(slot.key) >> shift_;
      while (slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  LargeVector<Slot> slots_;
  int shift_ = 64 - kFirstBits;
  size_t used_ = 0;
};

}  // namespace rareword
