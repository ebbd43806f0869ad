// The kernel table of the fake GPU: each op is known by an address that nobody calls, and runs as the CPU's
// (NANSCOPE_FAKE_LANES: the fastest instruction set of this machine).
#include <array>

#include "kernels/all_ops.h"  // made by CMake from ops.def: the header of every op
#include "kernels/cuda/kernel_table.h"

namespace nanscope::kernels::cuda {
namespace {

/// Two kernels of each op, by whether it has one warp or more.
template <OpId id>
constexpr std::array<char, 2> kAddress = {};

template <class Args>
Kernel kernel() {
  constexpr OpId kId = OpOf<Args>::id;
  const OpEntry& entry = *NANSCOPE_FAKE_LANES::op_table.ops[static_cast<int>(kId)];
  const auto form = [](const void* args) {
    const bool more = args != nullptr && NANSCOPE_FAKE_LANES::op_table.ops[static_cast<int>(kId)]->warps(args) > 1;
    return KernelForm{&kAddress<kId>[more ? 1 : 0], "fake"};
  };
  return {form, sizeof(Args), entry.warps, entry.work_per_warp};
}

}  // namespace

const Kernels kernels = {{
#define NANSCOPE_OP(Name, stem, gradient) kernel<Name##Args>(),
#include "kernels/ops.def"
#undef NANSCOPE_OP
}};

}  // namespace nanscope::kernels::cuda
