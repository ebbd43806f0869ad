#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/diagnosis/diagnosis.h"
#include "core/dump/facts.h"

/// Early warnings: numbers of a dump that are healthy still and near to where they are not. One file here and one line
/// in warnings.def each; what they look at comes before the first fault and is not part of one.
namespace nanscope {

/// A tensor that a warning may be about.
struct Watched {
  TensorIndex tensor = 0;
  double severity = 0;  ///< of several, the largest is told
  std::vector<Evidence> evidence;
  std::string summary;
  std::string advice;
};

/// Whether a tensor is to be looked at: not explained by a fault, not after the first.
using IsWatched = std::function<bool(TensorIndex)>;

struct WarningKind {
  std::string_view kind;
  std::string_view looks_for;
  std::vector<Watched> (*find)(DumpFacts& facts, const IsWatched& watched);
};

std::span<const WarningKind> all_warning_kinds();
/// Each kind at most once, where it is worst. Stops reading where the facts do.
std::vector<Warning> warnings_of(DumpFacts& facts, const IsWatched& watched);

}  // namespace nanscope
