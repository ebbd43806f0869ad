#pragma once
#include <string_view>

#include "core/run/run_view.h"

namespace nanscope {

/// Why attention of such a step is not judged by the steps before it.
inline constexpr std::string_view kMayBeBeams =
    "its sequences began alike: a beam search may have given them the caches of each other";

/// Whether sequences of a step began with the same rows in one step, and went on apart: a beam search lets each go on
/// from any of them, and copies caches to and fro between two steps, which no dump says.
bool may_be_beams(RunView& run, const Step& step);

/// Whether an op reads keys or values of steps before its own.
bool over_keys(OpKind kind);

}  // namespace nanscope
