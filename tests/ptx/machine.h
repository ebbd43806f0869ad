#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "tests/ptx/lanes.h"

namespace nanscope::ptx {

/// What was executed, of a launch or of several.
struct Counts {
  std::uint64_t warp_instructions = 0;
  std::uint64_t lane_instructions = 0;  ///< a warp's, times its active lanes
  std::uint64_t elements = 0;           ///< of global memory, loaded and stored
  std::uint64_t shared_elements = 0;    ///< of a block's shared memory
  std::uint64_t fmas = 0;               ///< of lanes, in f32
  std::uint64_t mmas = 0;               ///< of warps
};

class Groups;

/// Runs kernels, a warp after the other and the lanes of a warp together. Lanes that part go on where the lowest
/// instruction is and meet again; at an instruction of the whole warp they wait for all that it names. Where a kernel
/// has barriers, the warps of a block take turns from one to the next.
class Machine {
 public:
  explicit Machine(const Program& program);

  Memory& memory() { return memory_; }

  struct Launch {
    std::uint32_t blocks = 1;
    std::uint32_t threads = kLanes;  ///< of a block; whole warps
  };
  /// `arguments`: the bytes of each parameter. Errors name the kernel, the line of the PTX, the instruction, the block
  /// and warp, and what is wrong.
  Status launch(const Function& kernel, const Launch& launch, std::span<const std::span<const std::byte>> arguments);

  const Counts& counts() const { return counts_; }
  void forget_counts() { counts_ = {}; }

 private:
  struct WaitingWarp;

  /// Of a kernel without barriers.
  Status run_warp(const Function& kernel, std::uint32_t block, std::uint32_t warp, const Launch& launch);
  /// Of a kernel with barriers.
  Status run_block(const Function& kernel, std::uint32_t block, const Launch& launch, std::vector<WaitingWarp>& warps);
  /// Until its next barrier, or its end.
  Status run_turn(const Function& kernel, std::uint32_t block, std::uint32_t warp, WaitingWarp& state);
  Status told(const Function& kernel, std::uint32_t block, std::uint32_t warp) const;
  std::size_t index_of(const Function& function) const;
  /// The groups' lanes, until each has returned, all are at a barrier, or something is wrong.
  void run_function(std::size_t function, Groups& groups);
  void call(const Function& from, const Instruction& of, std::uint32_t lanes);
  /// The registers that say which thread of which block it is.
  void copy_place(const Function& from, std::size_t to);
  void copy_parameters(std::span<const Call::Copy> copies, std::uint32_t lanes);

  const Program* program_;
  Memory memory_;
  SharedMemory shared_;
  WarpMemory own_;
  std::vector<std::vector<std::byte>> registers_;  ///< of each function: there is no recursion
  Counts counts_;
  std::string problem_;
  std::string place_;  ///< of the problem
};

}  // namespace nanscope::ptx
