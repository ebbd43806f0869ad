#pragma once
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "instrument/files/read_budget.h"

namespace nanscope::fuzz {

/// Counts the bytes that live between its making and its end, those of all threads, by the allocator's own
/// hooks (sanitizer/allocator_interface.h), and aborts where they exceed `most`: what a reader may hold of a
/// file of so many bytes. What was allocated before does not count; what is freed no longer counts.
class AllocationLimit {
 public:
  explicit AllocationLimit(std::uint64_t most) {
    static const bool installed = __sanitizer_install_malloc_and_free_hooks(allocated, freed) != 0;
    if (!installed) std::abort();
    live_ = 0;
    most_ = static_cast<std::int64_t>(most);
    counting_ = true;
  }
  ~AllocationLimit() { counting_ = false; }
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;

 private:
  static void allocated(const volatile void* /*memory*/, std::size_t bytes) {
    if (!counting_) return;
    const std::int64_t live = live_ += static_cast<std::int64_t>(bytes);
    if (live <= most_) return;
    counting_ = false;
    std::fprintf(stderr, "%lld bytes live at once, expected at most %lld\n", static_cast<long long>(live),
                 static_cast<long long>(most_));
    std::abort();
  }
  static void freed(const volatile void* memory) {
    // Also of what was there before: then the count is too low, never too high.
    if (counting_ && memory != nullptr) {
      live_ -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
    }
  }

  static inline std::atomic<std::int64_t> live_ = 0;
  static inline std::int64_t most_ = 0;
  static inline std::atomic<bool> counting_ = false;
};

}  // namespace nanscope::fuzz
