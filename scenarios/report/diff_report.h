#pragma once
#include <string>
#include <string_view>

#include "instrument/diff/diff.h"
#include "scenarios/report/text.h"

namespace nanscope::report {

/// Where two runs part: recordings bit for bit, others by more than rounding and noise.
std::string diff_text(const DiffReport& report, std::string_view a, std::string_view b, const Terminal& terminal);

}  // namespace nanscope::report
