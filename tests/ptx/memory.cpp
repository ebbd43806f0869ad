#include "tests/ptx/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/ptx/program.h"

namespace nanscope::ptx {
namespace {

/// Of a byte that several warps have read.
constexpr std::uint32_t kSeveral = std::uint32_t{1} << 31;

/// What memory seems to hold that nobody wrote.
constexpr std::byte kPattern{0xa7};

std::string misplaced(std::string_view what, std::uint64_t address, std::size_t bytes) {
  return fmt::format("{} of {} bytes at {:#x}", what, bytes, address);
}

/// What one lane moves: sizes that the compiler knows need no call.
void copy_access(void* to, const void* from, std::size_t bytes) {
  switch (bytes) {
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    case 16:
      std::memcpy(to, from, 16);
      break;
    default:
      std::memcpy(to, from, bytes);
  }
}

}  // namespace

std::byte* Memory::allocate(std::size_t bytes, State state) {
  Block block;
  // A byte behind the last keeps neighbours from touching.
  block.memory = std::make_unique<std::byte[]>(bytes + 1);
  block.bytes = bytes;
  block.states.assign(bytes, state);
  block.writers.assign(bytes, 0);
  block.readers.assign(bytes, 0);
  std::byte* begin = block.memory.get();
  // New memory holds NaN in most formats.
  if (state != State::written) std::memset(begin, 0xff, bytes);
  blocks_.emplace(std::bit_cast<std::uint64_t>(begin), std::move(block));
  return begin;
}

void Memory::free(const std::byte* begin) {
  last_ = nullptr;
  blocks_.erase(std::bit_cast<std::uint64_t>(begin));
}

Memory::Block* Memory::find(std::uint64_t address, std::size_t bytes) {
  if (last_ != nullptr && address >= last_begin_ && address + bytes <= last_begin_ + last_->bytes) return last_;
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  auto& [begin, block] = *std::prev(after);
  if (address + bytes > begin + block.bytes) return nullptr;
  last_ = &block;
  last_begin_ = begin;
  return &block;
}

bool Memory::holds(const void* begin, std::size_t bytes) const {
  const auto address = std::bit_cast<std::uint64_t>(begin);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return false;
  const auto& [first, block] = *std::prev(after);
  return address + bytes <= first + block.bytes;
}

void Memory::mark(const void* begin, std::size_t bytes, State state) {
  const auto address = std::bit_cast<std::uint64_t>(begin);
  Block* block = find(address, bytes);
  if (block == nullptr) return;
  const auto at = static_cast<std::ptrdiff_t>(address - last_begin_);
  std::fill_n(block->states.begin() + at, bytes, state);
}

void Memory::begin_launch() { launch_ = warps_ + 1; }

bool Memory::has_read(const Block& block, std::size_t at, std::size_t bytes) const {
  bool all = true;
  for (std::size_t i = at; i < at + bytes; ++i) {
    all = all && (block.readers[i] == warp_ || block.readers[i] >= (kSeveral | launch_));
  }
  return all;
}

std::string Memory::load(std::uint64_t address, void* to, std::size_t bytes) {
  Block* block = find(address, bytes);
  if (block == nullptr) return misplaced("a load outside of any memory,", address, bytes);
  const std::size_t at = address - last_begin_;
  if (has_read(*block, at, bytes)) {
    copy_access(to, block->memory.get() + at, bytes);
    return {};
  }
  for (std::size_t i = at; i < at + bytes; ++i) {
    if (block->states[i] != State::written) {
      return misplaced(block->states[i] == State::forbidden ? "a load outside of what the kernel was given,"
                                                            : "a load of memory that nobody wrote,",
                       address, bytes);
    }
    const std::uint32_t writer = block->writers[i];
    if (writer >= launch_ && writer != warp_) {
      return misplaced("a load of what another warp of the launch writes,", address, bytes);
    }
    std::uint32_t& reader = block->readers[i];
    const std::uint32_t known = reader & ~kSeveral;
    if (known < launch_) {
      reader = warp_;
    } else if (known != warp_) {
      reader |= kSeveral;
    }
  }
  copy_access(to, block->memory.get() + at, bytes);
  return {};
}

std::string Memory::store(std::uint64_t address, const void* from, std::size_t bytes) {
  Block* block = find(address, bytes);
  if (block == nullptr) return misplaced("a store outside of any memory,", address, bytes);
  const std::size_t at = address - last_begin_;
  for (std::size_t i = at; i < at + bytes; ++i) {
    if (block->states[i] == State::forbidden) {
      return misplaced("a store outside of what the kernel was given,", address, bytes);
    }
    const std::uint32_t writer = block->writers[i];
    if (writer >= launch_ && writer != warp_) {
      return misplaced("a store to what another warp of the launch writes,", address, bytes);
    }
    const std::uint32_t reader = block->readers[i];
    const std::uint32_t known = reader & ~kSeveral;
    if (known >= launch_ && (known != warp_ || (reader & kSeveral) != 0)) {
      return misplaced("a store to what another warp of the launch reads,", address, bytes);
    }
    block->writers[i] = warp_;
    block->states[i] = State::written;
  }
  std::memcpy(block->memory.get() + at, from, bytes);
  return {};
}

void Memory::read(const void* begin, std::span<std::byte> to) {
  const Block* block = find(std::bit_cast<std::uint64_t>(begin), to.size());
  const std::size_t at = std::bit_cast<std::uint64_t>(begin) - last_begin_;
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = block->states[at + i] == State::unwritten ? kPattern : block->memory[at + i];
  }
}

void Memory::copy(void* to, const void* from, std::size_t bytes) {
  const Block* source = find(std::bit_cast<std::uint64_t>(from), bytes);
  const auto states =
      source->states.begin() + static_cast<std::ptrdiff_t>(std::bit_cast<std::uint64_t>(from) - last_begin_);
  const std::vector<State> copied(states, states + static_cast<std::ptrdiff_t>(bytes));
  Block* target = find(std::bit_cast<std::uint64_t>(to), bytes);
  std::copy(copied.begin(), copied.end(),
            target->states.begin() + static_cast<std::ptrdiff_t>(std::bit_cast<std::uint64_t>(to) - last_begin_));
  std::memmove(to, from, bytes);
}

void SharedMemory::end_block() {
  if (begin_ != nullptr) memory_.free(begin_);
  begin_ = nullptr;
}

void SharedMemory::begin_block() {
  end_block();
  begin_ = memory_.allocate(bytes_, Memory::State::unwritten);
  memory_.begin_launch();
}

std::string SharedMemory::load(std::uint64_t address, void* to, std::size_t bytes) {
  const std::string wrong = memory_.load(std::bit_cast<std::uint64_t>(begin_) + (address & ~kSharedWindow), to, bytes);
  return wrong.empty() ? wrong : "in shared memory, " + wrong;
}

std::string SharedMemory::store(std::uint64_t address, const void* from, std::size_t bytes) {
  const std::string wrong =
      memory_.store(std::bit_cast<std::uint64_t>(begin_) + (address & ~kSharedWindow), from, bytes);
  return wrong.empty() ? wrong : "in shared memory, " + wrong;
}

void SharedMemory::forget(std::uint64_t address, std::size_t bytes) {
  memory_.mark(begin_ + (address & ~kSharedWindow), bytes, Memory::State::unwritten);
}

WarpMemory::WarpMemory(std::uint32_t local_size, std::uint32_t param_size)
    : local_bytes(local_size),
      param_bytes(param_size),
      local(std::size_t{local_size} * kLanes),
      param(std::size_t{param_size} * kLanes) {}

void WarpMemory::begin_warp() {
  std::fill(local.begin(), local.end(), kPattern);
  copies.clear();
}

std::string WarpMemory::load(std::uint64_t address, int lane, void* to, std::size_t bytes) const {
  const bool is_param = (address & kParamWindow) != 0;
  const std::uint64_t at = address & ~(kParamWindow | kLocalWindow);
  const std::uint32_t size = is_param ? param_bytes : local_bytes;
  if (at + bytes > size) return misplaced("a load outside of a lane's own memory,", at, bytes);
  const std::size_t from = static_cast<std::size_t>(lane) * size + at;
  std::memcpy(to, (is_param ? param : local).data() + from, bytes);
  return {};
}

std::string WarpMemory::store(std::uint64_t address, int lane, const void* from, std::size_t bytes) {
  const bool is_param = (address & kParamWindow) != 0;
  const std::uint64_t at = address & ~(kParamWindow | kLocalWindow);
  const std::uint32_t size = is_param ? param_bytes : local_bytes;
  if (at + bytes > size) return misplaced("a store outside of a lane's own memory,", at, bytes);
  const std::size_t to = static_cast<std::size_t>(lane) * size + at;
  std::memcpy((is_param ? param : local).data() + to, from, bytes);
  return {};
}

}  // namespace nanscope::ptx
