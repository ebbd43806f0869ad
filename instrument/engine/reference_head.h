#pragma once
#include <vector>

namespace nanscope {

/// The reference model's fitted output head, (512, 256) row-major: the file
/// instrument/corpus/reference_head.bf16 that fit_reference_head writes, inside the binary.
std::vector<float> reference_head();

}  // namespace nanscope
