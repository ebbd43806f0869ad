// Every op for one instruction set. Compiled once for each, with NANSCOPE_ISA naming it. Everything
// in here is forced inline or lives in the instruction set's namespace: a function shared with an
// object built for a newer CPU would run its instructions on an older one.
#include "kernels/all_ops.h"  // made by CMake from ops.def: the header of every op
#include "kernels/op_table.h"

namespace nanscope::kernels::NANSCOPE_ISA {
namespace {

template <class Op>
std::int64_t warps(const void* args) {
  return Op::warps(*static_cast<const typename Op::Args*>(args));
}

template <class Op>
std::int64_t work_per_warp(const void* args) {
  return Op::work_per_warp(*static_cast<const typename Op::Args*>(args));
}

template <class Op>
void run_range(const void* args, std::int64_t begin, std::int64_t end) {
  const auto& typed = *static_cast<const typename Op::Args*>(args);
  for (std::int64_t warp = begin; warp < end; ++warp) Op::run(typed, warp);
}

}  // namespace

const OpTable op_table = {{
#define NANSCOPE_OP(Name, stem) {warps<Name>, work_per_warp<Name>, run_range<Name>},
#include "kernels/ops.def"
#undef NANSCOPE_OP
}};

}  // namespace nanscope::kernels::NANSCOPE_ISA
