#pragma once
#include <optional>

#include "instrument/recompute/recompute.h"
#include "instrument/verify/verify.h"

namespace nanscope {

/// Whether a product of a weight that an adapter (LoRA) was merged into is that of the checkpoint plus the adapter's
/// share times a factor, as it is where the server scales adapters otherwise than adapter_config.json says. The factor
/// is the least squares fit; what is left may be as large as the bounds, and as the rounding of the merged weight to
/// the checkpoint's format makes it. Nothing where no adapter was merged, or where it does not fit.
std::optional<ExplainedBy> adapter_factor(Recomputer& recomputer, const Recomputed& result);

}  // namespace nanscope
