#include "instrument/cupti/joiner.h"

#include <iterator>
#include <utility>

namespace nanscope::cupti {

std::vector<KernelRow> Joiner::join(Decoded decoded) {
  for (const ExternalId& external : decoded.external) {
    know(external.correlation, static_cast<std::int64_t>(external.id));
  }
  waiting_.insert(waiting_.end(), std::make_move_iterator(decoded.activities.begin()),
                  std::make_move_iterator(decoded.activities.end()));
  std::vector<KernelRow> rows;
  std::vector<Activity> still;
  for (Activity& activity : waiting_) {
    const auto known = ops_.find(activity.correlation);
    if (activity.correlation != 0 && known == ops_.end()) {
      still.push_back(std::move(activity));
      continue;
    }
    if (activity.correlation != 0) activity.row.op = known->second;
    rows.push_back(std::move(activity.row));
  }
  waiting_ = std::move(still);
  return rows;
}

std::vector<KernelRow> Joiner::rest() {
  std::vector<KernelRow> rows;
  for (Activity& activity : waiting_) rows.push_back(std::move(activity.row));
  waiting_.clear();
  return rows;
}

}  // namespace nanscope::cupti
