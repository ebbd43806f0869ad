#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "gui/cell.h"
#include "gui/prepare/prepared.h"
#include "gui/prepare/run_map.h"
#include "scenarios/causality.h"

/// Which tokens' logits answer to which tokens of a prompt, and where that is a leak.
namespace nanscope::gui {

/// What can be run, before anything is.
struct CausalityPlan final : Prepared {
  std::filesystem::path recording;
  std::size_t request = 0;
  std::string request_name;
  std::int64_t tokens = 0;                   ///< of its prompt
  std::vector<scenarios::CausalForm> forms;  ///< that the run is shown beside
  std::string notice;                        ///< why there is nothing to run; else empty
};

/// A form in few words: its settings, or that there are no blocks.
std::string form_words(const scenarios::CausalForm& form);

/// `recording` is null for a dump.
CausalityPlan plan_causality(const Recording* recording, std::int64_t request);

/// Cells of a map of influence: kAbsent where a token was not changed, kZero where nothing moved, then what an earlier
/// token moved, then leaks, which are larger, so that of cells shown as one a leak is seen.
inline constexpr int kInfluenceSteps = kHealthySteps / 2;
inline constexpr Cell kInfluenceFirst = kHealthyFirst;
inline constexpr Cell kLeakFirst = static_cast<Cell>(kHealthyFirst + kInfluenceSteps);
inline constexpr Cell kLeakLast = static_cast<Cell>(kLeakFirst + kInfluenceSteps - 1);
inline constexpr int kInfluenceDecades = 6;  ///< below the largest; what is less takes the first step

/// `largest`: of all that is shown beside each other.
Cell influence_cell(double moved, bool later, double largest);

/// One run with all tokens changed in turn.
struct CausalityMap {
  std::string title;  ///< "this run", or form_words()
  scenarios::CausalityReport report;
  scenarios::InfluenceMap map;
  std::vector<Cell> cells;  ///< tokens x tokens, as InfluenceMap has them
  std::int64_t leaks = 0;   ///< pairs of tokens

  /// What was changed at a token with the largest effect on a row; null where it was not.
  const scenarios::Influence* influence(std::int64_t row, std::int64_t column) const;
};

/// The run, and beside it the form in which nothing should leak.
struct CausalityMaps final : Prepared {
  CausalityMap here;
  std::optional<CausalityMap> healthy;
  double largest = 0;  ///< finite difference of a logit, of both
};

struct CausalityQuestion {
  std::filesystem::path recording;
  std::size_t request = 0;
  scenarios::TokenChange change = scenarios::TokenChange::value;
  std::optional<scenarios::CausalForm> form;  ///< nothing: the run alone
};

/// Runs it, (tokens + 2) times each. Errors: it cannot be run again, or was stopped.
Result<CausalityMaps> measure_causality(
    const CausalityQuestion& question, const std::stop_token& stop,
    const std::function<void(std::int64_t done, std::int64_t total, std::string_view what)>& progress);

/// What a cell says, a line each: how far the logits move, whether that is a leak, and what it came through.
std::vector<std::string> influence_words(const CausalityMap& map, std::int64_t row, std::int64_t column);

/// Where a leak is first seen, in the run that `run` maps: the output at the row's token, else at the first token that
/// differs. Nothing where the cell is no leak or the run has no such step.
std::optional<Place> leak_place(const CausalityMap& map, const RunMap& run, std::size_t request, std::int64_t row,
                                std::int64_t column);

}  // namespace nanscope::gui
