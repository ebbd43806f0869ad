#include "gui/views/scale_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/cell_paint.h"
#include "gui/context_menu.h"
#include "gui/marks.h"
#include "gui/views/policy_table.h"

namespace nanscope::gui {
namespace {

constexpr float kChartLine = 16;
constexpr float kChartTitle = 22;
constexpr float kAxis = 46;  ///< left of a chart, for the values
constexpr float kLeastChartHeight = 74;
constexpr float kMostChart = 420;
constexpr float kRoomForWords = 72;  ///< a chart of this height has room for words
constexpr float kRoomForName = 58;   ///< a request's band of this width holds more than its number
constexpr float kTwoColumnsFrom = 460;
constexpr float kRightOfPlot = 10;
constexpr float kRoundFrom = 4;  ///< points so many pixels apart are round

std::size_t charts_across(float width, std::size_t lines, float scale) {
  return width >= kTwoColumnsFrom * scale && lines > 1 ? 2 : 1;
}

/// Colours of a chart's point; healthy ones in the ramp's brightest.
Color tone_of(const Theme& theme, Cell cell) { return theme.cell(cell <= kHealthyLast ? kHealthyLast : cell); }

std::vector<std::string> words_of(const LedgerEntry& entry) {
  std::vector<std::string> lines;
  const std::string room = has_headroom(entry) ? ": headroom " + headroom_text(entry.row.headroom) : "";
  lines.push_back(fmt::format("largest |value| {} of at most {}{}", short_number(entry.row.absmax),
                              short_number(entry.limit), room));
  lines.push_back(fmt::format("{}, scale {}", name(entry.row.format), short_number(entry.row.scale)));
  if (entry.clipped > 0) lines.push_back(fmt::format("{} of {} values clipped", entry.clipped, entry.elements));
  if (entry.nan > 0) lines.push_back(fmt::format("{} of {} values stored as NaN", entry.nan, entry.elements));
  lines.push_back(set_by(entry));
  return lines;
}

std::string place_of(const LedgerEntry& entry) {
  return fmt::format("{}   {}", entry.name, to_string(entry.target.place));
}

/// One layer's k or v.
class Chart {
 public:
  Chart(const ScaleSheet& sheet, std::size_t line, Area area)
      : sheet_(sheet),
        line_(sheet.ledger.lines[line]),
        columns_(sheet.columns.lines[line]),
        area_(area),
        plot_{area.x + sheet.px(kAxis), area.y + sheet.px(kChartTitle), area.width - sheet.px(kAxis + kRightOfPlot),
              area.height - sheet.px(kChartTitle + 12)} {}

  void draw() {
    const LedgerEntry* chosen = sheet_.chosen ? &sheet_.ledger.entries[*sheet_.chosen] : nullptr;
    const bool here = chosen != nullptr && chosen->name == line_.name;
    if (here) fill(area_.inset(sheet_.px(3), sheet_.px(1)), sheet_.theme().raised, sheet_.px(6));
    title();
    grid();
    if (chosen != nullptr) {
      const float half = std::max(sheet_.px(3), plot_.width / static_cast<float>(sheet_.ledger.steps.size()) / 2);
      fill({sheet_.x(plot_, chosen->step) - half, plot_.y, 2 * half, plot_.height}, sheet_.theme().text.alpha(28));
    }
    if (sheet_.ledger.quantized) limit();
    const bool compared = sheet_.policies != nullptr && &sheet_.ledger.lines[sheet_.policies->line] == &line_;
    for (std::size_t i = 0; compared && i < sheet_.limits.size(); ++i) other_limit(sheet_.limits[i]);
    values();
    lock();
    input();
  }

 private:
  float x(std::size_t column) const {
    return plot_.x + plot_.width * (static_cast<float>(column) + 0.5F) / static_cast<float>(columns_.size());
  }

  void title() const {
    const Theme& theme = sheet_.theme();
    const LedgerEntry& lowest = sheet_.ledger.entries[line_.lowest];
    const Area head{area_.x + sheet_.px(10), area_.y + sheet_.px(2), area_.width - sheet_.px(20),
                    sheet_.px(kChartTitle - 2)};
    std::string name = line_.name;
    if (lowest.below() && plot_.height < sheet_.px(kRoomForWords)) name += ": " + words_of_lowest();
    const bool clips = lowest.below();
    const std::string least =
        fmt::format("{} {}", clips ? "headroom" : "least headroom", headroom_text(lowest.row.headroom));
    const bool tells = sheet_.ledger.quantized && has_headroom(lowest);
    const float taken = tells ? chip_width(sheet_.context, least) + sheet_.px(8) : 0;
    label(sheet_.context.fonts.small, {head.x, head.y, head.width - taken, head.height}, theme.text, name);
    if (!tells) return;
    if (clips) {
      chip_left_of(sheet_.context, head.right(), head.y + sheet_.px(1), sheet_.px(17), least, theme.cell(kClipped),
                   ink_on(theme, kClipped));
    } else {
      label(sheet_.context.fonts.small, head, theme.muted, least, 1);
    }
  }

  void grid() const {
    const Theme& theme = sheet_.theme();
    fill(plot_, theme.cell(kAbsent), sheet_.px(3));
    const auto most = static_cast<std::size_t>(plot_.height / sheet_.px(19));
    for (const double tick : sheet_.axis.ticks(most)) {
      const float y = std::floor(sheet_.y(plot_, tick));
      fill({plot_.x, y, plot_.width, 1}, theme.line.alpha(150));
      label(sheet_.context.fonts.mono_small, {area_.x, y - sheet_.px(7), sheet_.px(kAxis - 6), sheet_.px(14)},
            theme.muted, short_number(tick), 1);
    }
    for (const LedgerBand& band : sheet_.ledger.bands) {
      if (band.first == 0) continue;
      const float between = (sheet_.x(plot_, band.first - 1) + sheet_.x(plot_, band.first)) / 2;
      fill({std::floor(between), plot_.y, sheet_.px(2), plot_.height}, theme.panel);
    }
  }

  /// How large a stored value may be, step by step.
  void limit() const {
    const Color color = sheet_.theme().accent;
    const float half = plot_.width / static_cast<float>(columns_.size()) / 2;
    float before = 0;
    for (std::size_t i = 0; i < columns_.size();) {
      const std::size_t first = i;
      const double least = columns_[first].limit;
      while (i < columns_.size() && columns_[i].limit == least) ++i;
      if (i == first) ++i;  // a NaN, which is not equal to itself
      if (!(least > 0)) continue;
      const float y = sheet_.y(plot_, least);
      const float left = x(first) - half;
      line({left, y}, {x(i - 1) + half, y}, color, sheet_.px(1.5F));
      if (before > 0 && std::abs(before - y) > 1) line({left, before}, {left, y}, color, sheet_.px(1.5F));
      before = y;
    }
  }

  /// The same under another policy, dashed and named.
  void other_limit(std::size_t policy) const {
    const Color color = sheet_.theme().text.alpha(200);
    const float half = plot_.width / static_cast<float>(columns_.size()) / 2;
    const std::vector<double>& limits = sheet_.columns.limits[policy];
    const float dash = sheet_.px(5);
    for (float from = plot_.x; from < plot_.right(); from += 2 * dash) {
      const auto column = static_cast<std::size_t>((from - plot_.x) / (2 * half));
      if (column >= limits.size() || !(limits[column] > 0)) continue;
      const float y = sheet_.y(plot_, limits[column]);
      line({from, y}, {std::min(from + dash, plot_.right()), y}, color, sheet_.px(1.5F));
    }
    const double last = limits.empty() ? 0 : limits.back();
    if (!(last > 0) || plot_.height < sheet_.px(kRoomForWords)) return;
    const float above = sheet_.y(plot_, last) - sheet_.px(17);
    label(sheet_.context.fonts.small,
          {plot_.x, above < plot_.y ? above + sheet_.px(19) : above, plot_.width - sheet_.px(4), sheet_.px(kChartLine)},
          color, sheet_.policies->policies[policy].name, 1);
  }

  void values() const {
    const Theme& theme = sheet_.theme();
    const float pitch = plot_.width / static_cast<float>(columns_.size());
    const float radius = std::clamp(pitch * 0.3F, sheet_.px(1), sheet_.px(3));
    std::optional<std::size_t> before;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const LedgerColumn& column = columns_[i];
      const ImVec2 point(x(i), sheet_.y(plot_, column.absmax));
      if (column.absmax > 0) {
        if (before)
          line({x(*before), sheet_.y(plot_, columns_[*before].absmax)}, point, theme.cell(kHealthyLast).alpha(150));
        if (column.absmax > column.limit && column.limit > 0) over(point, sheet_.y(plot_, column.limit), pitch);
        const Cell health = column.nan ? kHealthyLast : column.health;
        dot(point, health == kClipped ? sheet_.px(4) : radius, pitch, tone_of(theme, health));
        before = i;
      } else {
        before.reset();
      }
      if (column.nan) {
        const float width = std::max(sheet_.px(2), pitch - sheet_.px(1));
        fill_cell(theme, sheet_.context.fonts,
                  {point.x - width / 2, plot_.bottom() - sheet_.px(6), width, sheet_.px(6)}, kNan);
      }
    }
    mark_lowest();
  }

  /// Round where that can be told; where points touch each other, thousands are drawn in a frame.
  void dot(ImVec2 at, float radius, float pitch, Color color) const {
    if (pitch >= sheet_.px(kRoundFrom)) {
      ImGui::GetWindowDrawList()->AddCircleFilled(at, radius, color.packed(), 16);
    } else {
      const float half = std::min(radius, std::max(pitch / 2, sheet_.px(1)));
      fill({at.x - half, at.y - radius, 2 * half, 2 * radius}, color);
    }
  }

  /// What was cut off.
  void over(ImVec2 point, float limit, float pitch) const {
    const float width = std::max(sheet_.px(5), pitch * 0.9F);
    fill({point.x - width / 2, point.y, width, limit - point.y}, sheet_.theme().cell(kClipped).alpha(150));
  }

  std::string words_of_lowest() const {
    const LedgerEntry& lowest = sheet_.ledger.entries[line_.lowest];
    const Place& place = lowest.target.place;
    return fmt::format("{} of at most {}, request {} step {}", short_number(lowest.row.absmax),
                       short_number(lowest.limit), place.request.value_or(0), place.step.value_or(0));
  }

  void mark_lowest() const {
    const LedgerEntry& lowest = sheet_.ledger.entries[line_.lowest];
    if (!lowest.below() || plot_.height < sheet_.px(kRoomForWords)) return;
    const ImVec2 point(sheet_.x(plot_, lowest.step), sheet_.y(plot_, lowest.row.absmax));
    const float beside = sheet_.px(8) + std::max(sheet_.px(4), plot_.width / static_cast<float>(columns_.size()) / 2);
    const float room_right = plot_.right() - point.x - beside;
    const float room_left = point.x - beside - plot_.x;
    std::string words = words_of_lowest();
    const auto width_of = [&] { return text_size(sheet_.context.fonts.small, words).x + 1; };
    if (width_of() > std::max(room_right, room_left)) words = short_number(lowest.row.absmax);
    const float width = width_of();
    if (width > std::max(room_right, room_left)) return;
    const float left = width <= room_right ? point.x + beside : point.x - beside - width;
    const Area box{left, std::max(plot_.y, point.y - sheet_.px(8)), width, sheet_.px(kChartLine)};
    fill(box.inset(-sheet_.px(3), 0), sheet_.theme().cell(kAbsent).alpha(225), sheet_.px(3));
    label(sheet_.context.fonts.small, box, sheet_.theme().text, words);
  }

  /// From here on nothing that is stored changes the scale.
  void lock() const {
    if (!line_.locked) return;
    const LedgerEntry& entry = sheet_.ledger.entries[*line_.locked];
    const ImVec2 at(sheet_.x(plot_, entry.step), sheet_.y(plot_, entry.limit));
    const Color color = sheet_.theme().accent;
    ImGui::GetWindowDrawList()->AddNgonFilled(at, sheet_.px(5), color.packed(), 4);
    if (plot_.height < sheet_.px(48)) return;
    const float above = at.y - sheet_.px(17);
    label(sheet_.context.fonts.small,
          {at.x + sheet_.px(4), above < plot_.y ? at.y + sheet_.px(2) : above, sheet_.px(60), sheet_.px(kChartLine)},
          color, "locked");
  }

  void input() const {
    ImGui::SetCursorScreenPos(area_.min());
    ImGui::PushID(&line_);
    const bool clicked = ImGui::InvisibleButton("chart", {area_.width, area_.height});
    ImGui::PopID();
    const bool asked = asked_for_menu();
    if (!ImGui::IsItemHovered() && !clicked) return;
    const float at = (ImGui::GetIO().MousePos.x - plot_.x) / plot_.width * static_cast<float>(columns_.size());
    const auto column = static_cast<std::size_t>(std::clamp(at, 0.0F, static_cast<float>(columns_.size() - 1)));
    if (!columns_[column].worst) return;
    if (clicked) choose_entry(sheet_, *columns_[column].worst);
    if (asked) sheet_.actions.menu({sheet_.ledger.entries[*columns_[column].worst].target});
    hover_entry(sheet_, *columns_[column].worst);
  }

  const ScaleSheet& sheet_;
  const LedgerLine& line_;
  const std::vector<LedgerColumn>& columns_;
  Area area_;
  Area plot_;
};

/// The requests whose steps the charts below show.
void draw_requests(const ScaleSheet& sheet, Area area) {
  const std::vector<LedgerStep>& steps = sheet.ledger.steps;
  const Area plot{area.x + sheet.px(kAxis), area.y, area.width - sheet.px(kAxis + kRightOfPlot), area.height};
  const float half = plot.width / static_cast<float>(steps.size()) / 2;
  for (const auto& [i, last] : sheet.ledger.bands) {
    const float left = sheet.x(plot, i) - half;
    const Area band{left, area.y + sheet.px(2), sheet.x(plot, last) + half - left - sheet.px(2),
                    area.height - sheet.px(5)};
    if (sheet.context.printed) {
      fill({band.x, band.bottom(), band.width, sheet.px(1)}, sheet.theme().muted);
    } else {
      fill(band, sheet.theme().raised, sheet.px(3));
    }
    const std::string id = steps[i].request.value_or(-1) < 0 ? "" : fmt::format("{}  ", *steps[i].request);
    if (band.width > sheet.px(16)) {
      const bool named = band.width > sheet.px(kRoomForName);
      label(sheet.context.fonts.small, band.inset(sheet.px(5), 0), sheet.theme().text,
            named ? id + printable(steps[i].title) : id);
    }
  }
}

}  // namespace

void choose_entry(const ScaleSheet& sheet, std::size_t entry) {
  sheet.actions.choose(sheet.ledger.entries[entry].target);
}

void hover_entry(const ScaleSheet& sheet, std::size_t index) {
  const LedgerEntry& entry = sheet.ledger.entries[index];
  ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  sheet.actions.hint("go to " + to_string(entry.target.place));
  std::vector<std::string> lines = words_of(entry);
  if (sheet.policies != nullptr) {
    for (std::string& words : words_of_policies(*sheet.policies, index)) lines.push_back(std::move(words));
  }
  tooltip(sheet.context, place_of(entry), lines);
}

std::size_t chart_columns(float width, std::size_t lines, float scale) {
  const auto across = static_cast<float>(charts_across(width, lines, scale));
  return columns_of(width / across - (kAxis + kRightOfPlot) * scale);
}

void draw_charts(const ScaleSheet& sheet, Area area, std::optional<std::size_t> bring) {
  const std::size_t across = charts_across(area.width, sheet.ledger.lines.size(), sheet.context.scale);
  const float width = area.width / static_cast<float>(across);
  const float band = sheet.px(kRequestBand);
  for (std::size_t i = 0; i < across; ++i) {
    draw_requests(sheet, {area.x + width * static_cast<float>(i), area.y, width, band});
  }
  const std::size_t rows = (sheet.ledger.lines.size() + across - 1) / across;
  const float room = area.height - band;
  const float height = std::clamp(room / static_cast<float>(rows), sheet.px(kLeastChartHeight), sheet.px(kMostChart));
  ImGui::SetCursorScreenPos({area.x, area.y + band});
  ImGui::BeginChild("charts", {area.width, room}, false, ImGuiWindowFlags_NoBackground);
  if (bring) {
    const float at = height * static_cast<float>(*bring / across);
    if (at < ImGui::GetScrollY() || at + height > ImGui::GetScrollY() + room) {
      ImGui::SetScrollY(std::max(0.0F, at + height / 2 - room / 2));
    }
  }
  const ImVec2 start = ImGui::GetCursorScreenPos();
  for (std::size_t i = 0; i < sheet.ledger.lines.size(); ++i) {
    const std::size_t row = i / across;
    const Area cell{start.x + width * static_cast<float>(i % across), start.y + height * static_cast<float>(row), width,
                    height};
    if (ImGui::IsRectVisible(cell.min(), cell.max())) Chart(sheet, i, cell).draw();
  }
  ImGui::SetCursorScreenPos({start.x, start.y + height * static_cast<float>(rows) - 1});
  ImGui::Dummy({1, 1});
  ImGui::EndChild();
}

}  // namespace nanscope::gui
