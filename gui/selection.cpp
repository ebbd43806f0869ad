#include "gui/selection.h"

#include <string>
#include <utility>

#include "gui/prepare/subject.h"

namespace nanscope::gui {

namespace {

/// Of the output that views show of an op whose place names none.
std::optional<std::string> default_role(const Recording& recording, const Place& place) {
  if (!place.role.empty()) return std::nullopt;
  RecordingRun run(recording);
  const Result<Subject> subject = find_subject(run, place);
  if (!subject) return std::nullopt;
  return subject->tensor.role;
}

}  // namespace

Result<Selection> select(const Recording& recording, std::string_view text) {
  Result<Place> wanted = parse_place(text);
  if (!wanted) return tl::unexpected(wanted.error());
  Result<ResolvedPlace> found = resolve(recording, *wanted);
  if (!found) {
    if (const std::optional<std::string> role = default_role(recording, *wanted)) {
      wanted->role = *role;
      found = resolve(recording, *wanted);
    }
  }
  if (!found) return tl::unexpected(found.error());
  Selection selection;
  selection.element = found->element();
  Result<Place> place = place_of(recording, found->tensor, selection.element);
  if (!place) return tl::unexpected(place.error());
  selection.place = std::move(*place);
  if (found->row && !selection.element) selection.place.token = found->tensor.first_token + *found->row;
  return selection;
}

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
