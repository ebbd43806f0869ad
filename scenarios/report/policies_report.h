#pragma once
#include <string>

#include "instrument/policies/evaluate.h"
#include "scenarios/report/text.h"

/// What `nanscope policies` says, see docs/policies.md.
namespace nanscope::report {

/// What was looked at, a line a policy, each claim with its figures.
std::string policies_text(const PolicyReport& made, const std::string& target, const Terminal& terminal);
/// `nanscope.policies/1`.
std::string policies_json(const PolicyReport& made, const std::string& target);
/// A row a policy and layer; all layers together first.
std::string policies_csv(const PolicyReport& made);

}  // namespace nanscope::report
