#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "gui/context_menu.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/why_story.h"
#include "gui/views/registry.h"

/// Why: from an element back through the ops that made it, to the setting behind it.
namespace nanscope::gui {
namespace {

constexpr float kHopPad = 6;          ///< above and below a hop
constexpr float kHopTitle = 18;       ///< height of a hop's first line
constexpr float kHopLine = 15;        ///< of its sentence
constexpr float kHeading = 30;        ///< where the way enters another step
constexpr float kNumberWide = 24;     ///< room for a hop's number
constexpr float kMark = 11;           ///< half the width of the marks' column
constexpr float kWhyWideFrom = 1100;  ///< from this width on, the sentence stands beside the place
constexpr float kPlaceWide = 330;     ///< column of places and badges, then
constexpr float kValueWide = 96;
constexpr float kBitsWide = 108;
constexpr float kNumbersWidth = 190;
constexpr std::size_t kMostHopNumbers = 16;
constexpr int kMostCauseLines = 10;  ///< what is below scrolls

/// The way while it is drawn downwards.
class Walk {
 public:
  Walk(const ViewContext& context, const ViewActions& actions, Area area, std::optional<std::size_t> chosen)
      : context_(context),
        actions_(actions),
        area_(area),
        chosen_(chosen),
        y_(area.y),
        wide_(area.width >= px(kWhyWideFrom)) {}

  void head(const WhyStory& story) {
    const Theme& theme = context_.theme;
    y_ += px(12);
    const std::string hops = counted(story.hops.size(), "hop");
    const float hops_width = text_size(context_.fonts.small, hops).x + px(2);
    const Color ink = story.hops.front().bad ? theme.ink(kNan) : theme.accent;
    label(context_.fonts.small, {left(), y_, width(), px(20)}, theme.muted, hops, 1);
    const float room = width() - hops_width - px(10);
    for (const std::string& words : wrap(context_.fonts.title, story.question, room, 3)) {
      label(context_.fonts.title, {left(), y_, room + 1, px(20)}, ink, words);
      y_ += px(20);
    }
    y_ += px(4);
    fact("Cause", story.conclusion);
    y_ += px(6);
    fill({area_.x, y_, area_.width, px(1)}, theme.line);
    y_ += px(4);
  }

  void tell(const WhyStory& story, std::size_t index) {
    const WhyHop& hop = story.hops[index];
    if (!hop.heading.empty()) heading(hop.heading);
    const bool chosen = chosen_ == index;
    const Layout layout = lay_out(hop, chosen);
    const Area card{area_.x + px(6), y_, area_.width - px(12), layout.height};
    const bool pointed = interact(hop, index, card);
    if (chosen || pointed) fill(card, chosen ? context_.theme.raised : context_.theme.raised.alpha(140), px(6));
    if (chosen) fill({card.x, card.y + px(8), px(3), card.height - px(16)}, context_.theme.accent, px(1.5F));
    const ImVec2 center(left() + px(kNumberWide + kMark), y_ + px(pad() + kHopTitle / 2));
    if (index + 1 < story.hops.size()) thread(story, index, center, y_ + layout.height);
    mark(hop, center);
    write(hop, index, layout);
    y_ += layout.height;
  }

  void foot(const WhyStory& story) {
    if (story.stopped.empty()) return;
    y_ += px(6);
    for (const std::string& words :
         wrap(context_.fonts.small, "The way ends here: " + story.stopped, text_right() - text_left())) {
      label(context_.fonts.small, {text_left(), y_, text_right() - text_left() + px(4), px(kHopLine)},
            context_.theme.muted, words);
      y_ += px(kHopLine);
    }
  }

  float height() const { return y_ - area_.y; }
  std::optional<std::size_t> clicked() const { return clicked_; }

 private:
  struct Layout {
    std::vector<std::string> sentence;
    int columns = 1;
    std::size_t numbers = 0;
    float height = 0;
  };

  float px(float pixels) const { return pixels * context_.scale; }
  float left() const { return area_.x + px(kMargin); }
  float width() const { return area_.width - px(2 * kMargin); }
  float text_left() const { return left() + px(kNumberWide + 2 * kMark + 8); }
  float text_right() const { return area_.right() - px(kMargin + 4); }
  /// Of the line with the place and the value; the sentence stands right of it when there is room.
  float line_right() const { return wide_ ? text_left() + px(kPlaceWide + kValueWide + kBitsWide) : text_right(); }
  float sentence_left() const { return wide_ ? line_right() + px(28) : text_left(); }
  float sentence_width() const { return text_right() - sentence_left(); }

  void fact(std::string_view name, std::string_view words) {
    if (words.empty()) return;
    const float indent = px(56);
    label(context_.fonts.small, {left(), y_, indent, px(kHopLine)}, context_.theme.muted, name);
    for (const std::string& line : wrap(context_.fonts.small, words, width() - indent, wide_ ? 3 : kMostCauseLines)) {
      label(context_.fonts.small, {left() + indent, y_, width() - indent, px(kHopLine)}, context_.theme.text, line);
      y_ += px(kHopLine);
    }
  }

  void heading(const std::string& words) {
    const Area line{text_left(), y_ + px(4), text_right() - text_left(), px(kHeading - 6)};
    const float said = std::min(text_size(context_.fonts.small, printable(words)).x, line.width) + px(10);
    label(context_.fonts.small, line, context_.theme.text, printable(words));
    const float middle = std::floor(line.y + line.height / 2);
    fill({line.x + said, middle, line.width - said, px(1)}, context_.theme.line);
    y_ += px(kHeading);
  }

  /// Numbers are shown of the chosen hop, and where the story turns.
  Layout lay_out(const WhyHop& hop, bool chosen) const {
    Layout layout;
    layout.sentence = wrap(context_.fonts.small, hop.text, sentence_width(), chosen || wide_ ? 0 : 2);
    const auto lines = static_cast<float>(layout.sentence.size());
    layout.height = px(2 * pad()) + (wide_ ? std::max(px(kHopTitle), px(3) + lines * px(kHopLine))
                                           : px(kHopTitle) + lines * px(kHopLine));
    if (hop.numbers.empty() || !(chosen || hop.birth || hop.setting)) return layout;
    layout.numbers = kMostHopNumbers;
    layout.columns = std::max(1, static_cast<int>(sentence_width() / px(kNumbersWidth)));
    const Area room{0, 0, sentence_width(), 0};
    layout.height += px(5) + number_table(context_, room, layout.columns, layout.numbers, hop.numbers, false);
    return layout;
  }

  float pad() const { return wide_ ? 4 : kHopPad; }

  bool interact(const WhyHop& hop, std::size_t index, Area card) {
    if (!hop.target) return false;
    ImGui::SetCursorScreenPos(card.min());
    if (ImGui::InvisibleButton(fmt::format("hop {}", index).c_str(), {card.width, card.height})) {
      clicked_ = index;
      actions_.choose(*hop.target);
    }
    if (asked_for_menu()) actions_.menu({*hop.target, hop.value, hop.bits});
    if (!ImGui::IsItemHovered()) return false;
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    actions_.hint("go to " + to_string(hop.target->place));
    return true;
  }

  Color tone(const WhyHop& hop) const {
    if (hop.bad) return context_.theme.cell(kNan);
    return hop.setting ? context_.theme.accent : context_.theme.cell(kHealthyLast);
  }

  void thread(const WhyStory& story, std::size_t index, ImVec2 center, float bottom) const {
    const bool crosses = !story.hops[index + 1].heading.empty();
    const float to = bottom + px(pad() + kHopTitle / 2 + (crosses ? kHeading : 0) - 9);
    line({center.x, center.y + px(9)}, {center.x, to}, tone(story.hops[index + 1]).alpha(170), px(2));
  }

  /// A disc for an element, a square for a slot of the cache, a diamond for a scale or a weight; larger where it
  /// begins.
  void mark(const WhyHop& hop, ImVec2 center) const {
    ImDrawList* list = ImGui::GetWindowDrawList();
    const std::uint32_t color = tone(hop).packed();
    const float radius = px(hop.birth || hop.setting ? 7 : 5);
    if (hop.kind == HopKind::slot) {
      fill({center.x - radius, center.y - radius, 2 * radius, 2 * radius}, tone(hop), px(1.5F));
    } else if (hop.kind == HopKind::element) {
      list->AddCircleFilled(center, radius, color, 24);
    } else {
      list->AddNgonFilled(center, radius * 1.3F, color, 4);
    }
    if (hop.birth) list->AddCircle(center, radius + px(2.5F), color, 28, px(1.5F));
  }

  void write(const WhyHop& hop, std::size_t index, const Layout& layout) const {
    const Theme& theme = context_.theme;
    const float top = y_ + px(pad());
    label(context_.fonts.mono_small, {left(), top, px(kNumberWide - 6), px(kHopTitle)}, theme.muted,
          std::to_string(index), 1);
    const std::string_view said = hop.birth ? "born here" : hop.setting ? "the setting" : "";
    const float badge_width = said.empty() ? 0 : chip_width(context_, said) + px(10);
    const float whole = line_right() - text_left() - badge_width - px(12);
    const float place = text_size(context_.fonts.mono_small, hop.place).x;
    const float room = whole - values(hop, top, whole - place);
    label(context_.fonts.mono_small, {text_left(), top, room, px(kHopTitle)}, hop.target ? theme.accent : theme.text,
          hop.place);
    if (!said.empty()) {
      const float x = text_left() + std::min(place, room) + px(10);
      chip(context_, {x, top, badge_width - px(10), px(kHopTitle)}, said, hop.birth ? theme.cell(kNan) : theme.accent,
           hop.birth ? theme.on_bad : theme.panel);
    }
    float y = wide_ ? top + px(1.5F) : top + px(kHopTitle);
    for (const std::string& words : layout.sentence) {
      label(context_.fonts.small, {sentence_left(), y, sentence_width() + px(4), px(kHopLine)},
            layout.numbers > 0 ? theme.text : theme.muted, words);
      y += px(kHopLine);
    }
    if (layout.numbers == 0) return;
    const Area below{sentence_left(), y + px(3), sentence_width(), 0};
    number_table(context_, below, layout.columns, layout.numbers, hop.numbers, true);
  }

  /// Value and bits, at the right end of the line; the bits where there is room for both. Answers the width that they
  /// take.
  float values(const WhyHop& hop, float y, float room) const {
    if (hop.value.empty()) return 0;
    const Theme& theme = context_.theme;
    float right = line_right();
    const Color ink = hop.bad ? theme.ink(kNan) : theme.text;
    const float value = text_size(context_.fonts.mono, hop.value).x + 1;
    const bool bits = wide_ || px(kBitsWide + 8) + value <= room;
    if (bits) {
      label(context_.fonts.mono_small, {right - px(kBitsWide), y, px(kBitsWide), px(kHopTitle)}, theme.muted, hop.bits,
            1);
      right -= px(kBitsWide + 8);
    }
    label(context_.fonts.mono, {right - value, y, value, px(kHopTitle)}, ink, hop.value);
    return line_right() - right + value;
  }

  const ViewContext& context_;
  const ViewActions& actions_;
  Area area_;
  std::optional<std::size_t> chosen_;
  std::optional<std::size_t> clicked_;
  float y_;
  bool wide_;
};

class WhyView final : public View {
 public:
  std::string_view name() const override { return "why"; }
  std::string_view title() const override { return "Why"; }
  std::string_view caption() const override { return "from the element back to what made it"; }

  /// A hop of the way on screen is shown in it; any other place begins a new way.
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    return table_maker<WhyStory>(prepared);
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    if (!shown_ || !shown_->find(context.selection)) start_ = context.selection;
    return ViewRequest{fmt::format("{} {}", to_string(start_.place), start_.call),
                       [start = start_](RunFacts& facts) { return prepare_why(facts, start); }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    shown_ = std::static_pointer_cast<const WhyStory>(prepared);
    const WhyStory& story = *shown_;
    if (!story.notice.empty()) {
      notice(context, area, "There is nothing to explain here", printable(story.notice));
      return;
    }
    ImGui::SetCursorScreenPos(area.min());
    ImGui::BeginChild("way", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const std::optional<std::size_t> chosen = story.find(context.selection, clicked_);
    Walk walk(context, actions, {at.x, at.y, area.width, area.height}, chosen.value_or(0));
    walk.head(story);
    for (std::size_t i = 0; i < story.hops.size(); ++i) walk.tell(story, i);
    walk.foot(story);
    if (walk.clicked()) clicked_ = walk.clicked();
    ImGui::SetCursorScreenPos({at.x, at.y + walk.height()});
    ImGui::Dummy({1, 12 * context.scale});
    ImGui::EndChild();
  }

 private:
  Selection start_;
  std::shared_ptr<const WhyStory> shown_;
  std::optional<std::size_t> clicked_;
};

}  // namespace

std::unique_ptr<View> make_why_view() { return std::make_unique<WhyView>(); }

}  // namespace nanscope::gui
