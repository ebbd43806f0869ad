#pragma once
#include <string>

#include "scenarios/causality.h"
#include "scenarios/report/text.h"

/// What `nanscope causality` says.
namespace nanscope::report {

std::string causality_text(const scenarios::CausalityReport& report, const std::string& target,
                           const Terminal& terminal);
/// `nanscope.causality/1`, see docs/causality.md.
std::string causality_json(const scenarios::CausalityReport& report, const std::string& target);
/// A line a changed token and an earlier one whose logits it changes, or one without it where there is none.
std::string causality_csv(const scenarios::CausalityReport& report);

}  // namespace nanscope::report
