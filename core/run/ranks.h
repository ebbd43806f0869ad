#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/run/run_view.h"

namespace nanscope {

/// The rank that a step is of; 0 of what is no step.
std::int64_t rank_of(RunView& run, StepId step);

/// The steps of a run that are one pass on several ranks: of the same run and request, with the same rows, in folders
/// that differ in the rank alone. The run must outlive it.
class StepsOfRanks {
 public:
  explicit StepsOfRanks(RunView& run);
  /// Those of all other ranks, ascending by id.
  std::vector<const Step*> others(const Step& step) const;

 private:
  using Key = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::string>;
  static Key key_of(const Step& step);

  bool several_ = false;
  std::map<Key, std::vector<const Step*>> steps_;
};

}  // namespace nanscope
