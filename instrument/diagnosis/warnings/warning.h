#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/diagnosis/survey.h"

/// Early warnings: numbers of a run that are healthy still and near to where they are not. One file here and one line
/// in warnings.def each; what they look at comes before the first fault and is not part of one.
namespace nanscope {

/// A tensor that a warning may be about.
struct Watched {
  TensorId tensor = 0;
  double severity = 0;  ///< of several, the largest is told
  std::vector<Evidence> evidence;
  std::string summary;
  std::string advice;
};

/// Whether a tensor is to be looked at: not shown by a fault, not after the first.
using IsWatched = std::function<bool(const Tensor&)>;

struct WarningKind {
  std::string_view kind;
  std::string_view looks_for;
  std::vector<Watched> (*find)(Survey& survey, const IsWatched& watched);
};

std::span<const WarningKind> all_warning_kinds();
/// Each kind at most once, where it is worst. `faults` are in order of execution.
std::vector<Warning> warnings_of(Survey& survey, const std::vector<Fault>& faults);

}  // namespace nanscope
