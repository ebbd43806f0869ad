#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "scenarios/counterfactuals.h"
#include "scenarios/report/text.h"

namespace nanscope::report {

/// A table, one change a line, grouped by what it does to the fault: where the chain breaks, who still
/// answers garbage, what it costs. Then the smallest sets of changes that prevent the fault.
/// One change of the table.
struct CounterfactualRow {
  scenarios::Effect effect;
  std::vector<std::string> cells;  ///< as counterfactual_titles() names them
};
std::vector<std::string> counterfactual_titles();
/// The changes that could be run, strongest effect first; the first row is the run as recorded.
std::vector<CounterfactualRow> counterfactual_rows(const scenarios::Counterfactuals& counterfactuals);

std::string counterfactuals_text(const scenarios::Counterfactuals& counterfactuals, const Terminal& terminal);
std::string counterfactuals_markdown(const scenarios::Counterfactuals& counterfactuals);
nlohmann::ordered_json to_json(const scenarios::Counterfactuals& counterfactuals);

}  // namespace nanscope::report
