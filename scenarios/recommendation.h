#pragma once
#include <cstddef>
#include <optional>

#include "scenarios/counterfactuals.h"

/// Which of the changes that were tried to make.
namespace nanscope::scenarios {

enum class Basis : std::uint8_t {
  accurate,       ///< it removes the cause, and what was right before is as right as before
  unmeasured,     ///< it removes the cause and stores no less of a number; how right the run was could not be measured
  less_accurate,  ///< whatever removes the cause costs accuracy: this costs least of it
  symptom_alone,  ///< nothing removes the cause: this leaves nobody with NaN
};

/// The cheapest change that removes the cause without a larger error than the recorded one, see cheaper().
struct Recommendation {
  const Outcome* outcome = nullptr;  ///< one of the Counterfactuals'
  Basis basis = Basis::accurate;
  std::size_t removing = 0;  ///< changes that remove the cause
  std::size_t accurate = 0;  ///< of them, those without a larger error
};

/// Nothing where no change prevents the fault, or there is none.
std::optional<Recommendation> recommend(const Counterfactuals& counterfactuals);

/// Whether the requests that were healthy as recorded are answered no worse: their root mean square error in logits is
/// not larger, by more than what another rounding of the same width moves it, and their top tokens agree as often.
/// Nothing where that was not measured.
std::optional<bool> as_accurate(const Outcome& changed, const Outcome& baseline);

}  // namespace nanscope::scenarios
