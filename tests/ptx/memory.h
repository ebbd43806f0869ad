#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nanscope::ptx {

/// The memory of a GPU that watches: what was given, what was written, and by which warp of the running launch.
class Memory {
 public:
  /// Of a byte.
  enum class State : std::uint8_t { forbidden, unwritten, written };

  /// Memory of its own, all `state`.
  std::byte* allocate(std::size_t bytes, State state);
  void free(const std::byte* begin);
  /// Whether all of it lies in one allocation.
  bool holds(const void* begin, std::size_t bytes) const;
  void mark(const void* begin, std::size_t bytes, State state);

  /// What was made so far does not race with what comes next.
  void begin_launch();
  /// The number by which resume_warp() knows it.
  std::uint32_t begin_warp() { return warp_ = ++warps_; }
  void resume_warp(std::uint32_t warp) { warp_ = warp; }
  /// An access of the running warp, aligned or not; empty, or what is wrong with it.
  std::string load(std::uint64_t address, void* to, std::size_t bytes);
  std::string store(std::uint64_t address, const void* from, std::size_t bytes);
  /// For the host, which may copy gaps that nobody wrote: they read as a pattern.
  void read(const void* begin, std::span<std::byte> to);
  /// What nobody wrote is as unwritten behind a copy. Both lie in memory that holds() them.
  void copy(void* to, const void* from, std::size_t bytes);

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    std::vector<State> states;
    std::vector<std::uint32_t> writers;  ///< serial numbers of warps
    std::vector<std::uint32_t> readers;
  };
  Block* find(std::uint64_t address, std::size_t bytes);
  /// Whether the running warp, or several, were seen to load these bytes in this launch: a store since would have been
  /// an error, so that nothing is left to check.
  bool has_read(const Block& block, std::size_t at, std::size_t bytes) const;

  std::map<std::uint64_t, Block> blocks_;  ///< by where they begin
  Block* last_ = nullptr;
  std::uint64_t last_begin_ = 0;
  std::uint32_t launch_ = 1;  ///< serial number of the launch's first warp
  std::uint32_t warp_ = 0;    ///< that runs
  std::uint32_t warps_ = 0;   ///< so far
};

/// The memory that the warps of a block share. What warps do between two barriers is in no order: there none reads or
/// writes what another writes.
class SharedMemory {
 public:
  explicit SharedMemory(std::uint32_t bytes) : bytes_(bytes) {}

  /// Nothing of it is written.
  void begin_block();
  /// There is none, as a kernel has that declares none.
  void end_block();
  /// All warps are at a barrier.
  void pass_barrier() { memory_.begin_launch(); }
  /// What a warp does until the next barrier.
  void begin_warp() { memory_.begin_warp(); }
  /// Empty, or what is wrong.
  std::string load(std::uint64_t address, void* to, std::size_t bytes);
  std::string store(std::uint64_t address, const void* from, std::size_t bytes);
  /// As if nobody had written it, of what store() took.
  void forget(std::uint64_t address, std::size_t bytes);

 private:
  std::uint32_t bytes_;
  Memory memory_;
  std::byte* begin_ = nullptr;
};

/// Of a lane, on its way to shared memory.
struct AsyncCopy {
  int lane = 0;
  std::uint32_t group = 0;
  std::uint64_t to = 0;
  std::array<std::byte, 16> data;
};

/// What the lanes of a warp have for themselves: local memory and parameters, a run of bytes each.
struct WarpMemory {
  std::uint32_t local_bytes = 0;
  std::uint32_t param_bytes = 0;
  std::vector<std::byte> local;
  std::vector<std::byte> param;
  std::vector<AsyncCopy> copies;           ///< that were not waited for
  std::array<std::uint32_t, 32> groups{};  ///< of copies that each lane has closed
  std::uint32_t carries = 0;               ///< of the last addition of each lane that keeps it

  WarpMemory(std::uint32_t local_size, std::uint32_t param_size);
  /// Local memory begins as a pattern: compilers copy arrays whole, parts that nobody wrote or reads included.
  void begin_warp();
  std::string load(std::uint64_t address, int lane, void* to, std::size_t bytes) const;
  std::string store(std::uint64_t address, int lane, const void* from, std::size_t bytes);
};

}  // namespace nanscope::ptx
