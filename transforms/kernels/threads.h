// Work spread over threads. Call with the GIL released. The first exception that a thread meets is
// thrown again in the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "tables.h"

namespace rareword {

// Calls work(thread) in each of `threads` threads.
template <class Work>
void in_threads(int threads, Work work) {
  if (threads < 1) return;
  std::vector<std::exception_ptr> failures(threads);
  const auto run = [&](int t) {
    try {
      work(t);
    } catch (...) {
      failures[t] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
  run(0);
  for (auto& thread : others) thread.join();
  for (auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// [0, size) in blocks, which threads take one after the other: what is slow in one place of the
// text then keeps one thread only. With one thread there is one block.
class Blocks {
 public:
  Blocks(int64_t size, int threads) : size_(size) {
    constexpr int64_t kBlocksPerThread = 64;
    threads_ = static_cast<int>(std::clamp<int64_t>(threads, 1, std::max<int64_t>(size, 1)));
    number_ = threads_ == 1 ? 1 : std::min(size, threads_ * kBlocksPerThread);
  }

  int threads() const { return threads_; }
  int64_t number() const { return number_; }
  int64_t begin(int64_t block) const {  // no product of large numbers
    return size_ / number_ * block + std::min(block, size_ % number_);
  }

  // Calls work(thread, block, begin, end) for each block.
  template <class Work>
  void run(Work work) const {
    std::atomic<int64_t> next{0};
    in_threads(threads_, [&](int t) {
      for (int64_t block; (block = next++) < number_;)
        work(t, block, begin(block), begin(block + 1));
    });
  }

 private:
  int64_t size_, number_;
  int threads_;
};

// Makes tables that threads filled by themselves one: an entry that an earlier table has too is
// dropped, after add(value there, its own value). Nothing is moved. add must be atomic, since
// several tables may have what one earlier table has.
template <class Table, class Add>
void fold(std::vector<Table>& tables, Add add) {
  const auto n = static_cast<int>(tables.size());
  if (n < 2) return;
  in_threads(n, [&](int t) {
    for (int k = 1; k < n; ++k) {
      auto entries = lookahead<typename Table::Entry>(
          [&](const auto& entry) { tables[0].fetch_slot(entry.hash); },
          [&](const auto& entry) { tables[0].fetch_entry(entry.hash); },
          [&](const auto& entry) {
            for (int j = 0; j < k; ++j)
              if (auto* const there = tables[j].find(entry)) {
                add(*there, entry.value());
                entry.drop();
                break;
              }
          });
      tables[k].for_each_entry(t, n, [&](const auto& entry) { entries.push(entry); });
      entries.finish();
    }
  });
}

inline void add_atomically(int64_t& sum, int64_t number) {
  __atomic_fetch_add(&sum, number, __ATOMIC_RELAXED);
}

}  // namespace rareword
