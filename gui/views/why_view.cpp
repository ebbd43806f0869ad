#include <fmt/format.h>

#include <algorithm>

#include "gui/marks.h"
#include "gui/prepare/why_story.h"
#include "gui/views/registry.h"

/// Why: from an element back through the ops that made it, to the setting behind it.
namespace nanscope::gui {
namespace {

constexpr float kMargin = 18;
constexpr float kPad = 6;          ///< above and below a hop
constexpr float kTitle = 18;       ///< height of a hop's first line
constexpr float kLine = 15;        ///< of its sentence
constexpr float kHeading = 30;     ///< where the way enters another step
constexpr float kNumberWide = 24;  ///< room for a hop's number
constexpr float kMark = 11;        ///< half the width of the marks' column
constexpr float kWideFrom = 820;   ///< from this width on, numbers stand beside the sentences
constexpr float kBitsWide = 104;
constexpr std::size_t kFewNumbers = 4;
constexpr std::size_t kMostNumbers = 16;

/// The way while it is drawn downwards.
class Walk {
 public:
  Walk(const ViewContext& context, const ViewActions& actions, Area area, std::optional<std::size_t> chosen)
      : context_(context),
        actions_(actions),
        area_(area),
        chosen_(chosen),
        y_(area.y),
        wide_(area.width >= px(kWideFrom)) {}

  void head(const WhyStory& story) {
    const Theme& theme = context_.theme;
    y_ += px(12);
    const std::string hops = fmt::format("{} hop{}", story.hops.size(), story.hops.size() == 1 ? "" : "s");
    const float hops_width = text_size(context_.fonts.small, hops).x + px(2);
    const Color ink = story.hops.front().bad ? theme.cell(kNan) : theme.accent;
    label(context_.fonts.title, {left(), y_, width() - hops_width - px(10), px(20)}, ink, story.question);
    label(context_.fonts.small, {left(), y_, width(), px(20)}, theme.muted, hops, 1);
    y_ += px(24);
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
    const ImVec2 center(left() + px(kNumberWide + kMark), y_ + px(kPad + kTitle / 2));
    if (index + 1 < story.hops.size()) thread(story, index, center, y_ + layout.height);
    mark(hop, center);
    write(hop, index, layout);
    y_ += layout.height;
  }

  void foot(const WhyStory& story) {
    if (story.stopped.empty()) return;
    y_ += px(6);
    for (const std::string& words : wrap(context_.fonts.small, "The walk ends here: " + story.stopped, text_width())) {
      label(context_.fonts.small, {text_left(), y_, text_width(), px(kLine)}, context_.theme.muted, words);
      y_ += px(kLine);
    }
  }

  float height() const { return y_ - area_.y; }
  std::optional<std::size_t> clicked() const { return clicked_; }

 private:
  struct Layout {
    std::vector<std::string> sentence;
    int columns = 1;
    std::size_t numbers = 0;
    bool beside = false;
    float height = 0;
  };

  float px(float pixels) const { return pixels * context_.scale; }
  float left() const { return area_.x + px(kMargin); }
  float width() const { return area_.width - px(2 * kMargin); }
  float text_left() const { return left() + px(kNumberWide + 2 * kMark + 8); }
  float text_width() const {
    const float whole = area_.right() - px(kMargin) - text_left();
    return wide_ ? std::min(whole * 0.6F, px(700)) : whole;
  }
  Area beside() const {
    const float x = text_left() + text_width() + px(36);
    return {x, y_ + px(kPad + 2), area_.right() - px(kMargin + 6) - x, 0};
  }

  void fact(std::string_view name, std::string_view words) {
    if (words.empty()) return;
    const float indent = px(56);
    label(context_.fonts.small, {left(), y_, indent, px(kLine)}, context_.theme.muted, name);
    for (const std::string& line : wrap(context_.fonts.small, words, width() - indent, wide_ ? 3 : 5)) {
      label(context_.fonts.small, {left() + indent, y_, width() - indent, px(kLine)}, context_.theme.text, line);
      y_ += px(kLine);
    }
  }

  void heading(const std::string& words) {
    const Area line{left(), y_ + px(4), width(), px(kHeading - 6)};
    const float said = std::min(text_size(context_.fonts.small, printable(words)).x, line.width) + px(10);
    label(context_.fonts.small, line, context_.theme.text, printable(words));
    const float middle = std::floor(line.y + line.height / 2);
    fill({line.x + said, middle, line.width - said, px(1)}, context_.theme.line);
    y_ += px(kHeading);
  }

  Layout lay_out(const WhyHop& hop, bool chosen) const {
    Layout layout;
    layout.sentence = wrap(context_.fonts.small, hop.text, text_width(), chosen || wide_ ? 0 : 2);
    layout.height = px(2 * kPad + kTitle) + static_cast<float>(layout.sentence.size()) * px(kLine);
    if (hop.numbers.empty() || (!wide_ && !chosen)) return layout;
    layout.numbers = chosen ? kMostNumbers : kFewNumbers;
    layout.beside = wide_;
    const float room = wide_ ? beside().width : text_width();
    layout.columns = std::max(1, static_cast<int>(room / px(190)));
    const float table = number_table(context_, {0, 0, room, 0}, layout.columns, layout.numbers, hop.numbers, false);
    if (wide_) {
      layout.height = std::max(layout.height, px(2 * kPad + 4) + table);
    } else {
      layout.height += px(5) + table;
    }
    return layout;
  }

  bool interact(const WhyHop& hop, std::size_t index, Area card) {
    if (!hop.target) return false;
    ImGui::SetCursorScreenPos(card.min());
    if (ImGui::InvisibleButton(fmt::format("hop {}", index).c_str(), {card.width, card.height})) {
      clicked_ = index;
      actions_.choose(*hop.target);
    }
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
    const float to = bottom + px(kPad + kTitle / 2 + (crosses ? kHeading : 0) - kMark);
    line({center.x, center.y + px(kMark - 1)}, {center.x, to}, tone(story.hops[index + 1]).alpha(170), px(2));
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
    float y = y_ + px(kPad);
    label(context_.fonts.mono_small, {left(), y, px(kNumberWide - 6), px(kTitle)}, theme.muted, std::to_string(index),
          1);
    const float taken = values(hop, y);
    const float room = text_width() - taken - px(12);
    label(context_.fonts.mono_small, {text_left(), y, room, px(kTitle)}, hop.target ? theme.accent : theme.text,
          hop.place);
    const float badge = text_left() + std::min(text_size(context_.fonts.mono_small, hop.place).x, room) + px(10);
    const std::string_view said = hop.birth ? "born here" : hop.setting ? "the setting" : "";
    if (!said.empty() && badge + chip_width(context_, said) < text_left() + text_width() - taken) {
      chip(context_, {badge, y, chip_width(context_, said), px(kTitle)}, said,
           hop.birth ? theme.cell(kNan) : theme.accent, hop.birth ? theme.on_bad : theme.panel);
    }
    y += px(kTitle);
    for (const std::string& words : layout.sentence) {
      label(context_.fonts.small, {text_left(), y, text_width() + px(4), px(kLine)}, theme.muted, words);
      y += px(kLine);
    }
    if (layout.numbers == 0) return;
    const Area below{text_left(), y + px(3), text_width(), 0};
    number_table(context_, layout.beside ? beside() : below, layout.columns, layout.numbers, hop.numbers, true);
  }

  /// Bits and value, at the right end of the line. Answers the width that they take.
  float values(const WhyHop& hop, float y) const {
    if (hop.value.empty()) return 0;
    const Theme& theme = context_.theme;
    const float right = text_left() + text_width();
    const Color ink = hop.bad ? theme.cell(kNan) : theme.text;
    label(context_.fonts.mono_small, {right - px(kBitsWide), y, px(kBitsWide), px(kTitle)}, theme.muted, hop.bits, 1);
    const float value = text_size(context_.fonts.mono, hop.value).x + 1;
    label(context_.fonts.mono, {right - px(kBitsWide + 8) - value, y, value, px(kTitle)}, ink, hop.value);
    return px(kBitsWide + 8) + value;
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
  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    if (!shown_ || !shown_->find(context.selection)) start_ = context.selection;
    return ViewRequest{to_string(start_.place),
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
