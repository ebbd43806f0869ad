#include "cli/reserve_stack.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstddef>

namespace nanscope::cli {

namespace {

constexpr std::size_t kStack = 1 << 20;  ///< bytes: measured are at most 512 KiB, in an unoptimised build
constexpr std::size_t kPage = 4096;

[[gnu::noinline]] void touch() {
  [[maybe_unused]] volatile std::byte stack[kStack];
  // From the top downwards, as the stack grows.
  for (std::size_t at = kStack; at >= kPage; at -= kPage) stack[at - 1] = std::byte{0};
}

bool fits() {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < 2 * kStack) return false;
  void* memory = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, kStack);
  return true;
}

}  // namespace

void reserve_stack() {
  if (fits()) touch();
}

}  // namespace nanscope::cli
