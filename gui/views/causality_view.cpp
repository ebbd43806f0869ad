#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/counted.h"
#include "gui/cell_map.h"
#include "gui/cell_paint.h"
#include "gui/controls.h"
#include "gui/drawn.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/causality_map.h"
#include "gui/views/registry.h"
#include "gui/views/twin_parts.h"

/// Causality: which tokens' logits answer to which tokens; above the diagonal that is a leak.
namespace nanscope::gui {
namespace {

constexpr float kInfluenceChoices = 38;  ///< heights
constexpr float kInfluenceTitle = 24;
constexpr float kInfluenceKey = 30;
constexpr float kInfluenceAxis = 18;
constexpr float kRoomyChoices = 760;  ///< from this width on there is room for words before them
constexpr float kTokenNumbers = 34;   ///< width
constexpr float kLeastTick = 22;      ///< pixels between numbers of an axis
constexpr float kBetweenMaps = 20;
constexpr std::size_t kShownToken = 24;  ///< bytes of a token's text

using scenarios::TokenChange;
using CausalityJob = Background<CausalityMaps>;
using MapsPtr = std::shared_ptr<const CausalityMaps>;

struct ChangeChoice {
  TokenChange change;
  const char* words;
};
constexpr ChangeChoice kChangeChoices[] = {{TokenChange::value, "another token"},
                                           {TokenChange::sign, "negated"},
                                           {TokenChange::size, "times 8"},
                                           {TokenChange::nan, "NaN"}};

/// Cells that an earlier token moved as health is coloured elsewhere, leaks from orange to the colour of NaN.
Theme influence_theme(const Theme& theme) {
  Theme colors = theme;
  colors.name = theme.dark ? "dark influence" : "light influence";
  const Color least = mix(theme.cell(kClipped), theme.panel, theme.dark ? 0.45F : 0.35F);
  for (int step = 0; step < kInfluenceSteps; ++step) {
    const float t = static_cast<float>(step) / static_cast<float>(kInfluenceSteps - 1);
    const auto at = static_cast<std::size_t>(step);
    colors.cells[kInfluenceFirst + at] = theme.cells[kHealthyFirst + 2 * at];
    colors.patterns[kInfluenceFirst + at] = Pattern::none;
    colors.patterns[kLeakFirst + at] = Pattern::slanted;
    colors.cells[kLeakFirst + at] =
        t < 0.5F ? mix(least, theme.cell(kClipped), 2 * t) : mix(theme.cell(kClipped), theme.cell(kNan), 2 * t - 1);
  }
  return colors;
}

/// A map on screen: its grid, and where that is.
struct InfluenceScene : GridScene {
  const CausalityMap& map;
};

class CausalityView final : public View {
 public:
  std::string_view name() const override { return "causality"; }
  std::string_view title() const override { return "Causality"; }
  std::string_view caption() const override { return "whose logits answer to which token; to a later one is a leak"; }
  bool busy() const override { return job_.running(); }

  std::optional<TableMaker> table(const PreparedPtr&) const override {
    if (!shown_) return std::nullopt;
    return [made = shown_] { return table_of(*made); };
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    const std::int64_t request = context.selection.place.request.value_or(0);
    return ViewRequest{fmt::format("plan {}", request), [request](RunFacts& facts) -> Result<PreparedPtr> {
                         return std::make_shared<CausalityPlan>(plan_causality(facts.recording(), request));
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    const auto* plan = dynamic_cast<const CausalityPlan*>(prepared.get());
    if (plan == nullptr) return;
    if (!plan->notice.empty()) {
      notice(context, area, "Nothing to change a token of", printable(plan->notice));
      return;
    }
    take();
    if (form_ >= std::max<std::size_t>(plan->forms.size(), 1)) form_ = 0;
    const auto found = made_.find(key(*plan));
    const MapsPtr shown = found != made_.end() ? found->second : nullptr;
    if (shown != shown_) {
      shown_ = shown;
      images_ = {};
      chosen_.reset();
    }
    if (context.unattended && !shown_ && !job_.running() && error_.empty()) start(*plan);
    const float scale = context.scale;
    draw_choices(context, *plan, {area.x, area.y, area.width, kInfluenceChoices * scale});
    const Area below{area.x, area.y + kInfluenceChoices * scale, area.width, area.height - kInfluenceChoices * scale};
    if (shown_) return draw_maps(context, actions, *plan, below);
    draw_plan(context, *plan, below);
  }

 private:
  using Key = std::tuple<std::size_t, TokenChange, std::size_t>;
  Key key(const CausalityPlan& plan) const { return {plan.request, change_, form_}; }

  void start(const CausalityPlan& plan) {
    error_.clear();
    CausalityQuestion question{plan.recording, plan.request, change_, {}};
    if (form_ < plan.forms.size()) question.form = plan.forms[form_];
    asked_ = key(plan);
    job_.start([question](const std::stop_token& stop, const CausalityJob::Report& report) {
      return measure_causality(question, stop, [&report](std::int64_t done, std::int64_t total, std::string_view what) {
        report({done, total, std::string(what)});
      });
    });
  }

  void take() {
    std::optional<Result<CausalityMaps>> result = job_.take();
    if (!result) return;
    if (*result) {
      made_[asked_] = std::make_shared<const CausalityMaps>(std::move(**result));
    } else if (!job_.cancelled()) {
      error_ = result->error().message;
    }
  }

  /// What becomes of a token, and what the run is shown beside.
  void draw_choices(const ViewContext& context, const CausalityPlan& plan, Area row) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    float x = row.x + px(kMargin);
    const float right = row.right() - px(kMargin);
    const Area chips{row.x, row.y + px(8), row.width, px(22)};
    const auto words = [&](std::string_view said) {
      const float width = text_size(context.fonts.small, said).x;
      if (x + width > right) return;
      label(context.fonts.small, {x, chips.y, width + 1, chips.height}, context.theme.muted, said);
      x += width + px(8);
    };
    const auto choose = [&](const std::string& said, bool chosen) {
      if (x + px(30) > right) return false;
      const ChipPress chip = chip_button(context, x, right, chips.y, chips.height, said, chosen);
      x = chip.right + px(6);
      return chip.pressed && !job_.running();
    };
    const bool roomy = row.width >= px(kRoomyChoices);
    if (roomy) words("each token in turn becomes");
    for (const ChangeChoice& choice : kChangeChoices) {
      if (!choose(choice.words, choice.change == change_)) continue;
      change_ = choice.change;
      error_.clear();
    }
    if (plan.forms.empty()) return;
    x += px(12);
    if (roomy) words("beside");
    for (std::size_t i = 0; i < plan.forms.size(); ++i) {
      if (!choose(form_words(plan.forms[i]), i == form_)) continue;
      form_ = i;
      error_.clear();
    }
  }

  void draw_plan(const ViewContext& context, const CausalityPlan& plan, Area area) {
    const Look look{context.theme, context.fonts, context.scale};
    if (context.unattended && !error_.empty()) return notice(context, area, "Nothing to compare", printable(error_));
    const Area inner = area.inset(look.px(kMargin), look.px(6));
    label(context.fonts.title, {inner.x, inner.y, inner.width, look.px(22)}, context.theme.text,
          "Does a token know what comes after it?");
    const std::string words = fmt::format(
        "Runs the prompt of request {}{}, {}, once as it is and once with each token's embedding changed{}, and shows "
        "whose logits that moves. Those of a token before the changed one must stay the same bits.",
        plan.request, plan.request_name.empty() ? "" : " (" + printable(plan.request_name) + ")",
        counted(plan.tokens, "token"),
        plan.forms.empty() ? "" : ", then again with the settings that it stands beside");
    float y = inner.y + look.px(26);
    for (const std::string& said : wrap(context.fonts.small, words, inner.width)) {
      label(context.fonts.small, {inner.x, y, inner.width + look.px(2), look.px(17)}, context.theme.muted, said);
      y += look.px(17);
    }
    y += look.px(10);
    if (job_.running()) {
      if (draw_progress(look, job_.progress(), "runs", job_.cancelled(), {inner.x, y, inner.width, look.px(44)}))
        job_.cancel();
      return;
    }
    const std::string run = "Change every token";
    const Area box{inner.x, y + look.px(6), button_width(look, run), look.px(30)};
    if (button(look, "change", run, box, true)) start(plan);
    y = box.bottom() + look.px(10);
    for (const std::string& problem : wrap(context.fonts.small, printable(error_), inner.width, 4)) {
      label(context.fonts.small, {inner.x, y, inner.width, look.px(17)}, context.theme.ink(kNan), problem);
      y += look.px(17);
    }
  }

  void draw_maps(const ViewContext& context, const ViewActions& actions, const CausalityPlan& plan, Area area) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const Theme colors = influence_theme(context.theme);
    const ViewContext themed = with_theme(context, colors);
    draw_key(themed, {area.x, area.bottom() - px(kInfluenceKey), area.width, px(kInfluenceKey)});
    const Area inner{area.x + px(kMargin), area.y, area.width - px(2 * kMargin), area.height - px(kInfluenceKey)};
    const float width = shown_->healthy ? (inner.width - px(kBetweenMaps)) / 2 : inner.width;
    draw_map(themed, actions, plan, shown_->here, 0, {inner.x, inner.y, width, inner.height});
    if (!shown_->healthy) return;
    const Area right{inner.x + width + px(kBetweenMaps), inner.y, width, inner.height};
    draw_map(themed, actions, plan, *shown_->healthy, 1, right);
  }

  static std::string title_of(const CausalityMap& map) {
    const std::string leaks = map.leaks == 0
                                  ? "nothing leaks"
                                  : fmt::format("{} of a token and a later one leak", counted(map.leaks, "pair"));
    return fmt::format("{}: {}", printable(map.title), leaks);
  }

  void draw_map(const ViewContext& context, const ViewActions& actions, const CausalityPlan& plan,
                const CausalityMap& map, std::size_t index, Area area) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    label(context.fonts.small, {area.x, area.y, area.width, px(kInfluenceTitle)},
          map.leaks > 0 ? context.theme.ink(kNan) : context.theme.text, title_of(map));
    Area cells{area.x + px(kTokenNumbers), area.y + px(kInfluenceTitle + kInfluenceAxis),
               area.width - px(kTokenNumbers), area.height - px(kInfluenceTitle + kInfluenceAxis)};
    if (cells.width < px(16) || cells.height < px(16)) return;
    // Whole pixels a token, square, as far as there is room.
    const float side = std::min(cells.width, cells.height);
    cells.width = cells.height = side;
    CellMap& grid = grids_[index];
    grid.port.set_grid(map.map.tokens, map.map.tokens);
    upload(grid, map, index, cells, context.theme);
    const InfluenceScene scene{{context, grid.port, cells}, map};
    ImGui::PushID(static_cast<int>(index));
    const std::optional<GridHit> hit = grid.input(cells);
    ImGui::PopID();
    grid.draw(scene);
    draw_tiles(scene);
    draw_axes(scene);
    if (chosen_) {
      clip(cells);
      draw_cursor(scene, scene.cell(chosen_->second, chosen_->first), true, true);
      unclip();
    }
    tell_largest(scene, index);
    if (hit) {
      hover(scene, actions, plan, *hit);
      // Both look at the same part.
      grids_[1 - index].port = grid.port;
    }
  }

  void upload(CellMap& grid, const CausalityMap& map, std::size_t index, Area cells, const Theme& theme) {
    const FrontRange range = grid.port.range();
    const int most = std::clamp(static_cast<int>(cells.width), 1, kTextureLimit);
    auto& image = images_[index];
    if (!image || image->range != range || most_[index] != most) {
      most_[index] = most;
      image = std::make_shared<const FrontImage>(
          make_image({map.cells, map.map.tokens, map.map.tokens}, range, most, most));
    }
    grid.upload(image, *image, theme);
  }

  /// The diagonal's tiles, within which keys or values share their blocks.
  static void draw_tiles(const InfluenceScene& scene) {
    const Theme& theme = scene.context.theme;
    clip(scene.cells);
    const std::int64_t tile = scene.map.report.tile;
    for (std::int64_t first = 0; tile > 0 && first < scene.map.map.tokens; first += tile) {
      const std::int64_t end = std::min(first + tile, scene.map.map.tokens);
      const Area from = scene.cell(first, first);
      const Area to = scene.cell(end - 1, end - 1);
      outline({from.x, from.y, to.right() - from.x, to.bottom() - from.y}, theme.muted, scene.px(1));
    }
    const auto tokens = static_cast<double>(scene.map.map.tokens);
    line({scene.x(0), scene.y(0)}, {scene.x(tokens), scene.y(tokens)}, theme.muted.alpha(150));
    unclip();
  }

  static void draw_axes(const InfluenceScene& scene) {
    const ViewContext& context = scene.context;
    const FrontRange range = scene.port.range();
    std::int64_t pitch = 1;
    for (const std::int64_t next : {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}) {
      if (scene.cell_width() * static_cast<float>(pitch) >= scene.px(kLeastTick)) break;
      pitch = next;
    }
    for (std::int64_t at = (range.column_begin + pitch - 1) / pitch * pitch; at < range.column_end; at += pitch) {
      const float x = scene.x(static_cast<double>(at) + 0.5);
      if (x < scene.cells.x || x > scene.cells.right() - scene.px(8)) continue;
      label(context.fonts.mono_small,
            {x - scene.px(20), scene.cells.y - scene.px(kInfluenceAxis), scene.px(40), scene.px(16)},
            context.theme.muted, std::to_string(at), 0.5F);
    }
    for (std::int64_t at = (range.row_begin + pitch - 1) / pitch * pitch; at < range.row_end; at += pitch) {
      const float y = scene.y(static_cast<double>(at) + 0.5);
      if (y < scene.cells.y || y > scene.cells.bottom()) continue;
      label(context.fonts.mono_small,
            {scene.cells.x - scene.px(kTokenNumbers), y - scene.px(8), scene.px(kTokenNumbers - 5), scene.px(16)},
            context.theme.muted, std::to_string(at), 1);
    }
  }

  /// Where the largest leak is, for scripts.
  static void tell_largest(const InfluenceScene& scene, std::size_t index) {
    if (!listened_to() || index != 0 || scene.map.leaks == 0) return;
    std::pair<std::int64_t, std::int64_t> at;
    float most = 0;
    for (std::int64_t row = 0; row < scene.map.map.tokens; ++row) {
      for (std::int64_t column = row + 1; column < scene.map.map.tokens; ++column) {
        if (!(scene.map.map.at(row, column) > most)) continue;
        most = scene.map.map.at(row, column);
        at = {row, column};
      }
    }
    const Area cell = scene.cell(at.second, at.first);
    if (scene.cells.holds({cell.x + cell.width / 2, cell.y + cell.height / 2})) tell_item(cell, "largest leak");
  }

  static std::string token_words(const ViewContext& context, std::size_t request, std::int64_t token) {
    const MapRequest* mapped = context.map ? context.map->request(static_cast<std::int64_t>(request)) : nullptr;
    if (mapped == nullptr) return fmt::format("token {}", token);
    const auto text = mapped->token_text.find(token);
    if (text == mapped->token_text.end()) return fmt::format("token {}", token);
    return fmt::format("token {} {}", token, in_quotes(text->second.substr(0, kShownToken)));
  }

  void hover(const InfluenceScene& scene, const ViewActions& actions, const CausalityPlan& plan, const GridHit& hit) {
    const std::int64_t tokens = scene.map.map.tokens;
    if (hit.row < 0 || hit.column < 0 || hit.row >= tokens || hit.column >= tokens) return;
    const std::string of = token_words(scene.context, plan.request, hit.row);
    const std::string by = token_words(scene.context, plan.request, hit.column);
    tooltip(scene.context, fmt::format("{}, with {} changed", of, by), influence_words(scene.map, hit.row, hit.column));
    // The other form was never recorded: there is nothing of it to go to.
    const std::optional<Place> place =
        scene.context.map && &scene.map == &shown_->here
            ? leak_place(scene.map, *scene.context.map, plan.request, hit.row, hit.column)
            : std::nullopt;
    if (place) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      actions.hint(fmt::format("go to {}, which Why explains", to_string(*place)));
    }
    if (hit.menu && place) actions.menu({{*place, {}}});
    if (!hit.clicked) return;
    chosen_ = {hit.row, hit.column};
    if (place) actions.choose({*place, {}});
  }

  void draw_key(const ViewContext& context, Area row) const {
    const double most = shown_->largest;
    const double least = most * std::pow(10, -kInfluenceDecades);
    const auto number = [](double value) { return fmt::format("{:.2g}", value); };
    float x = row.x + kMargin * context.scale;
    const float swatch = 11 * context.scale;
    const float gap = 16 * context.scale;
    // A sample of `width`, then words; what does not fit is left out.
    const auto entry = [&](float width, std::string_view said, const auto& sample) {
      const float taken = width + text_size(context.fonts.small, said).x + 6 * context.scale;
      if (x + taken > row.right()) return;
      sample(Area{x, row.y + (row.height - swatch) / 2, width, swatch});
      if (width > 0) x += width + 6 * context.scale;
      label(context.fonts.small, {x, row.y, taken, row.height}, context.theme.muted, said);
      x += text_size(context.fonts.small, said).x + gap;
    };
    const auto ramp = [&](Cell first) {
      return [&context, first](Area area) {
        const float step = area.width / kInfluenceSteps;
        for (int i = 0; i < kInfluenceSteps; ++i) {
          fill_cell(context.theme, context.fonts, {area.x + static_cast<float>(i) * step, area.y, step, area.height},
                    static_cast<Cell>(first + i));
        }
      };
    };
    const float ramp_width = 2 * kInfluenceSteps * context.scale;
    entry(ramp_width, "leak, by a later token", ramp(kLeakFirst));
    entry(ramp_width, "by an earlier one", ramp(kInfluenceFirst));
    entry(swatch, "not moved", [&context](Area area) {
      fill_cell(context.theme, context.fonts, area, kZero, 2 * context.scale);
      outline(area, context.theme.line, 1, 2 * context.scale);
    });
    entry(0, fmt::format("logits by {} to {}", number(least), number(most)), [](Area) {});
    entry(0, "row: whose logits, column: which token is changed", [](Area) {});
  }

  TokenChange change_ = TokenChange::value;
  std::size_t form_ = 0;  ///< index in CausalityPlan::forms
  std::map<Key, MapsPtr> made_;
  MapsPtr shown_;
  std::array<CellMap, 2> grids_;
  std::array<std::shared_ptr<const FrontImage>, 2> images_;
  std::array<int, 2> most_{};                                    ///< pixels that an image was made for
  std::optional<std::pair<std::int64_t, std::int64_t>> chosen_;  ///< row and column
  std::string error_;
  Key asked_;
  CausalityJob job_;  ///< last: it is stopped first
};

}  // namespace

std::unique_ptr<View> make_causality_view() { return std::make_unique<CausalityView>(); }

}  // namespace nanscope::gui
