#include "gui/selection.h"

#include <string>
#include <utility>

#include "core/run/find_place.h"
#include "gui/prepare/subject.h"

namespace nanscope::gui {

namespace {

/// Of an op whose place names none of its several outputs, the one that views show.
std::optional<Selection> main_output(RunView& run, std::string_view text) {
  const Result<Place> place = parse_place(text);
  if (!place || !place->role.empty()) return std::nullopt;
  const Result<Subject> subject = find_subject(run, *place);
  if (!subject) return std::nullopt;
  Selection selection{*place, std::nullopt};
  selection.place.role = subject->tensor.role;
  return selection;
}

}  // namespace

Result<Selection> select(RunView& run, std::string_view text) {
  const Result<FoundPlace> found = find_place(run, text);
  if (!found) {
    if (const std::optional<Selection> main = main_output(run, text)) return select(run, to_string(main->place));
    return tl::unexpected(found.error());
  }
  const Step* step = run.step(found->tensor->step);
  const Span* span = nullptr;
  if (step != nullptr && found->row) span = run.token_of(*found->tensor, *found->row).span;
  // A place says which of the requests that share a step is meant.
  const Result<Place> place = parse_place(text);
  if (span == nullptr && place) span = find_span(run, *place).span;
  const Subject subject = subject_of(run, *found->tensor, span);
  Selection selection;
  selection.place = tensor_place(subject);
  if (found->row && found->channel) {
    selection.place = element_place(subject, *found->row, *found->channel);
    selection.element = *found->row * found->tensor->channels + *found->channel;
  } else if (found->row) {
    selection.place = element_place(subject, *found->row, 0);
    selection.place.channel.reset();
  }
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
