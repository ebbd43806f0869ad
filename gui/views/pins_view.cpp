#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <chrono>

#include "core/counted.h"
#include "gui/context_menu.h"
#include "gui/drawn.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/pins.h"
#include "gui/views/history_chart.h"
#include "gui/views/registry.h"
#include "gui/views/twin_parts.h"

/// Pins: what is selected and what is kept in view, each as it goes on from step to step, with a note.
namespace nanscope::gui {
namespace {

constexpr float kCardHeight = 124;
constexpr float kStackedChart = 106;
constexpr float kCardGap = 8;
constexpr float kWordsWidth = 300;
constexpr float kLeastChartWidth = 220;  ///< narrower: the words stand above the chart
constexpr float kAxisWords = 96;         ///< right of a chart
constexpr float kPinChip = 20;
constexpr auto kHistorySlice =
    std::chrono::milliseconds(60);  ///< of the store's thread, so that others are served, too

struct Card {
  const PinHistory* history = nullptr;
  std::optional<std::size_t> pin;  ///< index in Pins; nothing for the selection
};

class PinsView final : public View {
 public:
  std::string_view name() const override { return "pins"; }
  std::string_view title() const override { return "Pins"; }
  std::string_view caption() const override { return "what is kept in view, over the steps; P pins the selection"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override { return table_maker<History>(prepared); }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    std::vector<Place> places;
    if (!context.selection.place.op.empty()) places.push_back(context.selection.place);
    if (context.pins != nullptr) {
      for (const Pin& pin : context.pins->all()) {
        if (std::find(places.begin(), places.end(), pin.place) == places.end()) places.push_back(pin.place);
      }
    }
    std::string key;
    for (const Place& place : places) key += to_string(place) + "\n";
    // What is not whole yet is asked for again, from where it is.
    if (known_ && key == places_ && !known_->whole()) key += std::to_string(known_->looked_at());
    return ViewRequest{std::move(key), [places, known = known_](RunFacts& facts) -> Result<PreparedPtr> {
                         const auto deadline = std::chrono::steady_clock::now() + kHistorySlice;
                         auto history = make_history(facts.view(), places, known.get(), deadline);
                         if (!history) return tl::unexpected(history.error());
                         return *history;
                       }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    known_ = std::static_pointer_cast<const History>(prepared);
    places_.clear();
    for (const auto& pin : known_->pins) places_ += to_string(pin->place) + "\n";
    const std::vector<Card> cards = cards_of(context);
    if (cards.empty()) {
      notice(context, area, "Nothing is selected or pinned",
             "Select a tensor or an element; P keeps it here, with a note");
      return;
    }
    ImGui::SetCursorScreenPos(area.min());
    ImGui::BeginChild("pins", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 start = ImGui::GetCursorScreenPos();
    const bool stacked = area.width < (kWordsWidth + kAxisWords + kLeastChartWidth) * context.scale;
    float y = start.y + 8 * context.scale;
    for (const Card& card : cards) {
      const float height = (stacked ? words_height(card) + kStackedChart : kCardHeight) * context.scale;
      const Area box{start.x + 8 * context.scale, y, area.width - 22 * context.scale, height};
      if (ImGui::IsRectVisible(box.min(), box.max())) draw_card(context, actions, card, box, stacked);
      y += height + kCardGap * context.scale;
    }
    ImGui::SetCursorScreenPos({start.x, y});
    ImGui::Dummy({1, 1});
    ImGui::EndChild();
  }

 private:
  /// Of what stands above a chart; a pin has a note.
  static float words_height(const Card& card) { return card.pin ? 88 : 60; }

  /// The selection first, unless it is pinned.
  std::vector<Card> cards_of(const ViewContext& context) const {
    std::vector<Card> cards;
    const auto history_of = [&](const Place& place) -> const PinHistory* {
      for (const auto& pin : known_->pins) {
        if (pin->place == place) return pin.get();
      }
      return nullptr;
    };
    const Place& selected = context.selection.place;
    const bool pinned = context.pins != nullptr && context.pins->find(selected);
    if (const PinHistory* history = history_of(selected); history != nullptr && !pinned) cards.push_back({history, {}});
    for (std::size_t i = 0; context.pins != nullptr && i < context.pins->all().size(); ++i) {
      if (const PinHistory* history = history_of(context.pins->all()[i].place)) cards.push_back({history, i});
    }
    return cards;
  }

  void draw_card(const ViewContext& context, const ViewActions& actions, const Card& card, Area box, bool stacked) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    ImGui::PushID(card.pin ? static_cast<int>(*card.pin) : -1);
    fill(box, context.theme.raised.alpha(card.pin ? 120 : 60), px(6));
    const Area inner = box.inset(px(12), px(8));
    const Area words{inner.x, inner.y, stacked ? inner.width : px(kWordsWidth - 24), inner.height};
    Area chart{inner.x + px(kWordsWidth), inner.y, inner.width - px(kWordsWidth + kAxisWords), inner.height};
    if (stacked) {
      const float above = px(words_height(card));
      chart = {inner.x, inner.y + above, inner.width - px(kAxisWords), inner.height - above};
    }
    const HistoryChart curve(context, *known_, *card.history, chart);
    curve.draw();
    draw_words(context, actions, card, curve, words);
    if (const HistoryPoint* point = curve.pointed()) {
      const HistoryStep& step = known_->steps[point->step];
      const std::string said = point_words(*card.history, *point);
      tooltip(context, to_string(point->target.place),
              {fmt::format("request {}, step {}", step.request, step.index), said});
      actions.hint(fmt::format("{}   {}", to_string(point->target.place), said));
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) actions.choose(point->target);
    }
    ImGui::PopID();
  }

  void draw_words(const ViewContext& context, const ViewActions& actions, const Card& card, const HistoryChart& curve,
                  Area area) {
    const auto px = [&](float pixels) { return pixels * context.scale; };
    const Theme& theme = context.theme;
    const std::string chip = card.pin ? "unpin" : "pin";
    const float left = area.right() - chip_width(context, chip);
    if (chip_button(context, left, area.right(), area.y, px(kPinChip), chip, false).pressed) {
      if (card.pin) {
        actions.unpin(*card.pin);
      } else {
        actions.pin(card.history->place);
      }
    }
    const Area title{area.x, area.y, left - area.x - px(8), px(kPinChip)};
    ImGui::SetCursorScreenPos(title.min());
    if (ImGui::InvisibleButton("go", {title.width, title.height})) actions.choose({card.history->place, {}});
    if (asked_for_menu()) actions.menu({{card.history->place, {}}});
    if (ImGui::IsItemHovered()) ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    label(context.fonts.mono, title, theme.accent, to_string(card.history->place));
    float y = title.bottom() + px(4);
    const auto say = [&](const std::string& words, Color color) {
      label(context.fonts.small, {area.x, y, area.width, px(16)}, color, words);
      y += px(17);
    };
    const Place& own = card.history->place;
    const Place& selected = context.selection.place;
    const HistoryPoint* there = own.request && own.step ? curve.at(*own.request, *own.step) : nullptr;
    const HistoryPoint* here =
        selected.request && selected.step ? curve.at(*selected.request, *selected.step) : nullptr;
    if (card.history->looked_at < known_->steps.size()) {
      say(fmt::format("{} of {}", card.history->looked_at, counted(known_->steps.size(), "step")), theme.muted);
    } else {
      say(there != nullptr ? point_words(*card.history, *there) : std::string("not there"), theme.text);
    }
    if (here != nullptr && here != there) {
      say(fmt::format("at {}/{}: {}", *selected.request, *selected.step, point_words(*card.history, *here)),
          theme.muted);
    }
    if (!card.history->problem.empty()) say(printable(card.history->problem), theme.ink(kClipped));
    if (card.pin) draw_note(context, actions, *card.pin, {area.x, y + px(2), area.width, px(24)});
  }

  /// Kept when Enter is pressed or another thing is clicked.
  void draw_note(const ViewContext& context, const ViewActions& actions, std::size_t pin, Area area) {
    const std::string& note = context.pins->all()[pin].note;
    if (writing_ != pin) typed_ = note;
    ImGui::SetCursorScreenPos(area.min());
    ImGui::PushFont(context.fonts.small);
    ImGui::PushStyleColor(ImGuiCol_FrameBg, context.theme.panel.packed());
    ImGui::SetNextItemWidth(area.width);
    std::string shown = writing_ == pin ? typed_ : printable(note);
    const bool entered = ImGui::InputTextWithHint("##note", "a note", &shown, ImGuiInputTextFlags_EnterReturnsTrue);
    tell_item(area, fmt::format("note {}", pin + 1));
    if (ImGui::IsItemActive()) {
      writing_ = pin;
      typed_ = shown;
    }
    if (entered || ImGui::IsItemDeactivatedAfterEdit()) actions.note(pin, shown);
    if (ImGui::IsItemDeactivated() && writing_ == pin) writing_.reset();
    ImGui::PopStyleColor();
    ImGui::PopFont();
    tell_text(area, note);
  }

  std::shared_ptr<const History> known_;  ///< that is drawn
  std::string places_;                    ///< that it is of
  std::optional<std::size_t> writing_;    ///< the pin whose note is typed
  std::string typed_;
};

}  // namespace

std::unique_ptr<View> make_pins_view() { return std::make_unique<PinsView>(); }

}  // namespace nanscope::gui
