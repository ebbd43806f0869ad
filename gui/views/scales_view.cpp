#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/ledger.h"
#include "gui/views/registry.h"

/// The scale ledger over the steps of the run: how large the stored values were against how large
/// they could be.
namespace nanscope::gui {
namespace {

constexpr float kMargin = 18;
constexpr float kLine = 16;
constexpr float kLegend = 30;
constexpr float kRequests = 24;  ///< the band of requests above the charts
constexpr float kChartTitle = 22;
constexpr float kAxis = 46;  ///< left of a chart, for the values
constexpr float kLeastChart = 74;
constexpr float kMostChart = 420;
constexpr float kWideFrom = 1360;    ///< from this width on, the table stands beside the charts
constexpr float kTableFrom = 460;    ///< below this height the charts take it all
constexpr float kRoomForWords = 72;  ///< a chart of this height has room for words
constexpr float kRoomForName = 58;   ///< a request's band of this width holds more than its number
constexpr float kTwoColumnsFrom = 460;
constexpr float kTableWide = 640;
constexpr float kRow = 21;

struct TableColumn {
  const char* title;
  float width;
  float align;
};

constexpr TableColumn kColumns[] = {{"at", 44, 0},       {"layer", 40, 1},      {"", 22, 0.5F},
                                    {"scale", 66, 1},    {"limit", 58, 1},      {"absmax", 58, 1},
                                    {"headroom", 68, 1}, {"not finite", 72, 1}, {"set by", 150, 0}};
constexpr std::size_t kHeadroomColumn = 6;
constexpr std::size_t kNanColumn = 7;

/// Colours of a chart's point; healthy ones in the ramp's brightest.
Color tone(const Theme& theme, Cell cell) { return theme.cell(cell <= kHealthyLast ? kHealthyLast : cell); }

std::vector<std::string> words_of(const LedgerEntry& entry) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("largest |value| {} of at most {}: headroom {}", short_number(entry.row.absmax),
                              short_number(entry.limit), headroom_text(entry.row.headroom)));
  lines.push_back(fmt::format("{}, scale {}", name(entry.row.format), short_number(entry.row.scale)));
  if (entry.clipped > 0) lines.push_back(fmt::format("{} of {} values clipped", entry.clipped, entry.elements));
  if (entry.nan > 0) lines.push_back(fmt::format("{} of {} values stored as NaN", entry.nan, entry.elements));
  lines.push_back(set_by(entry.row));
  return lines;
}

std::string place_of(const LedgerEntry& entry) {
  return fmt::format("{} {}", to_string(entry.target.place), entry.row.target);
}

/// What is drawn in one frame.
struct Sheet {
  const Ledger& ledger;
  const ViewContext& context;
  const ViewActions& actions;
  std::optional<std::size_t> chosen;  ///< entry
  LogAxis axis;

  float px(float pixels) const { return pixels * context.scale; }
  const Theme& theme() const { return context.theme; }
  /// Of a step's middle.
  float x(Area plot, std::size_t step) const {
    return plot.x + plot.width * (static_cast<float>(step) + 0.5F) / static_cast<float>(ledger.steps.size());
  }
  float y(Area plot, double value) const { return plot.bottom() - plot.height * static_cast<float>(axis.at(value)); }
};

void choose(const Sheet& sheet, std::size_t entry) { sheet.actions.choose(sheet.ledger.entries[entry].target); }

void hover(const Sheet& sheet, std::size_t index) {
  const LedgerEntry& entry = sheet.ledger.entries[index];
  ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
  sheet.actions.hint("go to " + to_string(entry.target.place));
  tooltip(sheet.context, place_of(entry), words_of(entry));
}

/// One layer's k or v.
class Chart {
 public:
  Chart(const Sheet& sheet, const LedgerLine& line, Area area)
      : sheet_(sheet),
        line_(line),
        area_(area),
        plot_{area.x + sheet.px(kAxis), area.y + sheet.px(kChartTitle), area.width - sheet.px(kAxis + 10),
              area.height - sheet.px(kChartTitle + 12)} {}

  void draw() {
    columns_ = squeeze(sheet_.ledger, line_, static_cast<std::size_t>(std::max(1.0F, plot_.width / 2)));
    const LedgerEntry* chosen = sheet_.chosen ? &sheet_.ledger.entries[*sheet_.chosen] : nullptr;
    const bool here = chosen != nullptr && chosen->row.layer == line_.layer && chosen->row.target == line_.target;
    if (here) fill(area_.inset(sheet_.px(3), sheet_.px(1)), sheet_.theme().raised, sheet_.px(6));
    title();
    grid();
    if (chosen != nullptr) {
      const float half = std::max(sheet_.px(3), plot_.width / static_cast<float>(sheet_.ledger.steps.size()) / 2);
      fill({sheet_.x(plot_, chosen->step) - half, plot_.y, 2 * half, plot_.height}, sheet_.theme().text.alpha(28));
    }
    if (sheet_.ledger.quantized) limit();
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
    std::string name = fmt::format("layer {} {}", line_.layer, line_.target);
    if (lowest.below() && plot_.height < sheet_.px(kRoomForWords)) name += ": " + words_of_lowest();
    const bool clips = lowest.below();
    const std::string least =
        fmt::format("{} {}", clips ? "headroom" : "least headroom", headroom_text(lowest.row.headroom));
    const float taken = sheet_.ledger.quantized ? chip_width(sheet_.context, least) + sheet_.px(8) : 0;
    label(sheet_.context.fonts.small, {head.x, head.y, head.width - taken, head.height}, theme.text, name);
    if (!sheet_.ledger.quantized) return;
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
    for (std::size_t i = 1; i < sheet_.ledger.steps.size(); ++i) {
      if (sheet_.ledger.steps[i].row.request == sheet_.ledger.steps[i - 1].row.request) continue;
      const float between = (sheet_.x(plot_, i - 1) + sheet_.x(plot_, i)) / 2;
      fill({std::floor(between), plot_.y, sheet_.px(2), plot_.height}, theme.panel);
    }
  }

  /// How large a stored value may be, step by step.
  void limit() const {
    const Color color = sheet_.theme().accent;
    const float half = plot_.width / static_cast<float>(columns_.size()) / 2;
    float before = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (!(columns_[i].limit > 0)) continue;
      const float y = sheet_.y(plot_, columns_[i].limit);
      line({x(i) - half, y}, {x(i) + half, y}, color, sheet_.px(1.5F));
      if (before > 0 && std::abs(before - y) > 1) line({x(i) - half, before}, {x(i) - half, y}, color, sheet_.px(1.5F));
      before = y;
    }
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
        ImGui::GetWindowDrawList()->AddCircleFilled(point, health == kClipped ? sheet_.px(4) : radius,
                                                    tone(theme, health).packed(), 16);
        before = i;
      } else {
        before.reset();
      }
      if (column.nan) {
        const float width = std::max(sheet_.px(2), pitch - sheet_.px(1));
        fill({point.x - width / 2, plot_.bottom() - sheet_.px(6), width, sheet_.px(6)}, theme.cell(kNan));
      }
    }
    mark_lowest();
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
    const Area box{left, std::max(plot_.y, point.y - sheet_.px(8)), width, sheet_.px(kLine)};
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
          {at.x + sheet_.px(4), above < plot_.y ? at.y + sheet_.px(2) : above, sheet_.px(60), sheet_.px(kLine)}, color,
          "locked");
  }

  void input() const {
    ImGui::SetCursorScreenPos(area_.min());
    ImGui::PushID(&line_);
    const bool clicked = ImGui::InvisibleButton("chart", {area_.width, area_.height});
    ImGui::PopID();
    if (!ImGui::IsItemHovered() && !clicked) return;
    const float at = (ImGui::GetIO().MousePos.x - plot_.x) / plot_.width * static_cast<float>(columns_.size());
    const auto column = static_cast<std::size_t>(std::clamp(at, 0.0F, static_cast<float>(columns_.size() - 1)));
    if (!columns_[column].worst) return;
    if (clicked) choose(sheet_, *columns_[column].worst);
    hover(sheet_, *columns_[column].worst);
  }

  const Sheet& sheet_;
  const LedgerLine& line_;
  Area area_;
  Area plot_;
  std::vector<LedgerColumn> columns_;
};

/// The requests whose steps the charts below show.
void draw_requests(const Sheet& sheet, Area area) {
  const std::vector<LedgerStep>& steps = sheet.ledger.steps;
  const Area plot{area.x + sheet.px(kAxis), area.y, area.width - sheet.px(kAxis + 10), area.height};
  const float half = plot.width / static_cast<float>(steps.size()) / 2;
  for (std::size_t i = 0; i < steps.size();) {
    std::size_t next = i + 1;
    while (next < steps.size() && steps[next].row.request == steps[i].row.request) ++next;
    const float left = sheet.x(plot, i) - half;
    const Area band{left, area.y + sheet.px(2), sheet.x(plot, next - 1) + half - left - sheet.px(2),
                    area.height - sheet.px(5)};
    fill(band, sheet.theme().raised, sheet.px(3));
    const std::string id = steps[i].row.request < 0 ? "" : fmt::format("{}  ", steps[i].row.request);
    if (band.width > sheet.px(16)) {
      const bool named = band.width > sheet.px(kRoomForName);
      label(sheet.context.fonts.small, band.inset(sheet.px(5), 0), sheet.theme().text,
            named ? id + printable(steps[i].request) : id);
    }
    i = next;
  }
}

void draw_charts(const Sheet& sheet, Area area) {
  const bool two = area.width >= sheet.px(kTwoColumnsFrom) && sheet.ledger.lines.size() > 1;
  const std::size_t across = two ? 2 : 1;
  const float width = area.width / static_cast<float>(across);
  const float band = sheet.px(kRequests);
  for (std::size_t i = 0; i < across; ++i) {
    draw_requests(sheet, {area.x + width * static_cast<float>(i), area.y, width, band});
  }
  const std::size_t rows = (sheet.ledger.lines.size() + across - 1) / across;
  const float room = area.height - band;
  const float height = std::clamp(room / static_cast<float>(rows), sheet.px(kLeastChart), sheet.px(kMostChart));
  ImGui::SetCursorScreenPos({area.x, area.y + band});
  ImGui::BeginChild("charts", {area.width, room}, false, ImGuiWindowFlags_NoBackground);
  const ImVec2 start = ImGui::GetCursorScreenPos();
  for (std::size_t i = 0; i < sheet.ledger.lines.size(); ++i) {
    const std::size_t row = i / across;
    const Area cell{start.x + width * static_cast<float>(i % across), start.y + height * static_cast<float>(row), width,
                    height};
    if (ImGui::IsRectVisible(cell.min(), cell.max())) Chart(sheet, sheet.ledger.lines[i], cell).draw();
  }
  ImGui::SetCursorScreenPos({start.x, start.y + height * static_cast<float>(rows) - 1});
  ImGui::Dummy({1, 1});
  ImGui::EndChild();
}

/// One line for a reader who has not seen such charts before.
void draw_legend(const Sheet& sheet, Area area) {
  float x = area.x;
  const auto words = [&](std::string_view said) {
    const float width = text_size(sheet.context.fonts.small, said).x;
    label(sheet.context.fonts.small, {x, area.y, width + 1, area.height}, sheet.theme().muted, said);
    x += width + sheet.px(20);
  };
  const float middle = area.y + area.height / 2;
  const auto swatch = [&](Color color) {
    fill({x, middle - sheet.px(5), sheet.px(10), sheet.px(10)}, color, sheet.px(2));
    x += sheet.px(16);
  };
  if (sheet.ledger.quantized) {
    line({x, middle}, {x + sheet.px(16), middle}, sheet.theme().accent, sheet.px(1.5F));
    x += sheet.px(22);
    words("limit: largest finite \u00D7 scale");
  }
  ImGui::GetWindowDrawList()->AddCircleFilled({x + sheet.px(4), middle}, sheet.px(3),
                                              sheet.theme().cell(kHealthyLast).packed(), 16);
  x += sheet.px(14);
  words("largest |value| stored");
  if (sheet.ledger.quantized) {
    swatch(sheet.theme().cell(kClipped));
    words("beyond the limit: clipped");
  }
  swatch(sheet.theme().cell(kNan));
  words("NaN stored");
}

class ScalesView final : public View {
 public:
  std::string_view name() const override { return "scales"; }
  std::string_view title() const override { return "Scales"; }
  std::string_view caption() const override { return "the largest stored value of each step against its scale"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override { return table_maker<Ledger>(prepared); }

  std::optional<ViewRequest> prepare(const ViewContext&, Area) override {
    return ViewRequest{"ledger", [](RunFacts& facts) -> Result<PreparedPtr> {
                         RecordingRun run(facts.recording());
                         Result<Ledger> made = make_ledger(run);
                         if (!made) return tl::unexpected(made.error());
                         return std::make_shared<const Ledger>(std::move(*made));
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    const auto& ledger = static_cast<const Ledger&>(*prepared);
    if (ledger.entries.empty()) {
      notice(context, area, "No scale was used", "This run stored nothing in a KV cache, so there is no ledger.");
      return;
    }
    const Sheet sheet{ledger, context, actions, ledger.find(context.selection), axis_of(ledger)};
    const float top = draw_head(sheet, area);
    const Area rest{area.x, area.y + top, area.width, area.height - top};
    if (area.width >= sheet.px(kWideFrom)) {
      const float table = sheet.px(kTableWide + kMargin);
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, rest.width - table - sheet.px(16), rest.height});
      draw_table(sheet, {rest.right() - table, rest.y, table - sheet.px(6), rest.height});
    } else if (rest.height < sheet.px(kTableFrom)) {
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, rest.width - sheet.px(12), rest.height});
    } else {
      const float charts = std::floor(rest.height * 0.62F);
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, rest.width - sheet.px(12), charts});
      draw_table(sheet, {rest.x + sheet.px(kMargin), rest.y + charts, rest.width - sheet.px(kMargin + 6),
                         rest.height - charts});
    }
  }

 private:
  /// Answers its height.
  static float draw_head(const Sheet& sheet, Area area) {
    const Theme& theme = sheet.theme();
    const float left = area.x + sheet.px(kMargin);
    const float width = area.width - sheet.px(2 * kMargin);
    float y = area.y + sheet.px(12);
    label(sheet.context.fonts.title, {left, y, width, sheet.px(20)},
          sheet.ledger.below.empty() ? theme.accent : theme.cell(kClipped), sheet.ledger.headline);
    y += sheet.px(24);
    for (const std::string& words : wrap(sheet.context.fonts.small, sheet.ledger.rule, width, 3)) {
      label(sheet.context.fonts.small, {left, y, width + 1, sheet.px(kLine)}, theme.text, words);
      y += sheet.px(kLine);
    }
    draw_legend(sheet, {left, y + sheet.px(2), width, sheet.px(kLegend)});
    return y + sheet.px(kLegend + 4) - area.y;
  }

  void draw_table(const Sheet& sheet, Area area) {
    const float head = sheet.px(kRequests);
    draw_order(sheet, {area.x, area.y, area.width, head});
    const float titles = area.y + head + sheet.px(4);
    for_columns(sheet, area.x, area.width, [&](std::size_t i, float x, float width) {
      label(sheet.context.fonts.small, {x, titles, width, sheet.px(18)}, sheet.theme().muted, kColumns[i].title,
            kColumns[i].align);
    });
    const float rows = titles + sheet.px(20);
    fill({area.x, rows - 1, area.width, 1}, sheet.theme().line);
    ImGui::SetCursorScreenPos({area.x, rows});
    ImGui::BeginChild("entries", {area.width, area.bottom() - rows}, false, ImGuiWindowFlags_NoBackground);
    draw_rows(sheet, area.width);
    ImGui::EndChild();
  }

  /// Which entries come first.
  void draw_order(const Sheet& sheet, Area area) {
    float x = area.x;
    const auto button = [&](const char* said, bool on) {
      const float width = chip_width(sheet.context, said);
      const Area box{x, area.y + sheet.px(2), width, area.height - sheet.px(5)};
      ImGui::SetCursorScreenPos(box.min());
      const bool clicked = ImGui::InvisibleButton(said, {box.width, box.height});
      const bool pointed = ImGui::IsItemHovered();
      chip(sheet.context, box, said, on || pointed ? sheet.theme().raised : sheet.theme().panel,
           on ? sheet.theme().text : sheet.theme().muted);
      x += width + sheet.px(6);
      return clicked;
    };
    if (button("least headroom first", !in_order_)) in_order_ = false;
    if (button("in the order of the run", in_order_)) in_order_ = true;
    label(sheet.context.fonts.small, {x, area.y, area.right() - x - sheet.px(12), area.height}, sheet.theme().muted,
          fmt::format("{} entries", sheet.ledger.entries.size()), 1);
  }

  template <class Visit>
  static void for_columns(const Sheet& sheet, float x, float width, const Visit& visit) {
    constexpr std::size_t kLast = std::size(kColumns) - 1;
    float at = x + sheet.px(6);
    for (std::size_t i = 0; i <= kLast; ++i) {
      const float own = i == kLast ? x + width - sheet.px(10) - at : sheet.px(kColumns[i].width);
      if (own > 0) visit(i, at, own);
      at += own + sheet.px(i + 2 == std::size(kColumns) ? 14 : 0);
    }
  }

  std::size_t entry_at(const Ledger& ledger, std::size_t row) const {
    return in_order_ ? row : ledger.by_headroom[row];
  }

  void draw_rows(const Sheet& sheet, float width) {
    const std::size_t count = sheet.ledger.entries.size();
    const float height = sheet.px(kRow);
    const ImVec2 start = ImGui::GetCursorScreenPos();
    follow(sheet, height);
    const float scrolled = ImGui::GetScrollY();
    const auto first = static_cast<std::size_t>(std::max(0.0F, scrolled / height));
    const auto last = std::min(count, first + static_cast<std::size_t>(ImGui::GetWindowHeight() / height) + 2);
    for (std::size_t row = first; row < last; ++row) {
      draw_row(sheet, entry_at(sheet.ledger, row),
               {start.x, start.y + static_cast<float>(row) * height, width, height});
    }
    ImGui::SetCursorScreenPos({start.x, start.y + static_cast<float>(count) * height});
    ImGui::Dummy({1, 1});
  }

  /// Scrolls to an entry that was chosen elsewhere.
  void follow(const Sheet& sheet, float height) {
    if (sheet.chosen == followed_) return;
    followed_ = sheet.chosen;
    if (!followed_) return;
    for (std::size_t row = 0; row < sheet.ledger.entries.size(); ++row) {
      if (entry_at(sheet.ledger, row) != *followed_) continue;
      const float at = static_cast<float>(row) * height;
      const bool seen = at >= ImGui::GetScrollY() && at + height <= ImGui::GetScrollY() + ImGui::GetWindowHeight();
      if (!seen) ImGui::SetScrollY(std::max(0.0F, at - ImGui::GetWindowHeight() / 2));
    }
  }

  static void draw_row(const Sheet& sheet, std::size_t index, Area area) {
    const Theme& theme = sheet.theme();
    const LedgerEntry& entry = sheet.ledger.entries[index];
    ImGui::SetCursorScreenPos(area.min());
    ImGui::PushID(static_cast<int>(index));
    const bool clicked = ImGui::InvisibleButton("entry", {area.width, area.height});
    ImGui::PopID();
    const bool pointed = ImGui::IsItemHovered();
    const bool chosen = sheet.chosen == index;
    if (chosen || pointed) fill(area, chosen ? theme.raised : theme.raised.alpha(140), sheet.px(4));
    const Place& place = entry.target.place;
    const bool none = entry.row.source == ScaleSource::none;
    const std::string cells[] = {place.request.value_or(0) < 0
                                     ? "warm"
                                     : fmt::format("{}/{}", place.request.value_or(0), place.step.value_or(0)),
                                 fmt::format("{}", entry.row.layer),
                                 entry.row.target,
                                 none ? "\u2013" : short_number(entry.row.scale),
                                 short_number(entry.limit),
                                 short_number(entry.row.absmax),
                                 none ? "\u2013" : headroom_text(entry.row.headroom),
                                 entry.nan > 0 ? fmt::format("{} NaN", entry.nan) : "",
                                 set_by_briefly(entry.row)};
    for_columns(sheet, area.x, area.width, [&](std::size_t i, float x, float width) {
      const bool words = i + 1 == std::size(kColumns);
      const Area box{x, area.y, width, area.height};
      Cell ground = kAbsent;
      if (i == kHeadroomColumn && entry.row.headroom < kLowHeadroomBelow) {
        ground = entry.below() ? kClipped : kLowHeadroom;
      }
      if (i == kNanColumn && entry.nan > 0) ground = kNan;
      if (ground != kAbsent) {
        const float wide = text_size(sheet.context.fonts.mono_small, cells[i]).x + sheet.px(10);
        fill({box.right() - wide + sheet.px(5), box.y + sheet.px(2), wide, box.height - sheet.px(4)},
             theme.cell(ground), sheet.px(3));
      }
      const Color plain = cells[i] == "NaN" ? theme.cell(kNan) : words ? theme.muted : theme.text;
      const Color ink = ground != kAbsent ? ink_on(theme, ground) : plain;
      label(words ? sheet.context.fonts.small : sheet.context.fonts.mono_small, box, ink, cells[i], kColumns[i].align);
    });
    if (clicked) choose(sheet, index);
    if (pointed) hover(sheet, index);
  }

  bool in_order_ = false;
  std::optional<std::size_t> followed_;
};

}  // namespace

std::unique_ptr<View> make_scales_view() { return std::make_unique<ScalesView>(); }

}  // namespace nanscope::gui
