#pragma once
#include "instrument/train/backward.h"

/// One function a kind of op, in gradients/: it reads the gradients of the op's outputs and adds those of its inputs.
namespace nanscope::train {

#define NANSCOPE_GRADIENT(kind) void kind##_gradient(Backward& backward, const TapedOp& op);
#include "instrument/train/gradients.def"
#undef NANSCOPE_GRADIENT

/// Null for a kind that has none.
using GradientOf = void (*)(Backward&, const TapedOp&);
GradientOf gradient_of(OpKind kind);

}  // namespace nanscope::train
