#pragma once
#include <atomic>
#include <cstddef>
#include <span>

namespace nanscope {

/// Lets a mapped file be cut off by another process while it is read. The operating system answers a touch of a page
/// that is no longer there with SIGBUS; within guarded memory such a page, and all behind it, become zeros instead, and
/// `lost` is set: what was read must not be believed then. Any thread may read. Other causes of the signal go to
/// whoever handled it before.
class PageGuard {
 public:
  /// `pages` are a whole mapping of a file; both must outlive the guard.
  PageGuard(std::span<const std::byte> pages, std::atomic<bool>& lost);
  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;
  ~PageGuard();

 private:
  std::size_t slot_;
};

}  // namespace nanscope
