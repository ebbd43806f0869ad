#pragma once
#include "core/run/run_view.h"

namespace nanscope {

/// Whether the -Inf of a tensor that nothing names, the only NaN and Inf in it, stand as an attention mask leaves them:
/// of each row (of each head) what is finite is one range of columns or nothing, more than one row's edge says so, and
/// no finite element is near the largest of the format, which what overflowed would have among its neighbours. Causal,
/// window and padding masks look so; -Inf of a logarithm or of an overflow stands anywhere.
bool looks_masked(RunView& run, const Tensor& tensor);

}  // namespace nanscope
