#pragma once
#include <optional>

#include "instrument/recompute/recompute.h"
#include "instrument/verify/verify.h"

namespace nanscope {

/// What an output that nothing explains shows by itself: that it is what it should be times a factor, or of a product,
/// that what it is off by has a rank so low that a change of the weight of that rank was added, as an adapter (LoRA, Hu
/// et al. 2021, arXiv:2106.09685) is.
std::optional<ExplainedBy> linear_change(Recomputer& recomputer, const Recomputed& result);

/// The rank of a matrix of `rows` rows up to what `noise` (the sum of squares of what elements may be off by) leaves:
/// the singular values beyond it have no larger sum of squares. By Jacobi's method on the smaller Gram matrix.
std::int64_t rank_beyond(const std::vector<double>& matrix, std::int64_t rows, double noise);

}  // namespace nanscope
