#include "gui/selection.h"

#include <utility>

namespace nanscope::gui {

void SelectionHistory::choose(Selection selection) {
  if (selection == current()) return;
  visited_.resize(at_ + 1);
  visited_.push_back(std::move(selection));
  if (visited_.size() > kKept) visited_.erase(visited_.begin());
  at_ = visited_.size() - 1;
}

void SelectionHistory::move(Selection selection) { visited_[at_] = std::move(selection); }

void SelectionHistory::back() {
  if (can_go_back()) --at_;
}

void SelectionHistory::forward() {
  if (can_go_forward()) ++at_;
}

}  // namespace nanscope::gui
