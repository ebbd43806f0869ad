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
};

/// Runs kernels, a warp after the other and the lanes of a warp together. Lanes that part go on where the lowest
/// instruction is and meet again; at an instruction of the whole warp they wait for all that it names.
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
  Status run_warp(const Function& kernel, std::uint32_t block, std::uint32_t warp, const Launch& launch);
  /// Of some lanes of the warp, until each has returned or something is wrong.
  void run_function(std::size_t function, std::uint32_t lanes);
  void call(const Function& from, const Instruction& of, std::uint32_t lanes);
  void copy_parameters(std::span<const Call::Copy> copies, std::uint32_t lanes);

  const Program* program_;
  Memory memory_;
  WarpMemory own_;
  std::vector<std::vector<std::byte>> registers_;  ///< of each function: there is no recursion
  Counts counts_;
  std::string problem_;
  std::string place_;  ///< of the problem
};

}  // namespace nanscope::ptx
