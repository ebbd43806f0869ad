#include "gui/views/ramp_choice.h"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <charconv>
#include <cmath>

#include "gui/controls.h"
#include "gui/drawn.h"
#include "gui/marks.h"
#include "gui/views/twin_parts.h"

namespace nanscope::gui {
namespace {

constexpr const char* kRampPopup = "range of the ramp";
constexpr float kPopupWidth = 250;
constexpr float kPopupRow = 26;

/// A chip that ends at `right`, which then moves to its left; true when it was pressed.
bool ramp_chip(const ViewContext& context, float& right, float y, float height, const std::string& words, bool chosen) {
  const float left = right - chip_width(context, words);
  const ChipPress chip = chip_button(context, left, right, y, height, words, chosen);
  right = left - 6 * context.scale;
  return chip.pressed;
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::string ramp_end(double value) {
  return value >= 1000 && value < 1e7 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

Theme signed_theme(const Theme& theme) {
  Theme colors = theme;
  colors.name = theme.dark ? "dark signs" : "light signs";
  const Color negative = Color::hex(theme.dark ? 0x5AA9FF : 0x0B63C5);
  const Color positive = Color::hex(theme.dark ? 0xD9C05C : 0x8A6A00);
  const Color none = theme.cell(kZero);
  for (int step = 0; step < kSignedSteps; ++step) {
    const float t = 0.12F + 0.88F * static_cast<float>(step) / static_cast<float>(kSignedSteps - 1);
    colors.cells[signed_cell(step, true)] = mix(none, negative, t);
    colors.cells[signed_cell(step, false)] = mix(none, positive, t);
  }
  return colors;
}

void RampChoice::draw(const ViewContext& context, const TensorSheet& sheet, const FrontRange& shown, float& right,
                      float y, float height) {
  if (ramp_chip(context, right, y, height, "linear", ramp_ == Ramp::linear)) ramp_ = Ramp::linear;
  if (ramp_chip(context, right, y, height, "log", ramp_ == Ramp::log)) ramp_ = Ramp::log;
  if (ramp_chip(context, right, y, height, "\u00B1", signs_)) signs_ = !signs_;
  if (ImGui::IsItemHovered()) tooltip(context, "\u00B1", {"negative and positive values in colours of their own"});
  const bool set = range_ != RampRange{};
  const std::string words =
      range_.typed  ? fmt::format("{} to {}", ramp_end(range_.typed->smallest), ramp_end(range_.typed->largest))
      : range_.part ? std::string("range of a part")
                    : std::string("range");
  if (ramp_chip(context, right, y, height, words, set)) {
    from_ = fmt::format("{:.6g}", sheet.low);
    to_ = fmt::format("{:.6g}", sheet.high);
    mistake_.clear();
    ImGui::OpenPopup(kRampPopup);
  }
  draw_popup(context, sheet, shown);
}

void RampChoice::field(const ViewContext& context, const char* name, std::string& typed, float width) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float scale = context.scale;
  label(context.fonts.small, {at.x, at.y, 40 * scale, kPopupRow * scale}, context.theme.muted, name);
  ImGui::SetCursorScreenPos({at.x + 44 * scale, at.y});
  ImGui::PushID(name);
  ImGui::PushStyleColor(ImGuiCol_FrameBg, context.theme.panel.packed());
  ImGui::PushFont(context.fonts.mono);
  ImGui::SetNextItemWidth(width - 44 * scale);
  if (ImGui::InputText("##end", &typed, ImGuiInputTextFlags_EnterReturnsTrue)) apply();
  tell_item({at.x + 44 * scale, at.y, width - 44 * scale, kPopupRow * scale}, fmt::format("ramp {}", name));
  ImGui::PopFont();
  ImGui::PopStyleColor();
  ImGui::PopID();
  ImGui::SetCursorScreenPos({at.x, at.y + (kPopupRow + 4) * scale});
}

void RampChoice::apply() {
  const std::optional<double> from = number_of(from_);
  const std::optional<double> to = number_of(to_);
  const std::string& wrong = from ? to_ : from_;
  mistake_ = !from || !to                       ? fmt::format("{} is no number", in_quotes(wrong))
             : !(*from < *to)                   ? "the end must be above the beginning"
             : *from < 0                        ? "magnitudes are not negative"
             : *from == 0 && ramp_ == Ramp::log ? "a logarithmic ramp cannot begin at 0"
                                                : "";
  if (!mistake_.empty()) return;
  range_ = {MagnitudeRange{*from, *to}, std::nullopt};
  ImGui::CloseCurrentPopup();
}

void RampChoice::draw_popup(const ViewContext& context, const TensorSheet& sheet, const FrontRange& shown) {
  const float scale = context.scale;
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(12 * scale, 10 * scale));
  if (ImGui::BeginPopup(kRampPopup)) {
    const float width = kPopupWidth * scale;
    const Look look{context.theme, context.fonts, scale};
    const ImVec2 title = ImGui::GetCursorScreenPos();
    label(context.fonts.small, {title.x, title.y, width, 20 * scale}, context.theme.text,
          sheet.real ? "the ramp covers |real value|" : "the ramp covers |x|");
    ImGui::SetCursorScreenPos({title.x, title.y + 24 * scale});
    field(context, "from", from_, width);
    field(context, "to", to_, width);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    label(context.fonts.small, {at.x, at.y, width, 20 * scale},
          mistake_.empty() ? context.theme.muted : context.theme.ink(kNan),
          mistake_.empty() ? "Enter sets it" : mistake_);
    const float y = at.y + 26 * scale;
    const float half = (width - 8 * scale) / 2;
    if (button(look, "part", "what is in view", {at.x, y, half, kPopupRow * scale}, true)) {
      range_ = {std::nullopt, shown};
      ImGui::CloseCurrentPopup();
    }
    if (button(look, "all", "all elements", {at.x + half + 8 * scale, y, half, kPopupRow * scale}, true)) {
      range_ = {};
      ImGui::CloseCurrentPopup();
    }
    ImGui::SetCursorScreenPos({at.x, y + (kPopupRow + 2) * scale});
    ImGui::Dummy({width, 1});
    ImGui::EndPopup();
  }
  ImGui::PopStyleVar();
}

}  // namespace nanscope::gui
