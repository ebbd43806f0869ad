#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/counted.h"
#include "core/recording/names.h"
#include "gui/bars.h"
#include "gui/cell_paint.h"
#include "gui/context_menu.h"
#include "gui/marks.h"
#include "gui/prepare/requests_told.h"

namespace nanscope::gui {
namespace {

constexpr std::size_t kStepsShown = 512;  ///< of one request; more would hide the other requests

/// One request, as high as it needs to be.
class RequestCard {
 public:
  RequestCard(const Look& look, Navigator& navigator, const RequestActions& actions)
      : look_(look), navigator_(navigator), actions_(actions) {}

  /// Answers its height.
  float draw(const RunMap& map, const MapRequest& request, ImVec2 at, float width) {
    const Theme& theme = look_.theme;
    const bool chosen = navigator_.selection().place.request == request.row.id;
    const float pad = look_.px(12);
    const float square = look_.px(13);
    const float pitch = square + look_.px(3);
    const auto across = std::max<std::size_t>(1, static_cast<std::size_t>((width - 2 * pad) / pitch));
    const std::size_t shown = std::min(request.steps.size(), kStepsShown);
    const std::size_t lines = (shown + across - 1) / across;
    const Area card{at.x + look_.px(6), at.y, width - look_.px(12),
                    look_.px(62) + static_cast<float>(lines) * pitch + pad};
    const float height = card.height + look_.px(4);
    if (!ImGui::IsRectVisible(card.min(), card.max())) return height;
    if (chosen) fill(card, theme.raised, look_.px(6));

    Area line{at.x + pad + look_.px(6), at.y + look_.px(9), width - 2 * pad - look_.px(12), look_.px(18)};
    const std::string chip = request.worst >= kClipped ? std::string(cell_name(request.worst)) : "ok";
    const float chip_width = text_size(look_.fonts.small, chip).x + look_.px(12);
    label(look_.fonts.text, {line.x, line.y, line.width - chip_width - look_.px(8), line.height}, theme.text,
          printable(request_title(request.row)));
    draw_chip(request.worst, chip, {line.right() - chip_width, line.y, chip_width, line.height});
    line.y += look_.px(20);
    label(look_.fonts.small, {line.x, line.y, line.width, look_.px(16)}, theme.muted, facts(map, request));
    line.y += look_.px(16);
    label(look_.fonts.small, {line.x, line.y, line.width, look_.px(16)}, theme.text,
          request.row.output_text.empty() ? no_answer(request) : in_quotes(request.row.output_text));
    line.y += look_.px(22);
    for (std::size_t i = 0; i < shown; ++i) {
      const std::size_t row = i / across;
      const Area box{line.x + static_cast<float>(i % across) * pitch, line.y + static_cast<float>(row) * pitch, square,
                     square};
      draw_step(map.steps[request.steps[i]], box);
    }
    return height;
  }

 private:
  /// A dump may tell neither prompts nor answers.
  static bool is_told(const MapRequest& request) { return !request.row.prompt_tokens.empty(); }

  static std::string no_answer(const MapRequest& request) {
    if (!request.row.output_tokens.empty()) return fmt::format("{}", fmt::join(request.row.output_tokens, " "));
    return is_told(request) ? "no answer" : counted(request.steps.size(), "step");
  }

  static std::string facts(const RunMap& map, const MapRequest& request) {
    if (!is_told(request)) {
      std::int64_t tokens = 0;
      for (const std::uint32_t step : request.steps) tokens += map.steps[step].rank == 0 ? map.steps[step].tokens : 0;
      return counted(tokens, "token");
    }
    std::string text = counted(request.row.prompt_tokens.size(), "token");
    if (request.row.cached_tokens > 0) text += fmt::format(", {} from cache", request.row.cached_tokens);
    return text + fmt::format(" \u2192 {}", request.row.output_tokens.size());
  }

  void draw_chip(Cell worst, const std::string& words, Area box) const {
    const Theme& theme = look_.theme;
    const bool bad = worst >= kClipped;
    fill(box, bad ? theme.cell(worst) : theme.raised, look_.px(4));
    label(look_.fonts.small, box, bad ? ink_on(theme, worst) : theme.muted, words, 0.5F);
  }

  void draw_step(const MapStep& step, Area box) {
    const Place& place = navigator_.selection().place;
    const bool chosen = place.request == step.row.request && place.step == step.row.index && place.rank == step.rank;
    fill_cell(look_.theme, look_.fonts, box, step.worst, look_.px(2));
    if (chosen) outline(box.inset(-look_.px(1)), look_.theme.text, look_.px(2), look_.px(3));
    ImGui::SetCursorScreenPos(box.min());
    ImGui::PushID(&step);
    if (ImGui::InvisibleButton("step", {box.width, box.height})) navigator_.choose_step(step);
    ImGui::PopID();
    if (asked_for_menu() && step.first_op < navigator_.map()->ops.size()) {
      actions_.menu({{navigator_.map()->place_of_op(step.first_op, step), {}}, std::string(cell_name(step.worst))});
    }
    if (!ImGui::IsItemHovered()) return;
    actions_.hint(fmt::format("request {} step {}, {} of {}: {}", step.row.request, step.row.index,
                              words::word(words::kStepKinds, step.row.kind), counted(step.tokens, "token"),
                              cell_name(step.worst)));
  }

  const Look& look_;
  Navigator& navigator_;
  const RequestActions& actions_;
};

}  // namespace

void draw_requests(const Look& look, Navigator& navigator, Area area, const RequestActions& actions) {
  fill(area, look.theme.panel);
  const float head = look.px(34);
  label(look.fonts.title, {area.x + look.px(18), area.y, area.width, head}, look.theme.text, "Requests");
  fill({area.x, area.y + head - 1, area.width, 1}, look.theme.line);
  if (!navigator.map()) return;
  const RunMap& map = *navigator.map();
  ImGui::SetCursorScreenPos({area.x, area.y + head});
  ImGui::BeginChild("requests", {area.width, area.height - head}, false, ImGuiWindowFlags_NoBackground);
  RequestCard card(look, navigator, actions);
  const ImVec2 start = ImGui::GetCursorScreenPos();
  float y = start.y + look.px(8);
  for (const MapRequest& request : map.requests) y += card.draw(map, request, {start.x, y}, area.width);
  ImGui::SetCursorScreenPos({start.x, y});
  ImGui::Dummy({1, 1});
  ImGui::EndChild();
}

void draw_status(const Look& look, const StatusText& status, const std::optional<Activity>& activity, const RunMap* map,
                 Area area) {
  fill(area, look.theme.panel);
  const Area line = area.inset(look.px(18), 0);
  std::string right;
  if (map != nullptr) {
    right = map->counts.expected_ops > 0
                ? fmt::format("{} of {} ops captured", map->counts.ops, map->counts.expected_ops)
                : counted(map->counts.ops, "op") + " captured";
  }
  if (activity) right = fmt::format("working on {} \u00B7 {:.1f} s     {}", activity->kind, activity->seconds, right);
  const float width = text_size(look.fonts.small, right).x;
  label(look.fonts.small, {line.right() - width - 1, line.y, width + 1, line.height}, look.theme.muted, right, 1);
  const float room = line.width - width - look.px(20);
  const bool brief = !status.brief.empty() && text_size(look.fonts.small, status.text).x > room;
  label(look.fonts.small, {line.x, line.y, room, line.height}, status.error ? look.theme.ink(kNan) : look.theme.muted,
        printable(brief ? status.brief : status.text));
}

}  // namespace nanscope::gui
