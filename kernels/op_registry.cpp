#include "kernels/all_ops.h"  // made by CMake from ops.def: the header of every op
#include "kernels/op_table.h"

namespace nanscope::kernels {
namespace {

/// Ops without a check() of their own take whatever they are given.
template <class Args>
Status check_one(const void* args) {
  if constexpr (requires(const Args& typed) { check(typed); }) {
    return check(*static_cast<const Args*>(args));
  } else {
    return {};
  }
}

}  // namespace

const char* op_name(OpId id) {
  static constexpr const char* kNames[] = {
#define NANSCOPE_OP(Name, stem, gradient) #stem,
#include "kernels/ops.def"
#undef NANSCOPE_OP
  };
  return kNames[static_cast<int>(id)];
}

Status check_args(OpId id, const void* args) {
  static constexpr Status (*kChecks[])(const void*) = {
#define NANSCOPE_OP(Name, stem, gradient) check_one<Name##Args>,
#include "kernels/ops.def"
#undef NANSCOPE_OP
  };
  return kChecks[static_cast<int>(id)](args);
}

}  // namespace nanscope::kernels
