#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/run/run_view.h"

namespace nanscope {

/// Where an op stands in the order of execution: in which pass, how far in it, on which rank. Ranks run beside each
/// other, though their steps come one after another.
using Moment = std::tuple<StepId, OpId, std::int64_t>;

/// The rank that a step is of; 0 of what is no step.
std::int64_t rank_of(RunView& run, StepId step);

/// The steps of a run that are one pass on several ranks: of the same run and request, with the same rows, in folders
/// that differ in the rank alone. The run must outlive it.
class StepsOfRanks {
 public:
  explicit StepsOfRanks(RunView& run);
  /// Those of all other ranks, ascending by id.
  std::vector<const Step*> others(const Step& step) const;
  /// What other ranks put into the sum that an op of the kind all_reduce is; of those that have the op.
  std::vector<const Tensor*> other_parts(RunView& run, const Op& op) const;
  Moment moment_of(RunView& run, OpId op) const;

 private:
  using Key = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::string>;
  static Key key_of(const Step& step);

  bool several_ = false;
  std::map<Key, std::vector<const Step*>> steps_;
};

}  // namespace nanscope
