#pragma once
#include <string>

#include "core/dump/diff_dumps.h"
#include "scenarios/report/text.h"

namespace nanscope::report {

/// Where two dumps part by more than rounding.
std::string dump_diff_text(const DumpDiff& diff, const std::string& a, const std::string& b, const Terminal& terminal);

}  // namespace nanscope::report
