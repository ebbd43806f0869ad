#pragma once
#include <string>

#include "core/numbers/anatomy.h"
#include "core/numbers/rounding.h"

/// What is said of numbers, the same in the terminal and in the window.
namespace nanscope::bits {

/// Real value of a code's value under a scale, multiplied in f32 as kernels do.
std::string real_text(double code_value, double scale);
/// "3.26 %" of a share.
std::string percent(double share);
/// "sign +, exponent 15 - bias 7 = 8, mantissa 5/8".
std::string fields_note(const Anatomy& anatomy);
/// One clause on what a cast did: "clipped, 3.26 % lost".
std::string outcome(const Rounding& rounding);
/// Why the input fell where it fell: "430 is below the midpoint 432 of 416 and 448: it goes down".
/// Empty when there was no choice. `label` stands for the input.
std::string bucket_text(const Rounding& rounding, const std::string& label);

}  // namespace nanscope::bits
