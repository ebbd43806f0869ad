#include "gui/scrubber.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/counted.h"
#include "core/recording/names.h"
#include "gui/cell_paint.h"
#include "gui/drawn.h"
#include "gui/prepare/requests_told.h"

namespace nanscope::gui {
namespace {

constexpr float kThick = 8;
constexpr float kEnds = 6;
constexpr float kLeastTickGap = 4;  ///< steps closer to each other have no ticks
constexpr float kNameGap = 6;
constexpr float kEventReach = 3;  ///< an event so near to the pointer is told of
constexpr float kSpeedWidth = 44;

class Scrubber {
 public:
  Scrubber(const Look& look, const RunMap& map, Area area) : look_(look), map_(map) {
    const float middle = area.y + area.height / 2;
    track_ = {area.x + look.px(kEnds), middle - look.px(kThick) / 2, area.width - look.px(2 * kEnds), look.px(kThick)};
    last_ = static_cast<float>(map.ops.size() - 1);
  }

  float at(std::size_t op) const { return track_.x + track_.width * static_cast<float>(op) / last_; }
  std::size_t op_at(float x) const {
    const float part = std::clamp((x - track_.x) / track_.width, 0.0F, 1.0F);
    return static_cast<std::size_t>(std::lround(part * last_));
  }

  /// The worst of what falls on a pixel.
  void health() const {
    Cell worst = kAbsent;
    float from = track_.x;
    for (std::size_t i = 0; i < map_.steps.size(); ++i) {
      const float to = at(std::min(end_of(i), map_.ops.size() - 1));
      worst = std::max(worst, map_.steps[i].worst);
      if (to - from < 1 && i + 1 < map_.steps.size()) continue;
      if (worst >= kClipped) {
        fill_cell(look_.theme, look_.fonts, {from, track_.y, std::max(to - from, 1.0F), track_.height}, worst);
      }
      worst = kAbsent;
      from = to;
    }
  }

  /// A tick where a step begins, a longer one where a request does, with its number where there is room.
  void steps() const {
    float tick = track_.x - look_.px(kLeastTickGap);
    float free = track_.x;
    std::size_t first = map_.ops.size();
    for (std::size_t i = 0; i < map_.steps.size(); ++i) {
      const MapStep& step = map_.steps[i];
      if (step.first_op == first || step.first_op >= map_.ops.size()) continue;  // shared with the step before
      first = step.first_op;
      const float x = at(first);
      const bool begins = i == 0 || map_.steps[i - 1].row.request != step.row.request;
      if (begins && x >= free) free = name(step, x);
      if (x - tick < look_.px(kLeastTickGap)) continue;
      tick = x;
      const float high = look_.px(begins ? 5 : 3);
      fill({std::floor(x), track_.y - high, 1, high}, look_.theme.muted.alpha(begins ? 255 : 150));
    }
  }

  void events(const Story& story) const {
    for (const StoryEvent& event : story.events) {
      if (const auto op = find(event)) {
        fill({at(*op) - look_.px(1), track_.bottom() + look_.px(4), look_.px(2), look_.px(6)}, look_.theme.muted);
      }
    }
  }

  void knob(std::size_t op) const {
    const ImVec2 center(at(op), track_.y + track_.height / 2);
    ImGui::GetWindowDrawList()->AddCircleFilled(center, look_.px(9), look_.theme.panel.packed(), 24);
    ImGui::GetWindowDrawList()->AddCircleFilled(center, look_.px(6.5F), look_.theme.text.packed(), 24);
  }

  /// What is under the pointer: the step, the op, and an event that is near.
  void tell(const Story* story, float x) const {
    const std::size_t op = op_at(x);
    const MapOp& at_op = map_.ops[op];
    const MapStep& step = map_.steps[at_op.step];
    std::string words = fmt::format("{}, step {} ({} of {})\n{}   op {} of {}", request_words(step), step.row.index,
                                    words::word(words::kStepKinds, step.row.kind), counted(step.tokens, "token"),
                                    to_string(map_.place_of_op(op)), op + 1, map_.ops.size());
    const StoryEvent* near = nullptr;
    for (const StoryEvent& event : story != nullptr ? std::span(story->events) : std::span<const StoryEvent>()) {
      const auto there = find(event);
      if (there && std::abs(at(*there) - x) <= look_.px(kEventReach)) near = &event;
    }
    if (near != nullptr) words += fmt::format("\n{} {}", near->target.link, near->title);
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(look_.px(10), look_.px(7)));
    ImGui::SetTooltip("%s", words.c_str());
    ImGui::PopStyleVar();
  }

 private:
  std::size_t end_of(std::size_t step) const {
    return step + 1 < map_.steps.size() ? map_.steps[step + 1].first_op : map_.ops.size() - 1;
  }

  std::optional<std::size_t> find(const StoryEvent& event) const {
    const auto op = std::lower_bound(map_.ops.begin(), map_.ops.end(), event.op,
                                     [](const MapOp& one, std::int64_t id) { return one.id < id; });
    if (event.op == 0 || op == map_.ops.end()) return std::nullopt;
    return static_cast<std::size_t>(op - map_.ops.begin());
  }

  std::string request_words(const MapStep& step) const {
    const MapRequest* request = map_.request(step.row.request);
    return request != nullptr ? printable(request_title(request->row)) : fmt::format("request {}", step.row.request);
  }

  /// Answers from where on the next name may stand.
  float name(const MapStep& step, float x) const {
    const std::string number = std::to_string(step.row.request);
    const ImVec2 size = text_size(look_.fonts.mono_small, number);
    if (x + size.x > track_.right()) return track_.right() + 1;
    text(look_.fonts.mono_small, {x + look_.px(2), track_.y - look_.px(3) - size.y}, look_.theme.muted, number);
    return x + size.x + look_.px(kNameGap);
  }

  const Look& look_;
  const RunMap& map_;
  Area track_;
  float last_ = 1;
};

/// At the right end while the run is not played at its own speed.
Area draw_speed(const Look& look, const Navigator& navigator, Area area) {
  if (navigator.speed() == 1) return area;
  const float width = look.px(kSpeedWidth);
  label(look.fonts.small, {area.right() - width, area.y, width, area.height}, look.theme.muted,
        speed_text(navigator.speed()), 1);
  return {area.x, area.y, area.width - width, area.height};
}

}  // namespace

void draw_scrubber(const Look& look, Navigator& navigator, Area area) {
  area = draw_speed(look, navigator, area);
  const float middle = area.y + area.height / 2;
  fill({area.x + look.px(kEnds), middle - look.px(kThick) / 2, area.width - look.px(2 * kEnds), look.px(kThick)},
       look.theme.raised, look.px(kThick) / 2);
  if (navigator.ops() < 2) return;
  const Scrubber scrubber(look, *navigator.map(), area);
  scrubber.health();
  scrubber.steps();
  if (navigator.story()) scrubber.events(*navigator.story());
  ImGui::SetCursorScreenPos(area.min());
  ImGui::InvisibleButton("scrubber", {area.width, area.height});
  tell_item(area, "scrubber");
  const float x = ImGui::GetIO().MousePos.x;
  if (ImGui::IsItemActive()) {
    if (navigator.playing()) navigator.play(false);
    navigator.seek(scrubber.op_at(x));
  }
  scrubber.knob(navigator.position());
  if (ImGui::IsItemHovered() || ImGui::IsItemActive()) scrubber.tell(navigator.story().get(), x);
}

}  // namespace nanscope::gui
