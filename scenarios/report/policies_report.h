#pragma once
#include <string>
#include <vector>

#include "instrument/policies/evaluate.h"
#include "scenarios/report/text.h"

/// What `nanscope policies` says, see docs/policies.md.
namespace nanscope::report {

/// Titles of a table of policies, and the cells of one behind its name; none where it was not tried.
const std::vector<std::string>& policy_titles();
std::vector<std::string> policy_cells(const PolicyResult& one);

/// What was looked at, a line a policy, each claim with its figures.
std::string policies_text(const PolicyReport& made, const std::string& target, const Terminal& terminal);
/// `nanscope.policies/1`.
std::string policies_json(const PolicyReport& made, const std::string& target);
/// A row a policy and layer; all layers together first.
std::string policies_csv(const PolicyReport& made);

}  // namespace nanscope::report
