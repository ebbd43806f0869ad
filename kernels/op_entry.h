#pragma once
#include <cstdint>

/// Apart from op_table.h, which knows all ops: an op's code is compiled anew where it changes itself.
namespace nanscope::kernels {

/// One op as one instruction set runs it. `args` points to the op's argument struct.
struct OpEntry {
  std::int64_t (*warps)(const void* args);
  std::int64_t (*work_per_warp)(const void* args);
  void (*run_range)(const void* args, std::int64_t begin, std::int64_t end);
};

}  // namespace nanscope::kernels
