#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "gui/controls.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/model_check.h"
#include "gui/prepare/ledger.h"
#include "gui/views/registry.h"
#include "scenarios/policy_source.h"
#include "scenarios/report/policies_report.h"

/// Policies: what each way of keeping the KV cache would do to the attention of this run, bytes against error.
namespace nanscope::gui {
namespace {

constexpr float kPolicyLine = 18;
constexpr float kPolicyTitles = 20;
constexpr float kNameColumn = 178;
constexpr float kOutcomeDot = 4;
constexpr float kBesideFrom = 1040;  ///< from this width on plot and table stand side by side
constexpr float kPlotAxis = 56;
constexpr float kPlotFoot = 34;
constexpr float kPlotNames = 150;  ///< to the right of the points
constexpr double kNoError = 0.1;   ///< of the least error: where one of 0 is drawn

using PolicyJob = Background<PolicyReport>;

/// Where the run is, for the job to open it for itself.
struct PolicyPlan final : Prepared {
  std::filesystem::path path;
};

Result<PolicyReport> measure(const scenarios::PolicySourceOptions& from, const PolicyJob::Report& report) {
  scenarios::PolicySourceOptions opening = from;
  opening.progress = [&report](std::int64_t done, std::int64_t total, const std::string& unit) {
    report({done, total, "opening, " + unit});
  };
  const auto source = scenarios::PolicySource::open(opening);
  if (!source) return tl::unexpected(source.error());
  PolicyOptions options;
  options.known = [&source](std::int64_t layer) { return (*source)->known(layer); };
  options.again = (*source)->again();
  options.stop = opening.stop;
  options.progress = [&report](std::size_t done, std::size_t total) {
    report({static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "layers times policies"});
  };
  return evaluate_policies((*source)->view(), options);
}

bool on_plot(const PolicyResult& one) {
  return one.problem.empty() && !one.layers.empty() && std::isfinite(one.error) && one.bytes > 0;
}

/// Bytes a token to the right, error upwards, both logarithmic.
class PolicyPlot {
 public:
  PolicyPlot(const ViewContext& context, const PolicyReport& made, Area area)
      : context_(context),
        made_(made),
        plot_{area.x + px(kPlotAxis), area.y + px(8), area.width - px(kPlotAxis + kPlotNames),
              area.height - px(kPlotFoot + 8)},
        least_(least_error(made)),
        bytes_(range(true)),
        errors_(range(false)) {}

  /// `chosen`: an index in PolicyReport::policies. Answers the one at the pointer.
  std::optional<std::size_t> draw(const std::optional<std::size_t>& chosen) const {
    grid();
    front();
    std::optional<std::size_t> pointed;
    for (std::size_t i = 0; i < made_.policies.size(); ++i) {
      const PolicyResult& one = made_.policies[i];
      if (!on_plot(one)) continue;
      const ImVec2 at = point(one);
      const bool large = chosen == i;
      const float radius = px(large ? kOutcomeDot + 2 : kOutcomeDot);
      if (one.not_finite > 0) {
        draw_sign(context_, {at.x - radius, at.y - radius, 2 * radius, 2 * radius}, kNan);
      } else {
        ImGui::GetWindowDrawList()->AddCircleFilled(at, radius, tone(one).packed(), 24);
      }
      const ImVec2 mouse = ImGui::GetIO().MousePos;
      if (std::hypot(mouse.x - at.x, mouse.y - at.y) < px(kOutcomeDot + 3)) pointed = i;
    }
    names(chosen);
    return pointed;
  }

 private:
  float px(float pixels) const { return pixels * context_.scale; }

  static double least_error(const PolicyReport& made) {
    double least = 1;
    for (const PolicyResult& one : made.policies) {
      if (on_plot(one) && one.error > 0) least = std::min(least, one.error);
    }
    return least;
  }

  double error_of(const PolicyResult& one) const { return one.error > 0 ? one.error : least_ * kNoError; }

  LogAxis range(bool bytes) const {
    double low = INFINITY;
    double high = 0;
    for (const PolicyResult& one : made_.policies) {
      if (!on_plot(one)) continue;
      const double value = bytes ? one.bytes : error_of(one);
      low = std::min(low, value);
      high = std::max(high, value);
    }
    return high > 0 ? LogAxis(low, high) : LogAxis(1, 2);
  }

  ImVec2 point(const PolicyResult& one) const {
    return {plot_.x + plot_.width * static_cast<float>(bytes_.at(one.bytes)),
            plot_.bottom() - plot_.height * static_cast<float>(errors_.at(error_of(one)))};
  }

  Color tone(const PolicyResult& one) const { return one.on_front ? context_.theme.accent : context_.theme.muted; }

  void grid() const {
    const Theme& theme = context_.theme;
    fill(plot_, theme.cell(kAbsent), px(3));
    for (const double tick : errors_.ticks(static_cast<std::size_t>(std::max(plot_.height, 0.0F) / px(24)))) {
      const float y = std::floor(plot_.bottom() - plot_.height * static_cast<float>(errors_.at(tick)));
      fill({plot_.x, y, plot_.width, 1}, theme.line.alpha(150));
      label(context_.fonts.mono_small, {plot_.x - px(kPlotAxis), y - px(7), px(kPlotAxis - 6), px(14)}, theme.muted,
            short_number(tick), 1);
    }
    for (const double tick : bytes_.ticks(static_cast<std::size_t>(std::max(plot_.width, 0.0F) / px(70)))) {
      const float x = std::floor(plot_.x + plot_.width * static_cast<float>(bytes_.at(tick)));
      fill({x, plot_.y, 1, plot_.height}, theme.line.alpha(150));
      label(context_.fonts.mono_small, {x - px(30), plot_.bottom() + px(2), px(60), px(14)}, theme.muted,
            short_number(tick), 0.5F);
    }
    label(context_.fonts.small, {plot_.x, plot_.bottom() + px(16), plot_.width + px(kPlotNames), px(16)}, theme.muted,
          "bytes a token against error of the output; on the line: beaten by none");
  }

  std::vector<const PolicyResult*> on_front() const {
    std::vector<const PolicyResult*> on;
    for (const PolicyResult& one : made_.policies) {
      if (on_plot(one) && one.on_front) on.push_back(&one);
    }
    return on;
  }

  void front() const {
    std::vector<const PolicyResult*> on = on_front();
    std::sort(on.begin(), on.end(), [](const PolicyResult* a, const PolicyResult* b) { return a->bytes < b->bytes; });
    for (std::size_t i = 1; i < on.size(); ++i) {
      const ImVec2 a = point(*on[i - 1]);
      const ImVec2 b = point(*on[i]);
      line(a, {b.x, a.y}, context_.theme.accent, px(1.5F));
      line({b.x, a.y}, b, context_.theme.accent, px(1.5F));
    }
  }

  /// Of the front and of the chosen one, none on another.
  void names(const std::optional<std::size_t>& chosen) const {
    std::vector<const PolicyResult*> on = on_front();
    if (chosen && on_plot(made_.policies[*chosen]) && !made_.policies[*chosen].on_front)
      on.push_back(&made_.policies[*chosen]);
    std::sort(on.begin(), on.end(),
              [&](const PolicyResult* a, const PolicyResult* b) { return point(*a).y > point(*b).y; });
    float lowest = plot_.bottom() - px(15);
    for (const PolicyResult* one : on) {
      const ImVec2 at = point(*one);
      const float y = std::min(lowest, at.y - px(15));
      // A name far from its point says nothing.
      if (y < plot_.y - px(8) || at.y - y > px(32)) continue;
      lowest = y - px(14);
      const float left = at.x + px(8);
      label(context_.fonts.small, {left, y, plot_.right() + px(kPlotNames) - left, px(15)}, context_.theme.text,
            printable(one->candidate.name));
    }
  }

  const ViewContext& context_;
  const PolicyReport& made_;
  Area plot_;
  double least_;
  LogAxis bytes_;
  LogAxis errors_;
};

class PoliciesView final : public View {
 public:
  std::string_view name() const override { return "policies"; }
  std::string_view title() const override { return "Policies"; }
  std::string_view caption() const override { return "what each way of keeping the KV cache would do to this run"; }
  bool busy() const override { return job_.running(); }

  std::optional<TableMaker> table(const PreparedPtr&) const override {
    if (!made_) return std::nullopt;
    return [made = made_] { return table_of(*made); };
  }

  std::optional<ViewRequest> prepare(const ViewContext&, Area) override {
    return ViewRequest{"where", [](RunFacts& facts) -> Result<PreparedPtr> {
                         auto plan = std::make_shared<PolicyPlan>();
                         plan->path = facts.path();
                         return plan;
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    const auto* plan = dynamic_cast<const PolicyPlan*>(prepared.get());
    if (plan == nullptr) return;
    take();
    if (context.unattended && !made_ && !job_.running() && error_.empty()) start(context, *plan);
    if (made_) return draw_report(context, actions, area);
    draw_plan(context, *plan, area);
  }

 private:
  void start(const ViewContext& context, const PolicyPlan& plan) {
    error_.clear();
    scenarios::PolicySourceOptions from;
    from.target = plan.path.string();
    if (context.beside && context.beside->check) from.model = context.beside->check->options().model;
    job_.start([from](const std::stop_token& stop, const PolicyJob::Report& report) {
      scenarios::PolicySourceOptions opening = from;
      opening.stop = stop;
      return measure(opening, report);
    });
  }

  void take() {
    std::optional<Result<PolicyReport>> result = job_.take();
    if (!result) return;
    if (*result) {
      made_ = std::make_shared<const PolicyReport>(std::move(**result));
    } else if (!job_.cancelled()) {
      error_ = result->error().message;
    }
  }

  void draw_plan(const ViewContext& context, const PolicyPlan& plan, Area area) {
    const Look look{context.theme, context.fonts, context.scale};
    if (context.unattended && !error_.empty()) return notice(context, area, "Nothing to measure", printable(error_));
    const Area inner = area.inset(look.px(kMargin), look.px(14));
    label(context.fonts.title, {inner.x, inner.y, inner.width, look.px(22)}, context.theme.text,
          "Which cache could this run have had?");
    float y = inner.y + look.px(26);
    for (const std::string& words :
         wrap(context.fonts.small,
              "Each policy stores the run's own keys and values and reads them back, step by step; attention over both "
              "says what was lost.",
              inner.width)) {
      label(context.fonts.small, {inner.x, y, inner.width + look.px(2), look.px(17)}, context.theme.muted, words);
      y += look.px(17);
    }
    y += look.px(10);
    if (job_.running()) {
      if (draw_progress(look, job_.progress(), "layers", job_.cancelled(), {inner.x, y, inner.width, look.px(44)}))
        job_.cancel();
      return;
    }
    const std::string words = "Measure the policies";
    const Area box{inner.x, y + look.px(6), button_width(look, words), look.px(30)};
    if (button(look, "measure", words, box, true)) start(context, plan);
    y = box.bottom() + look.px(10);
    for (const std::string& problem : wrap(context.fonts.small, printable(error_), inner.width, 4)) {
      label(context.fonts.small, {inner.x, y, inner.width, look.px(17)}, context.theme.ink(kNan), problem);
      y += look.px(17);
    }
  }

  void draw_report(const ViewContext& context, const ViewActions& actions, Area area) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    Area plot = area.inset(px(kMargin), px(8));
    Area rest = plot;
    if (plot.width >= px(kBesideFrom)) {
      plot.width *= 0.44F;
      rest.x = plot.right() + px(12);
      rest.width -= plot.width + px(12);
    } else {
      plot.height *= 0.45F;
      rest.y = plot.bottom() + px(8);
      rest.height -= plot.height + px(8);
    }
    const auto pointed = PolicyPlot(context, *made_, plot).draw(chosen_);
    if (pointed) {
      tell(context, *pointed);
      if (ImGui::IsMouseClicked(ImGuiMouseButton_Left) && ImGui::IsWindowHovered()) chosen_ = *pointed;
    }
    draw_rows(context, actions, rest);
  }

  void tell(const ViewContext& context, std::size_t policy) const {
    const PolicyResult& one = made_->policies[policy];
    const LayerScore& worst = one.layers[one.worst];
    tooltip(
        context, printable(one.candidate.name),
        {printable(one.candidate.ships_in), "K " + to_text(one.candidate.k), "V " + to_text(one.candidate.v),
         fmt::format("{} bytes a token, error {:.2e}, KL {:.2e}", short_number(one.bytes), one.error, one.divergence),
         fmt::format("worst in layer {}: {:.2e}", worst.layer, worst.error)});
  }

  /// The table, then the claims, in a child that scrolls.
  void draw_rows(const ViewContext& context, const ViewActions& actions, Area area) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const std::vector<std::string>& titles = report::policy_titles();
    // As many columns as there is room for; the worst layer rather than how full the codes are.
    struct Column {
      std::size_t cell;
      float width;
    };
    std::vector<Column> columns;
    float room = area.width - px(14 + kNameColumn);
    for (const Column& column : {Column{1, 52}, Column{2, 56}, Column{3, 56}, Column{4, 58}, Column{8, 84},
                                 Column{9, 40}, Column{5, 56}, Column{6, 60}}) {
      if (room < px(column.width)) break;
      room -= px(column.width);
      columns.push_back(column);
    }
    const float more = columns.empty() ? 0 : room / static_cast<float>(columns.size());
    const auto cell = [&](std::size_t at, float y, float height) {
      float left = area.x + px(kNameColumn);
      for (std::size_t i = 0; i < at; ++i) left += px(columns[i].width) + more;
      return Area{left, y, px(columns[at].width) + more, height};
    };
    for (std::size_t i = 0; i < columns.size(); ++i)
      label(context.fonts.small, cell(i, area.y, px(kPolicyTitles)), context.theme.muted, titles[columns[i].cell], 1);
    ImGui::SetCursorScreenPos({area.x, area.y + px(kPolicyTitles)});
    ImGui::BeginChild("policies", {area.width, std::max(1.0F, area.height - px(kPolicyTitles))}, false,
                      ImGuiWindowFlags_NoBackground);
    float y = ImGui::GetCursorScreenPos().y;
    for (std::size_t p = 0; p < made_->policies.size(); ++p) {
      const PolicyResult& one = made_->policies[p];
      const std::vector<std::string> cells = report::policy_cells(one);
      const Area row{area.x, y, area.width - px(14), px(kPolicyLine)};
      const bool hovered = ImGui::IsWindowHovered() && row.holds(ImGui::GetIO().MousePos);
      if (chosen_ == p) fill(row, context.theme.raised, px(3));
      if (hovered) actions.hint(cells.empty() ? one.problem : one.candidate.ships_in);
      if (hovered && !cells.empty() && ImGui::IsMouseClicked(ImGuiMouseButton_Left)) chosen_ = p;
      label(context.fonts.small, {row.x + px(4), y, px(kNameColumn - 8), row.height},
            cells.empty()  ? context.theme.muted
            : one.on_front ? context.theme.accent
                           : context.theme.text,
            printable(one.candidate.name));
      for (std::size_t i = 0; i < columns.size() && !cells.empty(); ++i) {
        const bool bad = columns[i].cell == 9 && one.not_finite > 0;
        label(context.fonts.mono_small, cell(i, y, row.height), bad ? context.theme.ink(kNan) : context.theme.text,
              cells[columns[i].cell - 1], 1);
      }
      if (cells.empty())
        label(context.fonts.small, {row.x + px(kNameColumn), y, row.width - px(kNameColumn), row.height},
              context.theme.muted, printable(one.problem));
      y += row.height;
    }
    y = draw_claims(context, {area.x, y + px(10), area.width - px(14), 0});
    ImGui::SetCursorScreenPos({area.x, y});
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

  /// Answers where they end.
  float draw_claims(const ViewContext& context, Area area) const {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    float y = area.y;
    const auto words = [&](const std::string& text, Color color) {
      for (const std::string& words_line : wrap(context.fonts.small, printable(text), area.width - px(4))) {
        label(context.fonts.small, {area.x + px(4), y, area.width, px(17)}, color, words_line);
        y += px(17);
      }
    };
    for (const PolicyClaim& claim : made_->claims) {
      words(fmt::format("{}: {}", to_string(claim.verdict), claim.statement), context.theme.text);
      words(claim.figures, context.theme.muted);
      y += px(6);
    }
    for (const std::string& one : made_->left_out) words(one, context.theme.muted);
    words(fmt::format("Taken: {}", fmt::join(made_->facts, "; ")), context.theme.muted);
    return y;
  }

  std::shared_ptr<const PolicyReport> made_;
  std::optional<std::size_t> chosen_;  ///< index in its policies
  std::string error_;
  PolicyJob job_;  ///< last: it is stopped first
};

}  // namespace

std::unique_ptr<View> make_policies_view() { return std::make_unique<PoliciesView>(); }

}  // namespace nanscope::gui
