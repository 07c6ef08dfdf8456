// What words were found to become, shared by all threads of a segmenter.
//
// Entries are only ever added, without a lock: an entry is written first and then made visible by
// its slot. A full cache takes nothing more; its owner empties it when no thread uses it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "tables.h"

namespace rareword {

// Byte string -> an array of T. At most about `bytes` large; memory is taken as it fills.
template <class T>
class WordCache {
 public:
  struct Found {
    const T* values;
    size_t size;
  };
  // So many values may be read behind a Found's start, whatever its size.
  static constexpr size_t kReadable = 16 / sizeof(T);

  explicit WordCache(int64_t bytes)
      : capacity_(std::min(static_cast<uint64_t>(std::max<int64_t>(bytes, 0)), kMaxBytes)),
        bits_(slot_bits(capacity_)),
        slots_(static_cast<uint64_t*>(calloc(uint64_t{1} << bits_, sizeof(uint64_t)))),
        entries_(static_cast<char*>(malloc(capacity_ + 64))) {
    if (!slots_ || !entries_) throw std::bad_alloc();
  }

  void fetch_slot(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> (64 - bits_)]); }
  void fetch_entry(uint64_t hash) const {
    const uint64_t slot = slots_[hash >> (64 - bits_)];
    __builtin_prefetch(entries_.get() + (slot & 0xFFFFFFFF) * 8);
  }

  // What was entered for the word; `values` is null if nothing was.
  Found find(std::string_view word, uint64_t hash) const {
    for (uint64_t k = 0; k <= mask(); ++k) {
      const uint64_t slot = __atomic_load_n(&slots_[slot_of(hash, k)], __ATOMIC_ACQUIRE);
      if (slot == 0) break;
      if (slot >> 32 != (hash & 0xFFFFFFFF)) continue;
      const Head* const head = head_at(slot);
      const char* const text = reinterpret_cast<const char*>(head + 1);
      if (!equal({text, head->word_size}, word)) continue;
      return {reinterpret_cast<const T*>(text + padded(head->word_size)), head->size};
    }
    return {nullptr, 0};
  }

  // A thread's way into the cache: it takes room for many words at once, so that threads do not
  // fight for the next free place.
  class Writer {
   public:
    explicit Writer(WordCache& cache) : cache_(cache) {}
    Writer(const Writer&) = delete;
    ~Writer() { cache_.words_ += words_; }

    // Enters a word. Nothing happens if the cache is full.
    void add(std::string_view word, uint64_t hash, const T* values, size_t size) {
      const uint64_t bytes = sizeof(Head) + padded(word.size()) + padded(size * sizeof(T));
      if (cache_.full() || word.size() > UINT32_MAX || size > UINT32_MAX) return;
      if (begin_ + bytes > end_ && !cache_.reserve(bytes, words_, begin_, end_)) return;
      cache_.enter(begin_, word, hash, values, size);
      begin_ += bytes;
      ++words_;
    }

   private:
    WordCache& cache_;
    uint64_t begin_ = 0, end_ = 0, words_ = 0;
  };

  bool full() const { return full_; }

  // Forgets everything. No other thread may use the cache meanwhile.
  void clear() {
    memset(slots_.get(), 0, sizeof(uint64_t) << bits_);
    used_ = words_ = 0;
    full_ = false;
  }

 private:
  struct Head {
    uint32_t word_size, size;
  };
  struct Free {
    void operator()(void* p) const { free(p); }
  };

  // Room for `bytes` or more: [begin, end). Takes note of the words entered since the last time.
  bool reserve(uint64_t bytes, uint64_t& words, uint64_t& begin, uint64_t& end) {
    const uint64_t room = std::max(bytes, std::min(kRoom, capacity_ / 64 & ~uint64_t{7}));
    begin = used_.fetch_add(room);
    end = begin + room;
    words_ += words;
    words = 0;
    if (end <= capacity_ && words_ * 2 <= mask()) return true;
    full_ = true;
    begin = end = 0;
    return false;
  }

  void enter(uint64_t begin, std::string_view word, uint64_t hash, const T* values, size_t size) {
    auto* const head = reinterpret_cast<Head*>(entries_.get() + begin);
    *head = {static_cast<uint32_t>(word.size()), static_cast<uint32_t>(size)};
    char* const text = reinterpret_cast<char*>(head + 1);
    memcpy(text, word.data(), word.size());
    memcpy(text + padded(word.size()), values, size * sizeof(T));
    const uint64_t slot = (hash & 0xFFFFFFFF) << 32 | (begin / 8 + 1);
    for (uint64_t k = 0; k <= mask(); ++k) {
      uint64_t empty = 0;  // another thread may enter the same word: then it stands twice
      if (__atomic_compare_exchange_n(&slots_[slot_of(hash, k)], &empty, slot, false,
                                      __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return;
    }
  }

  uint64_t slot_of(uint64_t hash, uint64_t k) const {
    return ((hash >> (64 - bits_)) + k) & mask();
  }

  static constexpr uint64_t kRoom = 1 << 16;
  static constexpr uint64_t kMaxBytes = uint64_t{UINT32_MAX} * 8;  // entries have 32-bit numbers

  static uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }
  // A slot for every 64 bytes: entries are about as long.
  static int slot_bits(uint64_t bytes) {
    int bits = 4;
    while (bits < 32 && uint64_t{64} << (bits + 1) <= bytes) ++bits;
    return bits;
  }
  uint64_t mask() const { return (uint64_t{1} << bits_) - 1; }
  const Head* head_at(uint64_t slot) const {
    return reinterpret_cast<const Head*>(entries_.get() + ((slot & 0xFFFFFFFF) - 1) * 8);
  }

  uint64_t capacity_;
  int bits_;
  std::unique_ptr<uint64_t[], Free> slots_;  // low half of the hash, and entry / 8 + 1
  std::unique_ptr<char, Free> entries_;
  // Apart from what every look-up reads.
  alignas(kCacheLine) std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> words_{0};
  std::atomic<bool> full_{false};
};

}  // namespace rareword
