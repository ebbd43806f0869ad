#pragma once
#include <string_view>

namespace nanscope {

/// Numbers in the texts compare as numbers, prefill comes before decode: "step_2" before "step_10".
bool natural_less(std::string_view a, std::string_view b);

}  // namespace nanscope
