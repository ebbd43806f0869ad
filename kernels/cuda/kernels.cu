// Every op for the GPU: one warp a task, as many warps as fit, each striding over the tasks.
#include <array>
#include <type_traits>
#include <typeinfo>

#include "kernels/all_ops.h"  // made by CMake from ops.def: the header of every op
#include "kernels/cuda/kernel_table.h"

namespace nanscope::kernels::cuda {
namespace {

static_assert(kThreadsPerBlock == kWarpsPerBlock * kLanes && kWarpsPerBlock == kBlockWarps);

/// Blocks that shall fit a multiprocessor at once, where a form says so: the fewer, the more registers ptxas may take.
template <class Form>
constexpr int blocks_at_once() {
  if constexpr (requires { Form::kBlocksAtOnce; }) return Form::kBlocksAtOnce;
  return 0;
}

template <class Form>
__global__ void __launch_bounds__(kThreadsPerBlock, blocks_at_once<Form>())
    run_op(const typename Form::Args args, std::int64_t warps) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kLanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarpsPerBlock;
  for (std::int64_t warp = first; warp < warps; warp += step) Form::run(args, warp);
}

template <class Form>
KernelForm form() {
  return {reinterpret_cast<const void*>(run_op<Form>), typeid(Form).name()};
}

template <class Args, class... Forms>
KernelForm form_at(FormList<Forms...> /*list*/, int index) {
  static_assert((std::is_same_v<Args, typename Forms::Args> && ...), "all forms take the op's arguments");
  return std::array{form<Forms>()...}.at(static_cast<std::size_t>(index));
}

/// The op itself, or what it names as its Forms.
template <class Op>
KernelForm form_of(const void* args) {
  if constexpr (requires { typename Op::Forms; }) {
    using Args = typename Op::Args;
    return form_at<Args>(typename Op::Forms{}, Op::form(*static_cast<const Args*>(args)));
  } else {
    return form<Op>();
  }
}

template <class Op>
Kernel kernel() {
  using Args = typename Op::Args;
  static_assert(std::is_trivially_copyable_v<Args>, "arguments are copied as bytes");
  return {form_of<Op>, sizeof(Args), [](const void* args) { return Op::warps(*static_cast<const Args*>(args)); },
          [](const void* args) { return Op::work_per_warp(*static_cast<const Args*>(args)); }};
}

}  // namespace

const Kernels kernels = {{
#define NANSCOPE_OP(Name, stem, gradient) kernel<Name>(),
#include "kernels/ops.def"
#undef NANSCOPE_OP
}};

}  // namespace nanscope::kernels::cuda
