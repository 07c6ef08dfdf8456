// Memory for arrays that are visited at random.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace rareword {

// Asks for pages of 2 MiB where an array is large: with pages of 4 KiB the processor spends more
// time on finding a page than on the visit itself.
template <class T>
struct LargePages {
  using value_type = T;

  LargePages() = default;
  template <class U>
  LargePages(const LargePages<U>&) {}

  T* allocate(size_t n) {
    const size_t bytes = (n * sizeof(T) + kPage - 1) / kPage * kPage;
    if (n * sizeof(T) < kPage) return std::allocator<T>().allocate(n);
    void* const memory = std::aligned_alloc(kPage, bytes);
    if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);  // advice: without it all works the same
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t n) {
    if (n * sizeof(T) < kPage)
      std::allocator<T>().deallocate(memory, n);
    else
      std::free(memory);
  }

  template <class U>
  bool operator==(const LargePages<U>&) const { return true; }
  template <class U>
  bool operator!=(const LargePages<U>&) const { return false; }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
};

template <class T>
using LargeVector = std::vector<T, LargePages<T>>;

}  // namespace rareword
