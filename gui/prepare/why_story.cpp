#include "gui/prepare/why_story.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/recording/names.h"
#include "gui/prepare/requests_told.h"
#include "gui/prepare/story.h"
#include "gui/prepare/subject.h"
#include "instrument/diagnosis/facts.h"
#include "scenarios/report/text.h"

namespace nanscope::gui {
namespace {

std::string value_text(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Inf" : "-Inf";
  return fmt::format("{:.6g}", value);
}

/// Names in a dump are anybody's.
std::string shown(const std::string& text) { return report::printable(text, {}); }

std::optional<Selection> target_of(const Hop& hop) {
  // A recording's weights are rows of their own, which no view shows.
  if (hop.where.op.empty() || (!hop.where.request && hop.where.tensor_id == 0)) return std::nullopt;
  Selection target = selection_of(hop.where);
  // The ledger speaks of "k" and "v"; what was stored under the scale are the codes.
  if (hop.kind == HopKind::scale && hop.where.tensor_id == 0) target.place.role += "_codes";
  return target;
}

std::string place_of(const Hop& hop) {
  std::string place = named_place(hop.tensor, hop.where);
  if (hop.kind == HopKind::scale && hop.where.tensor_id == 0 && !hop.where.role.empty()) {
    Where op = hop.where;
    op.role.clear();
    return fmt::format("scale of {} in {}", hop.where.role, tensor_text(op));
  }
  if (hop.kind != HopKind::slot) return place.empty() ? std::string(name(hop.kind)) : place;
  const EvidenceValue* block = nanscope::find(hop.numbers, "block");
  const EvidenceValue* slot = nanscope::find(hop.numbers, "slot");
  if (block == nullptr || slot == nullptr) return place;
  return fmt::format("KV cache, block {} slot {}", to_string(*block), to_string(*slot));
}

WhyHop told(const Hop& hop) {
  WhyHop out;
  out.kind = hop.kind;
  out.place = shown(place_of(hop));
  out.target = target_of(hop);
  out.bad = hop.bad;
  out.text = shown(hop.text);
  if (hop.value) out.value = value_text(*hop.value);
  if (hop.code) out.bits = fmt::format("{} {}", name(hop.format), code_text(hop.format, *hop.code));
  for (const Evidence& item : hop.numbers) out.numbers.emplace_back(words(item.name), to_string(item.value));
  return out;
}

std::string heading_of(RunView& run, const Where& where) {
  if (!where.request || !where.step) return {};
  const std::string name = request_name(run, *where.request);
  std::string text = fmt::format("request {}", *where.request);
  if (!name.empty()) text += fmt::format(" \u00B7 {}", name);
  const Step* step = run.find_step(*where.request, *where.step);
  const StepKind by_number = *where.step == 0 ? StepKind::prefill : StepKind::decode;
  const StepKind kind = step == nullptr ? by_number : step->kind;
  text += fmt::format(" \u00B7 {}", words::word(words::kStepKinds, kind));
  return kind == StepKind::decode ? text + fmt::format(" step {}", *where.step) : text;
}

std::string question_of(const WhyHop& first) {
  const bool exotic = first.value == "NaN" || first.value == "Inf" || first.value == "-Inf";
  if (first.value.empty()) return fmt::format("Where does {} come from?", first.place);
  return exotic ? fmt::format("Why is {} {}?", first.place, first.value)
                : fmt::format("Where does {} = {} come from?", first.place, first.value);
}

/// Of a tensor the first row of somebody's that is bad; without NaN and Inf, what was clipped is of interest.
std::optional<std::int64_t> telling_row(Facts& facts, const Tensor& tensor) {
  for (const std::int64_t row : facts.run.bad_rows(tensor)) {
    if (tensor.axis == Axis::none || facts.live(tensor, row)) return row;
  }
  if (RunView::symptomatic(tensor) || tensor.health.clipped == 0) return std::nullopt;
  const std::vector<Health>& rows = facts.run.rows(tensor);
  const auto at = std::find_if(rows.begin(), rows.end(), [](const Health& row) { return row.clipped > 0; });
  return at == rows.end() ? std::nullopt : std::optional<std::int64_t>(at - rows.begin());
}

/// The element that a place names, else the one that is worth a question.
Element element_of(Facts& facts, const Subject& subject, const Place& place) {
  const std::optional<std::int64_t> row = row_of(subject, place);
  const std::optional<std::int64_t> channel = channel_of(subject.tensor, place);
  if (row && channel) return {subject.tensor.id, *row, *channel};
  if (row && !facts.row_bad(subject.tensor, *row)) return {subject.tensor.id, *row, 0};
  const std::optional<std::int64_t> worth = row ? row : telling_row(facts, subject.tensor);
  return first_bad_element(facts, subject.tensor, worth.value_or(0));
}

}  // namespace

std::optional<std::size_t> WhyStory::find(const Selection& selection, std::optional<std::size_t> preferred) const {
  const auto is_there = [&](const WhyHop& hop) { return hop.target && hop.target->place == selection.place; };
  if (preferred && *preferred < hops.size() && is_there(hops[*preferred])) return preferred;
  const auto at = std::find_if(hops.begin(), hops.end(), is_there);
  if (at == hops.end()) return std::nullopt;
  return static_cast<std::size_t>(at - hops.begin());
}

WhyStory tell_why(RunView& run, const WhyPath& path) {
  WhyStory story;
  story.conclusion = shown(path.conclusion);
  story.stopped = shown(path.stopped);
  const Where* before = nullptr;
  for (std::size_t i = 0; i < path.hops.size(); ++i) {
    const Hop& hop = path.hops[i];
    WhyHop out = told(hop);
    out.birth = path.origin == i;
    out.setting = i + 1 == path.hops.size() && (hop.kind == HopKind::scale || hop.kind == HopKind::weight);
    const bool moved = before == nullptr || (hop.where.request && std::tie(before->request, before->step) !=
                                                                      std::tie(hop.where.request, hop.where.step));
    if (moved) out.heading = heading_of(run, hop.where);
    if (hop.where.request) before = &hop.where;
    story.hops.push_back(std::move(out));
  }
  if (story.hops.empty()) {
    story.notice = "Nothing is known about this element";
  } else {
    story.question = question_of(story.hops.front());
  }
  return story;
}

Result<PreparedPtr> prepare_why(RunFacts& facts, const Selection& selection) {
  auto story = std::make_shared<WhyStory>();
  if (selection.place.op.empty()) {
    story->notice = "Select an element to see what made it";
    return story;
  }
  RunView& run = facts.view();
  const Result<Subject> subject = find_subject(run, selection.place, selection.call);
  if (!subject) {
    story->notice = subject.error().message;
    return story;
  }
  if (subject->tensor.count() == 0) {
    story->notice = "The tensor is empty";
    return story;
  }
  Facts known(run);
  const WhyPath path = walk(known, element_of(known, *subject, selection.place));
  if (facts.stop().stop_requested()) return fail("stopped");
  *story = tell_why(run, path);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return story;
}

}  // namespace nanscope::gui
