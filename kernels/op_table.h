#pragma once
#include <cstdint>

#include "core/result.h"
#include "kernels/op_entry.h"
#include "kernels/op_ids.h"

namespace nanscope::kernels {

#define NANSCOPE_OP(Name, stem, gradient) +1  // NOLINT(bugprone-macro-parentheses)
inline constexpr int kOpCount = 0
#include "kernels/ops.def"
    ;
#undef NANSCOPE_OP

/// All ops of one build of the lane code, indexed by OpId.
struct OpTable {
  const OpEntry* ops[kOpCount];
};

namespace baseline {
extern const OpTable op_table;
}
namespace avx2 {
extern const OpTable op_table;
}
namespace avx512 {
extern const OpTable op_table;
}

/// The op's file name, as in ops.def and in messages.
const char* op_name(OpId id);
/// The op's own check of its arguments; success for an op without one. Shared by all devices.
Status check_args(OpId id, const void* args);

}  // namespace nanscope::kernels
