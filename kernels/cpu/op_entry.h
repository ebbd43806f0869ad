#pragma once
/// Makes one op's entry in the table of its instruction set. Included by the sources that CMake writes,
/// one an op: everything in them is forced inline or lives in the instruction set's namespace, because a
/// function shared with an object built for a newer CPU would run its instructions on an older one.
#include "kernels/op_entry.h"

#ifndef NANSCOPE_ISA
#error "lane code is compiled once per instruction set: define NANSCOPE_ISA"
#endif

namespace nanscope::kernels::NANSCOPE_ISA {
namespace {

template <class Op>
struct EntryOf {
  static const typename Op::Args& typed(const void* args) { return *static_cast<const typename Op::Args*>(args); }
  static std::int64_t warps(const void* args) { return Op::warps(typed(args)); }
  static std::int64_t work_per_warp(const void* args) { return Op::work_per_warp(typed(args)); }
  static void run_range(const void* args, std::int64_t begin, std::int64_t end) {
    for (std::int64_t warp = begin; warp < end; ++warp) Op::run(typed(args), warp);
  }
  static constexpr OpEntry kEntry = {warps, work_per_warp, run_range};
};

}  // namespace
}  // namespace nanscope::kernels::NANSCOPE_ISA
