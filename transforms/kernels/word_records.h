// Words in the order of their first appearance, each with a few bytes that go with it.
//
// A record holds the word and its bytes next to each other, so that using both costs one visit to
// memory beside that of the hash table's slot.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tables.h"

namespace rareword {

class WordRecords {
 public:
  struct Record {
    uint64_t word_size, value_size;

    std::string_view word() const { return {reinterpret_cast<const char*>(this + 1), word_size}; }
    char* value_begin() { return reinterpret_cast<char*>(this + 1) + word_size; }
    std::string_view value() const {
      return {reinterpret_cast<const char*>(this + 1) + word_size, value_size};
    }
  };

  WordRecords() : slots_(size_t{1} << kFirstBits) {}

  int64_t size() const { return size_; }
  size_t memory() const { return slots_.size() * sizeof(Slot) + records_.capacity(); }

  // Fetch the memory that `find` will read: first the slot, then, once it is there, the record.
  void fetch_slot(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> shift_]); }
  void fetch_record(uint64_t hash) const {
    __builtin_prefetch(records_.data() + slots_[hash >> shift_].begin);
  }

  // The record of a word or null; valid until the next `add`.
  Record* find(std::string_view word, uint64_t hash) {
    for (size_t at = hash >> shift_; slots_[at].used; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].hash == hash && same(record(slots_[at].begin)->word(), word))
        return record(slots_[at].begin);
    return nullptr;
  }

  // Enters a word that is not there yet.
  Record* add(std::string_view word, uint64_t hash, std::string_view value) {
    if (static_cast<size_t>(size_ + 1) * 2 > slots_.size()) grow();
    const size_t begin = records_.size();
    const size_t bytes = sizeof(Record) + word.size() + value.size();
    records_.resize(begin + (bytes + 7) / 8 * 8);
    Record* const added = record(begin);
    added->word_size = word.size();
    added->value_size = value.size();
    memcpy(added + 1, word.data(), word.size());
    memcpy(added->value_begin(), value.data(), value.size());
    ++size_;
    put({hash, begin, true});
    return added;
  }

  // Calls use(record) for every word, in order.
  template <class Use>
  void for_each(Use use) {
    for (size_t begin = 0; begin < records_.size();) {
      Record* const here = record(begin);
      const size_t bytes = sizeof(Record) + here->word_size + here->value_size;
      use(*here);
      begin += (bytes + 7) / 8 * 8;
    }
  }

  void clear() { *this = WordRecords(); }

 private:
  static constexpr int kFirstBits = 12;
  struct Slot {
    uint64_t hash = 0;
    uint64_t begin = 0;
    bool used = false;
  };

  // Most words are short, and two loads beat a call of memcmp.
  static bool same(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    if (a.size() > 8) return memcmp(a.data(), b.data(), a.size()) == 0;
    return short_word(a.data(), a.size()) == short_word(b.data(), b.size());
  }

  Record* record(size_t begin) { return reinterpret_cast<Record*>(records_.data() + begin); }

  void put(const Slot& slot) {
    size_t at = slot.hash >> shift_;
    while (slots_[at].used) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    --shift_;
    for (const Slot& slot : old)
      if (slot.used) put(slot);
  }

  std::vector<Slot> slots_;
  int shift_ = 64 - kFirstBits;
  std::vector<char> records_;
  int64_t size_ = 0;
};

}  // namespace rareword
