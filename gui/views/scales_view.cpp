#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/context_menu.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/policies.h"
#include "gui/views/policy_table.h"
#include "gui/views/registry.h"
#include "gui/views/scale_charts.h"
#include "gui/views/score_charts.h"
#include "scenarios/replay.h"

/// The scale ledger over the steps of the run: how large the stored values were against how large
/// they could be.
namespace nanscope::gui {
namespace {

constexpr float kScaleLine = 16;
constexpr float kLegend = 30;
constexpr float kLegendFrom = 320;       ///< below this height the charts take its room
constexpr float kScalesWideFrom = 1360;  ///< from this width on, the table stands beside the charts
constexpr float kTableFrom = 460;        ///< below this height the charts take it all
constexpr float kTableWide = 640;
constexpr float kLedgerRow = 21;
constexpr float kOther = 22;
constexpr std::string_view kScoresChip = "scores by policy";
constexpr std::string_view kLedgerChip = "what was stored";

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

/// One line for a reader who has not seen such charts before; what has no room is left out.
class ScaleLegend {
 public:
  ScaleLegend(const ScaleSheet& sheet, Area area) : sheet_(sheet), area_(area), x_(area.x) {}

  void draw() {
    const Theme& theme = sheet_.theme();
    if (sheet_.ledger.quantized) {
      add(22, "limit: largest finite \u00D7 scale", [&](float x, float middle) {
        line({x, middle}, {x + sheet_.px(16), middle}, theme.accent, sheet_.px(1.5F));
      });
    }
    add(14, "largest |value| stored", [&](float x, float middle) {
      ImGui::GetWindowDrawList()->AddCircleFilled({x + sheet_.px(4), middle}, sheet_.px(3),
                                                  theme.cell(kHealthyLast).packed(), 16);
    });
    const auto swatch = [&](Cell cell) {
      return [this, cell](float x, float middle) {
        fill({x, middle - sheet_.px(5), sheet_.px(10), sheet_.px(10)}, sheet_.theme().cell(cell), sheet_.px(2));
      };
    };
    if (sheet_.ledger.quantized) add(16, "beyond the limit: clipped", swatch(kClipped));
    add(16, "NaN stored", swatch(kNan));
  }

 private:
  template <class Mark>
  void add(float mark_width, std::string_view words, const Mark& mark) {
    const ImFont* font = sheet_.context.fonts.small;
    const float width = text_size(font, words).x + 1;
    const float from = x_ + sheet_.px(mark_width);
    if (from + width > area_.right()) return;
    mark(x_, area_.y + area_.height / 2);
    label(font, {from, area_.y, width, area_.height}, sheet_.theme().muted, words);
    x_ = from + width + sheet_.px(19);
  }

  const ScaleSheet& sheet_;
  Area area_;
  float x_;
};

class ScalesView final : public View {
 public:
  std::string_view name() const override { return "scales"; }
  std::string_view title() const override { return "Scales"; }
  std::string_view caption() const override { return "the largest stored value of each step against its scale"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    if (dynamic_cast<const ScoreCurves*>(prepared.get()) != nullptr) return table_maker<ScoreCurves>(prepared);
    const auto* sheet = dynamic_cast<const ScalesSheet*>(prepared.get());
    if (sheet == nullptr) return std::nullopt;
    return [ledger = sheet->ledger] { return table_of(*ledger); };
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area area) override {
    if (scores_) {
      return ViewRequest{"scores under each policy", [](RunFacts& facts) -> Result<PreparedPtr> {
                           Result<ScoreCurves> made = make_score_curves(facts.view(), facts.recording(), facts.stop());
                           if (!made) return tl::unexpected(made.error());
                           return std::make_shared<const ScoreCurves>(std::move(*made));
                         }};
    }
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
    if (const auto* curves = dynamic_cast<const ScoreCurves*>(prepared.get())) {
      draw_scores(context, actions, *curves, area);
      return;
    }
    known_ = std::static_pointer_cast<const ScalesSheet>(prepared);
    const Ledger& ledger = *known_->ledger;
    if (ledger.entries.empty()) {
      notice(context, area, "No scale was used",
             "Nothing in this run was stored as scaled codes, neither in a KV cache nor elsewhere.");
      draw_other(context,
                 {area.x, area.y + 12 * context.scale, area.width - kMargin * context.scale, kOther * context.scale});
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
    const std::size_t line = line_of(ledger, context.selection);
    const std::optional<std::size_t> shown_now = line != brought_ ? std::optional(line) : std::nullopt;
    brought_ = line;
    const float top = draw_head(sheet, area);
    const float legend = area.y + top - sheet.px(kLegend + 4);
    const Area other{area.x, legend + (sheet.px(kLegend) - sheet.px(kOther)) / 2, area.width - sheet.px(kMargin),
                     sheet.px(kOther)};
    if (area.height >= sheet.px(kLegendFrom)) draw_other(context, other);
    const Area rest{area.x, area.y + top, area.width, area.height - top};
    if (area.width >= sheet.px(kScalesWideFrom)) {
      const float table = sheet.px(kTableWide + kMargin);
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, charts_width(area, context.scale), rest.height}, shown_now);
      Area right{rest.right() - table, rest.y, table - sheet.px(6), rest.height};
      if (policies != nullptr) {
        const float height = PolicyTable::height(context, *policies);
        policies_.draw(context, actions, ledger, *policies, {right.x, right.y, right.width, height});
        right = {right.x, right.y + height + sheet.px(8), right.width, right.height - height - sheet.px(8)};
      }
      draw_table(sheet, right, true);
    } else if (rest.height < sheet.px(kTableFrom)) {
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, charts_width(area, context.scale), rest.height}, shown_now);
    } else {
      const float charts = std::floor(rest.height * 0.62F);
      draw_charts(sheet, {rest.x + sheet.px(6), rest.y, charts_width(area, context.scale), charts}, shown_now);
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

  /// The way to the other side of the view, with its right edge at the area's.
  void draw_other(const ViewContext& context, Area area) {
    if (context.printed) return;
    const std::string_view words = scores_ ? kLedgerChip : kScoresChip;
    const float width = chip_width(context, words);
    if (chip_button(context, {area.right() - width, area.y, width, area.height}, words, false)) scores_ = !scores_;
  }

  /// Policies for the scales of attention's scores.
  void draw_scores(const ViewContext& context, const ViewActions& actions, const ScoreCurves& curves, Area area) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const Area inside{area.x + px(kMargin), area.y + px(12), area.width - px(2 * kMargin), area.height - px(12)};
    if (curves.points.empty() || curves.trials.empty()) {
      notice(context, area, "No scores to try policies on", "No attention scores were recorded or dumped in this run.");
      draw_other(context, {inside.x, inside.y, inside.width, px(kOther)});
      return;
    }
    float y = inside.y;
    const float taken = context.printed ? 0 : chip_width(context, kLedgerChip) + px(12);
    draw_other(context, {inside.x, y, inside.width, px(kOther)});
    for (const std::string& words : wrap(context.fonts.title, curves.headline, inside.width - taken, 3)) {
      label(context.fonts.title, {inside.x, y, inside.width - taken + 1, px(20)}, context.theme.text, words);
      y += px(20);
    }
    for (const std::string& words : wrap(context.fonts.small, curves.caveat, inside.width, 2)) {
      label(context.fonts.small, {inside.x, y, inside.width, px(kScaleLine)}, context.theme.muted, words);
      y += px(kScaleLine);
    }
    y = std::max(y, inside.y + px(kOther)) + px(6);
    y += draw_score_legend(context, curves, {inside.x, y, inside.width, px(40)}) + px(8);
    draw_score_charts(context, actions, curves, {area.x + px(6), y, area.width - px(12), area.bottom() - y});
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
    for (const std::string& words : wrap(sheet.context.fonts.title, sheet.ledger.headline, width, 2)) {
      label(sheet.context.fonts.title, {left, y, width + 1, sheet.px(20)},
            sheet.ledger.below.empty() ? theme.accent : theme.ink(kClipped), words);
      y += sheet.px(20);
    }
    y += sheet.px(4);
    const bool low = area.height < sheet.px(kLegendFrom);
    for (const std::string& words : wrap(sheet.context.fonts.small, sheet.ledger.rule, width, 5)) {
      label(sheet.context.fonts.small, {left, y, width + 1, sheet.px(kScaleLine)}, theme.text, words);
      y += sheet.px(kScaleLine);
    }
    if (low) return y + sheet.px(6) - area.y;
    const float other = sheet.context.printed ? 0 : chip_width(sheet.context, kScoresChip) + sheet.px(12);
    ScaleLegend(sheet, {left, y + sheet.px(2), width - other, sheet.px(kLegend)}).draw();
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
    const std::string count = fmt::format("{} entries", sheet.ledger.entries.size());
    if (sheet.context.printed) {
      label(sheet.context.fonts.small, area.inset(sheet.px(6), 0), sheet.theme().muted,
            count + ", least headroom first");
      return;
    }
    const bool narrow = sheet.policies != nullptr && !wide;
    const bool entries = !narrow || !comparing_;
    if (button("least headroom first", entries && !in_order_)) in_order_ = comparing_ = false;
    if (button("in the order of the run", entries && in_order_)) {
      in_order_ = true;
      comparing_ = false;
    }
    if (narrow && button("policies compared", comparing_)) comparing_ = true;
    label(sheet.context.fonts.small, {x, area.y, area.right() - x - sheet.px(12), area.height}, sheet.theme().muted,
          count, 1);
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
    if (asked_for_menu()) {
      sheet.actions.menu(
          {entry.target,
           fmt::format("{:.9g}", entry.row.scale),
           {},
           fmt::format("{},{},{:.9g},{:.9g},{:.9g},{:.9g},{}", to_string(entry.target.place), entry.row.target,
                       entry.row.scale, entry.limit, entry.row.absmax, entry.row.headroom, entry.nan)});
    }
    const bool chosen = sheet.chosen == index;
    if (chosen || pointed) fill(area, chosen ? theme.raised : theme.raised.alpha(140), sheet.px(4));
    const Place& place = entry.target.place;
    const bool none = entry.row.source == ScaleSource::none;
    const std::string cells[] = {
        !place.request       ? "\u2013"
        : *place.request < 0 ? "warm"
                             : fmt::format("{}{}/{}", place.rank > 0 ? fmt::format("@{} ", place.rank) : std::string(),
                                           *place.request, place.step.value_or(0)),
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
      const Color plain = cells[i] == "NaN" ? theme.ink(kNan) : words ? theme.muted : theme.text;
      const Color ink = ground != kAbsent ? ink_on(theme, ground) : plain;
      label(words ? sheet.context.fonts.small : sheet.context.fonts.mono_small, box, ink, cells[i],
            kLedgerColumns[i].align);
    });
    if (clicked) choose_entry(sheet, index);
    if (pointed) hover_entry(sheet, index);
  }

  std::shared_ptr<const ScalesSheet> known_;  ///< that is drawn
  PolicyTable policies_;
  bool scores_ = false;  ///< policies for scores are shown, not what was stored
  bool in_order_ = false;
  bool comparing_ = false;  ///< where there is no room for both: the policies instead of the entries
  std::optional<std::size_t> followed_;
  std::optional<std::size_t> brought_;  ///< the chart that was last brought into view
};

}  // namespace

std::unique_ptr<View> make_scales_view() { return std::make_unique<ScalesView>(); }

}  // namespace nanscope::gui
