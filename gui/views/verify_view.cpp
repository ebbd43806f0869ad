#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "gui/cell_paint.h"
#include "gui/context_menu.h"
#include "gui/controls.h"
#include "gui/export/tables.h"
#include "gui/file_list.h"
#include "gui/marks.h"
#include "gui/model_check.h"
#include "gui/prepare/verify_list.h"
#include "gui/text_field.h"
#include "gui/views/front_errors.h"
#include "gui/views/registry.h"
#include "gui/views/twin_parts.h"
#include "scenarios/report/verify_words.h"

/// The check of a dump against its model: the verdict, the outputs that are off, and what explains them.
namespace nanscope::gui {
namespace {

constexpr float kVerdictLine = 19;
constexpr float kVerifyChip = 21;
constexpr float kVerifyRow = 21;
constexpr float kPlaceColumn = 230;
constexpr float kLeastPlaceColumn = 150;
constexpr float kFurthestColumn = 84;
constexpr float kBeyondColumn = 96;
constexpr float kVerifyGap = 12;
constexpr float kDetailsWidth = 380;
constexpr float kDetailsBesideFrom = 880;
constexpr float kDetailsBelow = 132;
constexpr float kDetailsBelowFrom = 300;  ///< lower views have no room for them
constexpr float kBesideScrollbar = 14;
constexpr double kFreeDecades = 6;   ///< of roundings that a bar has room for
constexpr double kFewRoundings = 8;  ///< as many are no reason to look at a layer, see free_run.cpp
constexpr float kBecauseFrom = 100;  ///< narrower, what explains it is told of the selected one alone

class VerifyView final : public View {
 public:
  std::string_view name() const override { return "verify"; }
  std::string_view title() const override { return "Verify"; }
  std::string_view caption() const override { return "a dump against its model: what is off, and what explains it"; }

  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    const auto* list = dynamic_cast<const VerifyList*>(prepared.get());
    if (list == nullptr || !list->errors) return std::nullopt;
    return [errors = list->errors] { return table_of(*errors); };
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    Place place = context.selection.place;
    place.token.reset();
    place.channel.reset();
    std::string key = fmt::format("{} {} {} {}", beside_key(context.beside), static_cast<int>(order_.which),
                                  order_.furthest_first, to_string(place));
    if (context.errors) key += fmt::format(" {}", context.errors->findings->count());
    return ViewRequest{std::move(key),
                       [errors = context.errors, order = order_, place](RunFacts&) -> Result<PreparedPtr> {
                         if (!errors) return std::make_shared<const VerifyList>();
                         return std::make_shared<const VerifyList>(make_verify_list(errors, order, place));
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    const auto& list = static_cast<const VerifyList&>(*prepared);
    if (!list.errors) {
      if (context.beside && context.beside->check) {
        notice(context, area, "Checking\u2026", "Outputs are listed as they are recomputed");
      } else {
        draw_no_model(context, actions, area);
      }
      return;
    }
    const float scale = context.scale;
    Area rest = area.inset(kMargin * scale, 0);
    rest.y += 8 * scale;
    rest.height -= 8 * scale;
    take(rest, draw_verdict(context, list, rest));
    take(rest, draw_chips(context, list, rest) + 6 * scale);
    Area details;
    const bool detailed = list.of && !free_run_;
    if (detailed && rest.width >= kDetailsBesideFrom * scale) {
      const float width = kDetailsWidth * scale;
      details = {rest.right() - width, rest.y, width, rest.height};
      rest.width -= width + 18 * scale;
    } else if (detailed && rest.height >= kDetailsBelowFrom * scale) {
      const float height = kDetailsBelow * scale;
      details = {rest.x, rest.bottom() - height, rest.width, height};
      rest.height -= height + 6 * scale;
    }
    if (free_run_) return draw_free_run(context, actions, list, rest);
    draw_list(context, actions, list, rest);
    if (details.width > 0) draw_details(context, *list.of, details);
  }

 private:
  static void take(Area& rest, float height) {
    rest.y += height;
    rest.height -= height;
  }

  /// A field for the checkpoint of a dump.
  void draw_no_model(const ViewContext& context, const ViewActions& actions, Area area) {
    if (!context.checkable) {
      return notice(context, area, "A recording is checked by a replay",
                    "nanscope replay FILE computes it again and compares every hash; dumps are checked here");
    }
    const Look look{context.theme, context.fonts, context.scale};
    const float top = area.y + area.height * 0.5F - look.px(24);
    notice(context, {area.x, area.y, area.width, 2 * (top - area.y) - look.px(20)}, "No model stands beside",
           "Name the checkpoint that was served: each output is then recomputed from its inputs and weights");
    if (context.unattended) return;
    const float check = button_width(look, "Check");
    const float browse = button_width(look, "Browse");
    const float width = std::min(look.px(520), area.width - look.px(48) - check - browse - look.px(20));
    const float left = area.x + (area.width - width - check - browse - look.px(20)) / 2;
    const Area field{left, top + look.px(40), width, look.px(30)};
    const bool entered = model_.draw(look, "model", "a checkpoint's folder, or a GGUF file", context.fonts.mono, field);
    const Area first{field.right() + look.px(10), field.y, check, field.height};
    if (button(look, "check", "Check", first, true) || entered) check_typed(actions);
    if (button(look, "browse", "Browse", {first.right() + look.px(10), field.y, browse, field.height}))
      actions.check_model({});
  }

  void check_typed(const ViewActions& actions) {
    if (model_.text.empty()) return actions.check_model({});
    const std::filesystem::path path = with_home(model_.text);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return model_.refuse("there is no such file or folder");
    if (!looks_like_checkpoint(path))
      return model_.refuse("is no checkpoint: expected config.json with *.safetensors, or a GGUF file");
    actions.check_model(path);
  }

  /// Answers its height.
  static float draw_verdict(const ViewContext& context, const VerifyList& list, Area area) {
    const float line = kVerdictLine * context.scale;
    const bool off = list.of_filter[0] > 0 || !list.errors->findings->problem.empty();
    const Color tone = off ? context.theme.ink(context.theme.dark ? kClipped : kNan) : context.theme.text;
    const int most = area.height < kDetailsBelowFrom * context.scale ? 1 : 2;  // of lines
    float y = area.y;
    for (std::size_t i = 0; i < list.verdict.size(); ++i) {
      const ImFont* font = i == 0 ? context.fonts.title : context.fonts.small;
      for (const std::string& words : wrap(font, printable(list.verdict[i]), area.width, most)) {
        label(font, {area.x, y, area.width + 1, line}, i == 0 ? tone : context.theme.text, words);
        y += line;
      }
    }
    return y + 4 * context.scale - area.y;
  }

  /// Answers their height.
  float draw_chips(const ViewContext& context, const VerifyList& list, Area area) {
    const float height = kVerifyChip * context.scale;
    const float gap = 6 * context.scale;
    float x = area.x;
    float y = area.y;
    const auto chip_at = [&](const std::string& words, bool chosen) {
      const float width = chip_width(context, words);
      if (x > area.x && x + width > area.right()) {
        x = area.x;
        y += height + gap;
      }
      const ChipPress chip = chip_button(context, x, area.right(), y, height, words, chosen);
      x = chip.right + gap;
      return chip.pressed;
    };
    constexpr const char* kWords[] = {"off", "all", "not checked"};
    for (std::size_t i = 0; i < std::size(kWords); ++i) {
      const auto which = static_cast<VerifyFilter>(i);
      if (!chip_at(fmt::format("{} {}", kWords[i], list.of_filter[i]), !free_run_ && order_.which == which)) continue;
      order_.which = which;
      free_run_ = false;
    }
    x += gap;
    if (chip_at("furthest first", order_.furthest_first)) order_.furthest_first = !order_.furthest_first;
    x += gap;
    if (context.beside && context.beside->check && chip_at("free run", free_run_)) free_run_ = !free_run_;
    return y + height - area.y;
  }

  /// How far each layer is off when the model runs over the ids by itself; it is run when that is asked for.
  static void draw_free_run(const ViewContext& context, const ViewActions& actions, const VerifyList& list, Area area) {
    if (!context.beside || !context.beside->check) return;
    ModelCheck& check = *context.beside->check;
    check.run_freely();
    const auto free = check.free_run();
    if (!free) {
      notice(context, area,
             check.running_freely() ? "Running the model over the dumped ids\u2026" : "The check comes first",
             "In f32, beside the window; then each layer is held to it");
      return;
    }
    const float scale = context.scale;
    const float line = kVerdictLine * scale;
    float y = area.y;
    for (const std::string& words : wrap(context.fonts.small, printable(free_run_summary(*free)), area.width, 2)) {
      label(context.fonts.small, {area.x, y, area.width + 1, line}, context.theme.text, words);
      y += line;
    }
    const Area rows{area.x, y + 4 * scale, area.width, area.bottom() - y - 4 * scale};
    if (rows.height < kVerifyRow * scale || free->layers.empty()) return;
    ImGui::SetCursorScreenPos(rows.min());
    ImGui::BeginChild("layers", {rows.width, rows.height}, false, ImGuiWindowFlags_NoBackground);
    const float height = std::floor(kVerifyRow * scale);
    const float top = ImGui::GetCursorScreenPos().y;
    for (std::size_t i = 0; i < free->layers.size(); ++i) {
      const Area row{rows.x, top + static_cast<float>(i) * height, rows.width - kBesideScrollbar * scale, height};
      ImGui::PushID(static_cast<int>(i));
      draw_layer(context, actions, list, *free, free->layers[i], row);
      ImGui::PopID();
    }
    ImGui::SetCursorScreenPos({rows.x, top + static_cast<float>(free->layers.size()) * height});
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

  /// Its error as a bar, from one rounding to as much as there is.
  static void draw_layer(const ViewContext& context, const ViewActions& actions, const VerifyList& list,
                         const FreeRun& free, const FreeLayer& layer, Area row) {
    const Theme& theme = context.theme;
    const float scale = context.scale;
    ImGui::SetCursorScreenPos(row.min());
    const bool clicked = ImGui::InvisibleButton("layer", {row.width, row.height});
    if (ImGui::IsItemHovered()) fill(row, theme.raised.alpha(140), 4 * scale);
    const double roundings = layer.error / free.rounding;
    const std::string words = fmt::format("{:.2e}, {:.3g} roundings", layer.error, roundings);
    const std::string name = layer.layer < 0 ? std::string("last norm") : fmt::format("layer {}", layer.layer);
    const float names = 84 * scale;
    const float numbers = 190 * scale;
    const bool leaves = free.leaves_at == layer.layer;
    label(context.fonts.mono_small, {row.x + 6 * scale, row.y, names, row.height}, theme.text, name);
    const Area bar{row.x + names, row.y + 5 * scale, row.width - names - numbers, row.height - 10 * scale};
    if (bar.width > 20 * scale) {
      const double part = std::clamp(std::log10(std::max(roundings, 1.0)) / kFreeDecades, 0.0, 1.0);
      fill(bar, theme.raised, 2 * scale);
      const Cell cell = error_cell(roundings / kFewRoundings);
      fill({bar.x, bar.y, std::max(2 * scale, bar.width * static_cast<float>(part)), bar.height},
           error_theme(theme).cell(cell), 2 * scale);
    }
    label(context.fonts.mono_small, {row.right() - numbers + 10 * scale, row.y, numbers - 10 * scale, row.height},
          leaves ? theme.accent : theme.text, words, 1);
    if (ImGui::IsItemHovered()) {
      actions.hint(printable(fmt::format("{}: row {} is furthest off{}", layer.name, layer.worst_row,
                                         leaves ? "; here what was served leaves the model" : "")));
    }
    const auto& checked = list.errors->findings->checked;
    const auto at =
        std::find_if(checked.begin(), checked.end(), [&](const auto& one) { return one->name == layer.name; });
    if (!clicked || at == checked.end()) return;
    if (const auto& place = list.errors->places[static_cast<std::size_t>(at - checked.begin())]) actions.choose(*place);
  }

  void draw_list(const ViewContext& context, const ViewActions& actions, const VerifyList& list, Area area) {
    const float scale = context.scale;
    const float titles = 18 * scale;
    const Columns columns = columns_of(context, list, area.width - kBesideScrollbar * scale);
    if (list.rows.empty()) {
      const bool none = list.order.which == VerifyFilter::off;
      notice(context, area, none ? "Nothing is off" : "Nothing to list",
             none ? "No output is further off than rounding" : "The check has none of these");
      return;
    }
    draw_titles(context, columns, {area.x, area.y, area.width, titles});
    fill({area.x, area.y + titles, area.width, 1}, context.theme.line);
    const Area rows{area.x, area.y + titles + 1, area.width, area.height - titles - 1};
    if (rows.height < kVerifyRow * scale) return;
    ImGui::SetCursorScreenPos(rows.min());
    ImGui::BeginChild("outputs", {rows.width, rows.height}, false, ImGuiWindowFlags_NoBackground);
    const auto height = static_cast<double>(std::floor(kVerifyRow * scale));
    follow(list, height);
    const auto scrolled = static_cast<double>(ImGui::GetScrollY());
    const auto first = static_cast<std::size_t>(std::max(0.0, scrolled / height));
    const auto seen = static_cast<std::size_t>(static_cast<double>(rows.height) / height) + 2;
    for (std::size_t i = first; i < std::min(list.rows.size(), first + seen); ++i) {
      const auto y = static_cast<float>(static_cast<double>(i) * height - scrolled);
      draw_row(context, actions, list, i, columns, {rows.x, rows.y + y, rows.width, static_cast<float>(height)});
    }
    ImGui::SetCursorPosY(static_cast<float>(static_cast<double>(list.rows.size()) * height));
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

  /// Where the columns stand, from the left of a row; those of no width are left out.
  struct Columns {
    Area place;
    Area furthest;
    Area beyond;
    Area because;
  };
  static Columns columns_of(const ViewContext& context, const VerifyList& list, float width) {
    const float scale = context.scale;
    const float gap = kVerifyGap * scale;
    Columns at;
    float x = 20 * scale;
    const bool named = list.order.which == VerifyFilter::not_checked;
    const float place =
        named ? width * 0.6F : std::clamp(width * 0.35F, kLeastPlaceColumn * scale, kPlaceColumn * scale);
    at.place = {x, 0, std::min(place, width - x), 0};
    x = at.place.right() + gap;
    const auto next = [&](Area& column, float wanted) {
      if (named || x + wanted > width) return;
      column = {x, 0, wanted, 0};
      x += wanted + gap;
    };
    next(at.furthest, kFurthestColumn * scale);
    next(at.beyond, kBeyondColumn * scale);
    if (width - x >= kBecauseFrom * scale) at.because = {x, 0, width - x, 0};
    return at;
  }

  static void draw_titles(const ViewContext& context, const Columns& columns, Area area) {
    const auto title = [&](const Area& column, const char* words, float align) {
      if (column.width <= 0) return;
      label(context.fonts.small, {area.x + column.x, area.y, column.width, area.height}, context.theme.muted, words,
            align);
    };
    title(columns.place, "output", 0);
    title(columns.furthest, "\u00D7 the bound", 1);
    title(columns.beyond, "beyond it", 1);
    title(columns.because, columns.furthest.width > 0 ? "because" : "why not", 0);
  }

  /// Scrolls to an output that was chosen elsewhere.
  void follow(const VerifyList& list, double height) {
    if (list.chosen == followed_) return;
    followed_ = list.chosen;
    if (!list.chosen) return;
    const double at = static_cast<double>(*list.chosen) * height;
    const auto top = static_cast<double>(ImGui::GetScrollY());
    const auto room = static_cast<double>(ImGui::GetWindowHeight());
    if (at < top || at + height > top + room) ImGui::SetScrollY(static_cast<float>(std::max(0.0, at - room / 2)));
  }

  void draw_row(const ViewContext& context, const ViewActions& actions, const VerifyList& list, std::size_t index,
                const Columns& columns, Area area) {
    const VerifyRow& row = list.rows[index];
    const Theme& theme = context.theme;
    const float scale = context.scale;
    ImGui::SetCursorScreenPos(area.min());
    ImGui::PushID(static_cast<int>(index));
    const bool clicked = ImGui::InvisibleButton("output", {area.width, area.height});
    ImGui::PopID();
    const bool pointed = ImGui::IsItemHovered();
    const bool asked = asked_for_menu();
    const bool chosen = list.chosen == index;
    if (chosen || pointed) fill(area, chosen ? theme.raised : theme.raised.alpha(140), 4 * scale);
    if (chosen) fill({area.x, area.y, 3 * scale, area.height}, theme.accent, 1.5F * scale);
    const float swatch = 9 * scale;
    const Area square{area.x + 6 * scale, area.y + (area.height - swatch) / 2, swatch, swatch};
    fill_cell(error_theme(theme), context.fonts, square, row.cell, 2 * scale);
    if (row.unexplained) outline(square.inset(-2 * scale), theme.text, scale, 3 * scale);
    const auto cell = [&](const Area& column, const ImFont* font, Color color, const std::string& words, float align) {
      if (column.width <= 0 || words.empty()) return;
      label(font, {area.x + column.x, area.y, column.width, area.height}, color, words, align);
    };
    cell(columns.place, context.fonts.mono_small, theme.text,
         shortened(context.fonts.mono_small, printable(row.place), columns.place.width), 0);
    cell(columns.furthest, context.fonts.mono_small, theme.text, row.furthest, 1);
    cell(columns.beyond, context.fonts.mono_small, theme.text, row.beyond, 1);
    cell(columns.because, context.fonts.small, theme.muted, printable(row.because), 0);
    if (pointed) actions.hint(printable(row.because.empty() ? row.place : row.because));
    if (list.order.which == VerifyFilter::not_checked) return;
    if (const auto& place = list.errors->places[row.index]; asked && place) {
      actions.menu(
          {*place, row.furthest, {}, fmt::format("{},{},{},{}", row.place, row.furthest, row.beyond, row.because)});
    }
    if (!clicked) return;
    if (const auto& place = list.errors->places[row.index]) {
      followed_ = index;
      actions.choose(*place);
    }
  }

  /// Of the selected output: its name, how far it is off, all that explains it.
  static void draw_details(const ViewContext& context, const VerifiedOutput& one, Area area) {
    const float scale = context.scale;
    const float line = 16 * scale;
    fill(area, context.theme.raised.alpha(110), 6 * scale);
    const Area inner = area.inset(12 * scale, 8 * scale);
    float y = inner.y;
    const auto say = [&](const ImFont* font, Color color, const std::string& text, int most) {
      for (const std::string& words : wrap(font, printable(text), inner.width, most)) {
        if (y + line > inner.bottom()) return;
        label(font, {inner.x, y, inner.width + 1, line}, color, words);
        y += line;
      }
    };
    say(context.fonts.mono_small, context.theme.accent, one.name, 2);
    say(context.fonts.small, context.theme.text, verified_words(one), 3);
    if (!one.off) return;
    y += 4 * scale;
    if (one.explanations.empty()) say(context.fonts.small, context.theme.text, "Nothing that is known explains it.", 2);
    for (std::size_t i = 0; i < one.explanations.size(); ++i) {
      const ExplainedBy& each = one.explanations[i];
      const std::string sure = i == 0 ? fmt::format("{}: ", report::certainty_word(certainty(one))) : "or: ";
      const std::string whose = each.op == one.op || each.op.empty() ? "" : fmt::format(" (of {})", each.op);
      say(context.fonts.small, i == 0 ? context.theme.text : context.theme.muted,
          fmt::format("{}{}{}, explains {:.4g} %, {:.2g} of the bound on average", sure, each.text, whose,
                      100 * each.share, each.distance),
          2);
    }
  }

  VerifyOrder order_;
  TextField model_;
  bool free_run_ = false;  ///< shown instead of the list
  std::optional<std::size_t> followed_;
};

}  // namespace

std::unique_ptr<View> make_verify_view() { return std::make_unique<VerifyView>(); }

}  // namespace nanscope::gui
