#pragma once
#include <string>

#include "scenarios/causality.h"
#include "scenarios/dump_causality.h"
#include "scenarios/report/text.h"

/// What `nanscope causality` says.
namespace nanscope::report {

std::string causality_text(const scenarios::CausalityReport& report, const std::string& target,
                           const Terminal& terminal);
/// `nanscope.causality/1`, see docs/causality.md.
std::string causality_json(const scenarios::CausalityReport& report, const std::string& target);
/// A line a changed token and an earlier one whose logits it changes, or one without it where there is none.
std::string causality_csv(const scenarios::CausalityReport& report);

/// The same of two runs whose prompts differ from a later token on: `target` and `other`.
std::string twins_text(const scenarios::TwinCausality& twins, const std::string& target, const std::string& other,
                       const Terminal& terminal);
std::string twins_json(const scenarios::TwinCausality& twins, const std::string& target, const std::string& other);
/// A line an output that differs.
std::string twins_csv(const scenarios::TwinCausality& twins);

/// The same of what one run recorded or dumped.
std::string seen_text(const scenarios::SeenCausality& seen, const std::string& target, const Terminal& terminal);
std::string seen_json(const scenarios::SeenCausality& seen, const std::string& target);
/// A line a leak.
std::string seen_csv(const scenarios::SeenCausality& seen);

}  // namespace nanscope::report
