#include "instrument/files/page_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace nanscope {
namespace {

constexpr std::size_t kBlock = 1024;
constexpr std::size_t kBlocks = 1024;

/// One guarded mapping. Written under the lock, read by a signal handler that may not wait for it: `version` is odd
/// while the others change, and another one afterwards.
struct Slot {
  std::atomic<std::uint64_t> version{0};
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<std::atomic<bool>*> lost{nullptr};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

/// Of the process, as the handler of a signal is. Never freed: a thread may read until the process is gone.
struct Slots {
  std::array<std::atomic<std::array<Slot, kBlock>*>, kBlocks> blocks{};
  std::mutex mutex;
  std::vector<std::size_t> free;
  std::size_t made = 0;
  std::uintptr_t page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction before = {};
  bool handled = false;

  Slot& operator[](std::size_t index) { return (*blocks[index / kBlock].load())[index % kBlock]; }
};

Slots& slots() {
  static auto* const kSlots = new Slots();
  return *kSlots;
}

void set(Slot& slot, std::uintptr_t begin, std::uintptr_t end, std::atomic<bool>* lost) {
  slot.version.fetch_add(1);
  slot.begin.store(begin);
  slot.end.store(end);
  slot.lost.store(lost);
  slot.version.fetch_add(1);
}

/// Puts zeros in place of what is gone from `address` on, where that is of this slot.
bool replace(const Slot& slot, std::uintptr_t address, std::uintptr_t page_bytes) {
  const std::uint64_t version = slot.version.load();
  const std::uintptr_t begin = slot.begin.load();
  const std::uintptr_t end = slot.end.load();
  std::atomic<bool>* const lost = slot.lost.load();
  // A slot that changes meanwhile is another mapping's: this thread's own stays while it reads.
  if (version % 2 != 0 || slot.version.load() != version || address < begin || address >= end) return false;
  const std::uintptr_t page = address / page_bytes * page_bytes;
  void* const made = ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,  // NOLINT
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return false;
  lost->store(true);
  return true;
}

void pass_on(int number, siginfo_t* info, void* context) {
  const struct sigaction& before = slots().before;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    // Held back until the handler is done; then the process ends as it would have.
    std::signal(number, SIG_DFL);
    static_cast<void>(std::raise(number));
  }
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int kept = errno;
  Slots& all = slots();
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  bool replaced = false;
  for (std::size_t b = 0; b < kBlocks && !replaced && info->si_code > 0; ++b) {
    std::array<Slot, kBlock>* const block = all.blocks[b].load();
    if (block == nullptr) break;
    for (std::size_t i = 0; i < kBlock && !replaced; ++i) replaced = replace((*block)[i], address, all.page);
  }
  if (!replaced) pass_on(number, info, context);
  errno = kept;
}

void handle_bus_errors(Slots& all) {
  if (all.handled) return;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  all.handled = ::sigaction(SIGBUS, &action, &all.before) == 0;
}

}  // namespace

PageGuard::PageGuard(std::span<const std::byte> pages, std::atomic<bool>& lost) : slot_(kBlock * kBlocks) {
  Slots& all = slots();
  const std::lock_guard lock(all.mutex);
  handle_bus_errors(all);
  if (all.free.empty()) {
    const std::size_t block = all.made / kBlock;
    if (block == kBlocks) return;  // more mappings than the system allows
    all.free.reserve(all.made + kBlock);
    all.blocks[block].store(std::make_unique<std::array<Slot, kBlock>>().release());
    for (std::size_t i = kBlock; i-- > 0;) all.free.push_back(block * kBlock + i);
    all.made += kBlock;
  }
  slot_ = all.free.back();
  all.free.pop_back();
  const auto begin = reinterpret_cast<std::uintptr_t>(pages.data());
  set(all[slot_], begin, begin + (pages.size() + all.page - 1) / all.page * all.page, &lost);
}

PageGuard::~PageGuard() {
  if (slot_ == kBlock * kBlocks) return;
  Slots& all = slots();
  const std::lock_guard lock(all.mutex);
  set(all[slot_], 0, 0, nullptr);
  all.free.push_back(slot_);
}

}  // namespace nanscope
