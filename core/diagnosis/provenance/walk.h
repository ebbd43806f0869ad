#pragma once
#include "core/diagnosis/facts.h"
#include "core/diagnosis/why.h"

namespace nanscope {

/// why() on facts that are already there. The element must lie inside a recorded tensor.
WhyPath walk(Facts& facts, const Element& element);
/// The first bad element of a tensor, or of one of its rows; [row, 0] when nothing says which.
Element first_bad_element(Facts& facts, const TensorRow& tensor, std::int64_t row = 0);

}  // namespace nanscope
