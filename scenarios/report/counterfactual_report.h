#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/counterfactuals.h"
#include "scenarios/report/text.h"

/// Counterfactuals as a person reads them: what each change does to the fault, who still answers garbage, what it
/// costs, and which one to make.
namespace nanscope::report {

/// One change of the table.
struct CounterfactualRow {
  scenarios::Effect effect;
  std::vector<std::string> cells;  ///< as counterfactual_titles() names them
};
std::vector<std::string> counterfactual_titles();
/// The changes that could be run, strongest effect first; the first row is the run as recorded.
std::vector<CounterfactualRow> counterfactual_rows(const scenarios::Counterfactuals& counterfactuals);

/// The table of a terminal, a change at a time while they are run. Rows that are too wide are folded.
class CounterfactualLines {
 public:
  CounterfactualLines(std::span<const scenarios::Change> changes, const Terminal& terminal);

  std::string titles() const;
  /// A line or more; the first outcome is the run as recorded.
  std::string line(const scenarios::Outcome& outcome);

 private:
  std::string laid_out(const std::vector<std::string>& cells) const;

  Terminal terminal_;
  std::vector<int> widths_;
  double recorded_bytes_ = 0;
  bool recorded_ = false;
};

/// What to make of it: the changes by what they do, and the recommended one with its reason and its cost. `recording`:
/// its path as commands take it.
std::string counterfactuals_text(const scenarios::Counterfactuals& counterfactuals, const std::string& recording,
                                 const Terminal& terminal);
std::string counterfactuals_markdown(const scenarios::Counterfactuals& counterfactuals);
nlohmann::ordered_json to_json(const scenarios::Counterfactuals& counterfactuals);

/// The recommended change in words: term and text, such as {"Memory", "2080 B a token of KV, 1.02x"}. One item that
/// says why where there is none to recommend.
struct RecommendedItem {
  std::string_view term;
  std::string text;
};
std::vector<RecommendedItem> recommended_items(const scenarios::Counterfactuals& counterfactuals);

}  // namespace nanscope::report
