#include "instrument/cupti/joiner.h"

#include <iterator>
#include <utility>

namespace nanscope::cupti {

void Joiner::know(std::uint32_t correlation, std::int64_t op) {
  if (ops_.size() >= kRemembered) older_ = std::exchange(ops_, {});
  ops_[correlation] = op;
}

std::optional<std::int64_t> Joiner::op_of(std::uint32_t correlation) const {
  if (correlation == 0) return 0;
  for (const auto* known : {&ops_, &older_}) {
    if (const auto found = known->find(correlation); found != known->end()) return found->second;
  }
  return std::nullopt;
}

std::vector<KernelRow> Joiner::join(Decoded decoded) {
  for (const ExternalId& external : decoded.external) {
    know(external.correlation, static_cast<std::int64_t>(external.id));
  }
  waiting_.insert(waiting_.end(), std::make_move_iterator(decoded.activities.begin()),
                  std::make_move_iterator(decoded.activities.end()));
  std::vector<KernelRow> rows;
  std::vector<Activity> still;
  for (Activity& activity : waiting_) {
    if (const std::optional<std::int64_t> op = op_of(activity.correlation)) {
      activity.row.op = *op;
      rows.push_back(std::move(activity.row));
    } else {
      still.push_back(std::move(activity));
    }
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
