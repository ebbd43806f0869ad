#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/policies.h"
#include "gui/views/policy_table.h"
#include "gui/views/registry.h"
#include "gui/views/scale_charts.h"
#include "scenarios/replay.h"

/// The scale ledger over the steps of the run: how large the stored values were against how large
/// they could be.
namespace nanscope::gui {
namespace {

constexpr float kScaleLine = 16;
constexpr float kLegend = 30;
constexpr float kScalesWideFrom = 1360;  ///< from this width on, the table stands beside the charts
constexpr float kTableFrom = 460;        ///< below this height the charts take it all
constexpr float kTableWide = 640;
constexpr float kLedgerRow = 21;

struct TableColumn {
  const char* title;
  float width;
  float align;
};

constexpr TableColumn kLedgerColumns[] = {{"at", 44, 0},       {"layer", 40, 1},      {"", 22, 0.5F},
                                          {"scale", 66, 1},    {"limit", 58, 1},      {"absmax", 58, 1},
                                          {"headroom", 68, 1}, {"not finite", 72, 1}, {"set by", 150, 0}};
constexpr std::size_t kTargetColumn = 2;
constexpr float kLongTarget = 112;
constexpr std::size_t kHeadroomColumn = 6;
constexpr std::size_t kNanColumn = 7;

/// One line for a reader who has not seen such charts before.
void draw_legend(const ScaleSheet& sheet, Area area) {
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
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    const auto* sheet = dynamic_cast<const ScalesSheet*>(prepared.get());
    if (sheet == nullptr) return std::nullopt;
    return [ledger = sheet->ledger] { return table_of(*ledger); };
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area area) override {
    const float width = charts_width(area, context.scale);
    std::string key = fmt::format("ledger {}", width);
    if (known_ && !known_->ledger->entries.empty()) {
      key += fmt::format(" {}", line_of(*known_->ledger, context.selection));
    }
    return ViewRequest{std::move(key),
                       [selection = context.selection, width, scale = context.scale,
                        known = known_](RunFacts& facts) -> Result<PreparedPtr> {
                         Result<std::shared_ptr<ScalesSheet>> sheet = answer(facts, selection, known.get());
                         if (!sheet) return tl::unexpected(sheet.error());
                         const Ledger& ledger = *(*sheet)->ledger;
                         (*sheet)->columns = make_columns(ledger, (*sheet)->policies.get(),
                                                          chart_columns(width, ledger.lines.size(), scale));
                         return *sheet;
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    known_ = std::static_pointer_cast<const ScalesSheet>(prepared);
    const Ledger& ledger = *known_->ledger;
    if (ledger.entries.empty()) {
      notice(context, area, "No scale was used",
             "Nothing in this run was stored as scaled codes, neither in a KV cache nor elsewhere.");
      return;
    }
    const PolicyComparison* policies = ledger.quantized ? known_->policies.get() : nullptr;
    std::vector<std::size_t> shown;
    std::vector<LogRange> limits;
    if (policies != nullptr) shown = policies_.shown(*policies);
    limits.reserve(shown.size());
    for (const std::size_t policy : shown) limits.push_back(policies->policies[policy].limits);
    const ScaleSheet sheet{ledger, known_->columns,        context, actions, ledger.find(context.selection), policies,
                           shown,  axis_of(ledger, limits)};
    const float top = draw_head(sheet, area);
    const Area rest{area.x, area.y + top, area.width, area.height - top};
    if (area.width >= sheet.px(kScalesWideFrom)) {
      const float table = sheet.px(kTableWide + kMargin);
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, charts_width(area, context.scale), rest.height});
      Area right{rest.right() - table, rest.y, table - sheet.px(6), rest.height};
      if (policies != nullptr) {
        const float height = PolicyTable::height(context, *policies);
        policies_.draw(context, actions, ledger, *policies, {right.x, right.y, right.width, height});
        right = {right.x, right.y + height + sheet.px(8), right.width, right.height - height - sheet.px(8)};
      }
      draw_table(sheet, right, true);
    } else if (rest.height < sheet.px(kTableFrom)) {
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, charts_width(area, context.scale), rest.height});
    } else {
      const float charts = std::floor(rest.height * 0.62F);
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, charts_width(area, context.scale), charts});
      draw_table(
          sheet,
          {rest.x + sheet.px(kMargin), rest.y + charts, rest.width - sheet.px(kMargin + 6), rest.height - charts},
          false);
    }
  }

 private:
  static float charts_width(Area area, float scale) {
    return area.width - (area.width >= kScalesWideFrom * scale ? kTableWide + kMargin + 16 : 12) * scale;
  }

  /// The ledger is made once; the policies are compared for the line that is selected.
  static Result<std::shared_ptr<ScalesSheet>> answer(RunFacts& facts, const Selection& selection,
                                                     const ScalesSheet* known) {
    RunView& run = facts.view();
    auto sheet = std::make_shared<ScalesSheet>();
    if (known != nullptr) {
      *sheet = *known;
    } else {
      Result<Ledger> made = make_ledger(run);
      if (!made) return tl::unexpected(made.error());
      sheet->ledger = std::make_shared<const Ledger>(std::move(*made));
    }
    if (sheet->ledger->entries.empty()) return sheet;
    const std::size_t line = line_of(*sheet->ledger, selection);
    if (sheet->policies && sheet->policies->line == line) return sheet;
    if (facts.recording() == nullptr) return sheet;
    const Result<scenarios::RunSpec> spec = scenarios::run_spec_of(*facts.recording());
    if (!spec) return sheet;  // an import: nobody knows what its policy was
    Result<PolicyComparison> compared = compare_policies(run, *sheet->ledger, line, spec->config.kv);
    if (!compared) return tl::unexpected(compared.error());
    sheet->policies = std::make_shared<const PolicyComparison>(std::move(*compared));
    return sheet;
  }

  /// Answers its height.
  static float draw_head(const ScaleSheet& sheet, Area area) {
    const Theme& theme = sheet.theme();
    const float left = area.x + sheet.px(kMargin);
    const float width = area.width - sheet.px(2 * kMargin);
    float y = area.y + sheet.px(12);
    label(sheet.context.fonts.title, {left, y, width, sheet.px(20)},
          sheet.ledger.below.empty() ? theme.accent : theme.cell(kClipped), sheet.ledger.headline);
    y += sheet.px(24);
    for (const std::string& words : wrap(sheet.context.fonts.small, sheet.ledger.rule, width, 3)) {
      label(sheet.context.fonts.small, {left, y, width + 1, sheet.px(kScaleLine)}, theme.text, words);
      y += sheet.px(kScaleLine);
    }
    draw_legend(sheet, {left, y + sheet.px(2), width, sheet.px(kLegend)});
    return y + sheet.px(kLegend + 4) - area.y;
  }

  void draw_table(const ScaleSheet& sheet, Area area, bool wide) {
    const float head = sheet.px(kRequestBand);
    draw_order(sheet, {area.x, area.y, area.width, head}, wide);
    if (!wide && comparing_ && sheet.policies != nullptr) {
      policies_.draw(sheet.context, sheet.actions, sheet.ledger, *sheet.policies,
                     {area.x, area.y + head + sheet.px(4), area.width, area.height - head - sheet.px(4)});
      return;
    }
    const float titles = area.y + head + sheet.px(4);
    for_columns(sheet, area.x, area.width, [&](std::size_t i, float x, float width) {
      label(sheet.context.fonts.small, {x, titles, width, sheet.px(18)}, sheet.theme().muted, kLedgerColumns[i].title,
            kLedgerColumns[i].align);
    });
    const float rows = titles + sheet.px(20);
    fill({area.x, rows - 1, area.width, 1}, sheet.theme().line);
    ImGui::SetCursorScreenPos({area.x, rows});
    ImGui::BeginChild("entries", {area.width, area.bottom() - rows}, false, ImGuiWindowFlags_NoBackground);
    draw_rows(sheet, area.width);
    ImGui::EndChild();
  }

  /// Which entries come first.
  void draw_order(const ScaleSheet& sheet, Area area, bool wide) {
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
    const bool narrow = sheet.policies != nullptr && !wide;
    const bool entries = !narrow || !comparing_;
    if (button("least headroom first", entries && !in_order_)) in_order_ = comparing_ = false;
    if (button("in the order of the run", entries && in_order_)) {
      in_order_ = true;
      comparing_ = false;
    }
    if (narrow && button("policies compared", comparing_)) comparing_ = true;
    label(sheet.context.fonts.small, {x, area.y, area.right() - x - sheet.px(12), area.height}, sheet.theme().muted,
          fmt::format("{} entries", sheet.ledger.entries.size()), 1);
  }

  template <class Visit>
  static void for_columns(const ScaleSheet& sheet, float x, float width, const Visit& visit) {
    constexpr std::size_t kLast = std::size(kLedgerColumns) - 1;
    float at = x + sheet.px(6);
    for (std::size_t i = 0; i <= kLast; ++i) {
      const float named = i == kTargetColumn && sheet.ledger.names_are_long ? kLongTarget : kLedgerColumns[i].width;
      const float own = i == kLast ? x + width - sheet.px(10) - at : sheet.px(named);
      if (own > 0) visit(i, at, own);
      at += own + sheet.px(i + 2 == std::size(kLedgerColumns) ? 14 : 0);
    }
  }

  std::size_t entry_at(const Ledger& ledger, std::size_t row) const {
    return in_order_ ? row : ledger.by_headroom[row];
  }

  void draw_rows(const ScaleSheet& sheet, float width) {
    const std::size_t count = sheet.ledger.entries.size();
    const float height = sheet.px(kLedgerRow);
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
  void follow(const ScaleSheet& sheet, float height) {
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

  static void draw_row(const ScaleSheet& sheet, std::size_t index, Area area) {
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
    const std::string cells[] = {!place.request       ? "\u2013"
                                 : *place.request < 0 ? "warm"
                                                      : fmt::format("{}/{}", *place.request, place.step.value_or(0)),
                                 entry.row.layer < 0 ? "\u2013" : fmt::format("{}", entry.row.layer),
                                 entry.row.target,
                                 none ? "\u2013" : short_number(entry.row.scale),
                                 short_number(entry.limit),
                                 short_number(entry.row.absmax),
                                 none || !has_headroom(entry) ? "\u2013" : headroom_text(entry.row.headroom),
                                 entry.nan > 0 ? fmt::format("{} NaN", entry.nan) : "",
                                 set_by_briefly(entry)};
    for_columns(sheet, area.x, area.width, [&](std::size_t i, float x, float width) {
      const bool words = i + 1 == std::size(kLedgerColumns);
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
      label(words ? sheet.context.fonts.small : sheet.context.fonts.mono_small, box, ink, cells[i],
            kLedgerColumns[i].align);
    });
    if (clicked) choose_entry(sheet, index);
    if (pointed) hover_entry(sheet, index);
  }

  std::shared_ptr<const ScalesSheet> known_;  ///< that is drawn
  PolicyTable policies_;
  bool in_order_ = false;
  bool comparing_ = false;  ///< where there is no room for both: the policies instead of the entries
  std::optional<std::size_t> followed_;
};

}  // namespace

std::unique_ptr<View> make_scales_view() { return std::make_unique<ScalesView>(); }

}  // namespace nanscope::gui
