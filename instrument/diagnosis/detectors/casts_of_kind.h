#pragma once
#include <optional>
#include <string>

#include "instrument/diagnosis/detectors/detector.h"

/// What detectors of casts share.
namespace nanscope {

/// The same run and rank: casts that may have a scale in common.
bool same_lane(Survey& survey, const Cast& a, const Cast& b);
/// "request 2 step 0", or how the dump calls the pass.
std::string request_name(Survey& survey, StepId step);

/// The history of largest values behind a scale.
struct History {
  double largest = 0;
  std::string from;        ///< what it was read from
  bool holds_bad = false;  ///< a NaN or Inf among them
};
/// From the dumped history, else from the largest values of the passes before, where the scale is derived from it;
/// nothing for a scale that is not.
std::optional<History> history_of(Survey& survey, const Cast& cast);
bool is_delayed(Survey& survey, const Cast& cast);

/// absmax, headroom, clipped, share, format ... of a cast.
void add_cast_evidence(Finding& finding, const Cast& cast);

}  // namespace nanscope
