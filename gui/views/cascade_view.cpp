#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/views/registry.h"

/// The cascade: the links from a setting to its symptom as a story told downwards.
namespace nanscope::gui {
namespace {

constexpr float kDisc = 11;              ///< radius of a link's number
constexpr float kPad = 5;                ///< above and below a link
constexpr float kTitle = 18;             ///< height of its title
constexpr float kWideFrom = 820;         ///< from this width on, every link shows its numbers beside it
constexpr float kNumbersWide = 210;      ///< least width of a column of numbers
constexpr std::size_t kNumbersRows = 2;  ///< beside a link that is not chosen
constexpr std::size_t kMostNumbers = 12;
constexpr int kMostLines = 4;  ///< of a link that is not chosen

/// The same op of the same step; the token counts where both places name one.
bool same_spot(const Place& link, const Place& selected) {
  const auto agree = [](const auto& a, const auto& b) { return !a || !b || *a == *b; };
  return link.request == selected.request && link.step == selected.step && link.layer == selected.layer &&
         link.op == selected.op && agree(link.token, selected.token);
}

/// The story while it is drawn downwards.
class Teller {
 public:
  /// `chosen`: number of the link whose numbers are shown in full, 0 for none.
  Teller(const ViewContext& context, const ViewActions& actions, Area area, int chosen)
      : context_(context),
        actions_(actions),
        area_(area),
        chosen_(chosen),
        y_(area.y),
        wide_(area.width >= px(kWideFrom)) {}

  void head(const Story& story) {
    const Theme& theme = context_.theme;
    const auto found = std::count_if(story.links.begin(), story.links.end(),
                                     [](const StoryLink& link) { return link.state == LinkState::found; });
    y_ += px(12);
    const Color tone = story.clean ? theme.accent : theme.cell(kNan);
    const std::string count = fmt::format("{} of {} links \u00B7 {}", found, story.links.size(), story.spread);
    const float count_width = text_size(context_.fonts.small, count).x + px(2);
    const bool beside = text_size(context_.fonts.title, story.headline).x + count_width + px(10) <= width();
    if (beside) label(context_.fonts.small, {left(), y_, width(), px(20)}, theme.muted, count, 1);
    for (const std::string& said : wrap(context_.fonts.title, story.headline, width())) {
      label(context_.fonts.title, {left(), y_, width() + px(2), px(20)}, tone, said);
      y_ += px(20);
    }
    if (!beside) {
      label(context_.fonts.small, {left(), y_, width() + px(2), px(18)}, theme.muted, count);
      y_ += px(20);
    }
    y_ += px(4);
    if (!story.cause.empty()) {
      fact("Cause", story.cause);
      fact("Fix", story.fix);
    }
    y_ += px(8);
    fill({area_.x, y_, area_.width, px(1)}, theme.line);
    y_ += px(10);
  }

  void tell(const StoryLink& link, bool last) {
    const float top = y_;
    const bool chosen = link.number == chosen_;
    const Layout layout = lay_out(link, chosen);
    const Area card{area_.x + px(6), top, area_.width - px(12), layout.height};
    const bool pointed = interact(link, card);
    if (chosen || pointed) fill(card, chosen ? context_.theme.raised : context_.theme.raised.alpha(140), px(6));
    if (chosen) fill({card.x, card.y + px(8), px(3), card.height - px(16)}, context_.theme.accent, px(1.5F));
    const ImVec2 center(left() + px(kDisc), top + px(kPad + kDisc - 1));
    if (!last) thread(link, center, top + layout.height);
    disc(link, center);
    write(link, layout, top);
    y_ = top + layout.height;
  }

  float height() const { return y_ - area_.y; }
  /// The link that was clicked, 0 when none was.
  int clicked() const { return clicked_; }

 private:
  struct Layout {
    std::vector<std::string> summary;
    bool evidence_beside = false;
    bool evidence_below = false;
    bool place_below = false;  ///< the title leaves no room for it
    std::size_t columns = 1;   ///< of numbers
    std::size_t numbers = 0;   ///< that are shown
    float height = 0;
  };

  float px(float pixels) const { return pixels * context_.scale; }
  float left() const { return area_.x + px(18); }
  float width() const { return area_.width - px(36); }
  float text_left() const { return left() + px(2 * kDisc + 14); }
  float text_width() const {
    const float whole = area_.right() - px(18) - text_left();
    return wide_ ? std::min(whole * 0.5F, px(600)) : whole;
  }
  float line_height() const { return px(15); }

  /// "Cause   one sentence", wrapped.
  void fact(std::string_view name, std::string_view words) {
    const float indent = px(56);
    label(context_.fonts.small, {left(), y_, indent, line_height()}, context_.theme.muted, name);
    for (const std::string& words_line : wrap(context_.fonts.small, words, width() - indent)) {
      label(context_.fonts.small, {left() + indent, y_, width() - indent, line_height()}, context_.theme.text,
            words_line);
      y_ += line_height();
    }
    y_ += px(3);
  }

  Layout lay_out(const StoryLink& link, bool chosen) const {
    Layout layout;
    const bool numbers = !link.evidence.empty() && link.state != LinkState::not_available;
    layout.summary = wrap(context_.fonts.small, link.summary, text_width(), chosen || wide_ ? 0 : kMostLines);
    layout.evidence_beside = numbers && wide_;
    layout.evidence_below = numbers && chosen && !wide_;
    const float lines = static_cast<float>(layout.summary.size());
    layout.place_below =
        link.state == LinkState::found &&
        text_size(context_.fonts.text, link.title).x + text_size(context_.fonts.mono_small, link.place).x + px(14) >
            text_width();
    layout.height = px(kPad + kTitle + kPad) + (lines + (layout.place_below ? 1 : 0)) * line_height();
    if (layout.evidence_below) layout.columns = text_width() >= px(2 * kNumbersWide) ? 2 : 1;
    if (layout.evidence_beside) {
      layout.columns = std::max<std::size_t>(1, static_cast<std::size_t>(beside().width / px(kNumbersWide)));
    }
    const std::size_t most = chosen ? kMostNumbers : kNumbersRows * layout.columns;
    layout.numbers = std::min(link.evidence.size(), most);
    const std::size_t lines_of_numbers = (layout.numbers + layout.columns - 1) / layout.columns;
    const auto rows = static_cast<float>(lines_of_numbers);
    if (layout.evidence_below) layout.height += px(6) + rows * line_height();
    if (layout.evidence_beside) layout.height = std::max(layout.height, px(2 * kPad + 4) + rows * line_height());
    return layout;
  }

  bool interact(const StoryLink& link, Area card) {
    if (!link.target) return false;
    ImGui::SetCursorScreenPos(card.min());
    if (ImGui::InvisibleButton(fmt::format("link {}", link.number).c_str(), {card.width, card.height})) {
      clicked_ = link.number;
      actions_.choose(*link.target);
    }
    if (!ImGui::IsItemHovered()) return false;
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    actions_.hint("go to " + link.place);
    return true;
  }

  /// From one link's disc to the next; dashed where the chain is not proven.
  void thread(const StoryLink& link, ImVec2 center, float bottom) const {
    const float from = center.y + px(kDisc + 3);
    const float to = bottom + px(kPad - 4);
    if (link.state == LinkState::found) {
      line({center.x, from}, {center.x, to}, tone(link), px(2));
      return;
    }
    const auto dashes = static_cast<int>(std::ceil((to - from) / px(7)));
    for (int dash = 0; dash < dashes; ++dash) {
      const float y = from + static_cast<float>(dash) * px(7);
      line({center.x, y}, {center.x, std::min(y + px(3), to)}, context_.theme.muted.alpha(120), px(2));
    }
  }

  /// The setting, then numbers that lose their meaning, then NaN.
  Color tone(const StoryLink& link) const {
    if (link.number <= 3) return context_.theme.accent;
    return context_.theme.cell(link.number <= 6 ? kClipped : kNan);
  }

  void disc(const StoryLink& link, ImVec2 center) const {
    ImDrawList* list = ImGui::GetWindowDrawList();
    const std::string number = std::to_string(link.number);
    const bool found = link.state == LinkState::found;
    if (found) {
      list->AddCircleFilled(center, px(kDisc), tone(link).packed(), 32);
    } else {
      list->AddCircle(center, px(kDisc - 1), context_.theme.muted.alpha(150).packed(), 32, px(1.5F));
    }
    const ImVec2 size = text_size(context_.fonts.small, number);
    const Color ink =
        found ? (context_.theme.dark ? Color::hex(0x0B0E12) : Color::hex(0xFFFFFF)) : context_.theme.muted;
    text(context_.fonts.small, {center.x - size.x / 2 + 0.5F, center.y - size.y / 2}, ink, number);
  }

  void write(const StoryLink& link, const Layout& layout, float top) const {
    const Theme& theme = context_.theme;
    const bool found = link.state == LinkState::found;
    const Color ink = found ? theme.text : theme.muted;
    float y = top + px(kPad);
    const Area title{text_left(), y, text_width(), px(kTitle)};
    const std::string_view state = link.state == LinkState::not_reached ? "not reached" : "not recorded";
    const float taken = found ? 0 : text_size(context_.fonts.small, state).x + px(14);
    label(context_.fonts.text, {title.x, y, title.width - taken, title.height}, ink, link.title);
    if (!found) {
      label(context_.fonts.small, title, theme.muted, state, 1);
    } else if (!layout.place_below) {
      label(context_.fonts.mono_small, title, theme.accent, link.place, 1);
    }
    y += px(kTitle);
    if (layout.place_below) {
      label(context_.fonts.mono_small, {text_left(), y, text_width(), line_height()}, theme.accent, link.place);
      y += line_height();
    }
    for (const std::string& words_line : layout.summary) {
      label(context_.fonts.small, {text_left(), y, text_width() + px(4), line_height()}, theme.muted, words_line);
      y += line_height();
    }
    if (layout.evidence_below) numbers(link, layout, {text_left(), y + px(4), text_width(), 0});
    if (layout.evidence_beside) {
      Area area = beside();
      area.y = top + px(kPad + 2);
      numbers(link, layout, area);
    }
  }

  /// Right of the sentences, when there is room.
  Area beside() const {
    const float x = text_left() + text_width() + px(36);
    return {x, 0, area_.right() - px(24) - x, 0};
  }

  void numbers(const StoryLink& link, const Layout& layout, Area area) const {
    number_table(context_, area, static_cast<int>(layout.columns), layout.numbers, link.evidence, true);
  }

  const ViewContext& context_;
  const ViewActions& actions_;
  Area area_;
  int chosen_;
  int clicked_ = 0;
  float y_;
  bool wide_;
};

class CascadeView final : public View {
 public:
  std::string_view name() const override { return "cascade"; }
  std::string_view title() const override { return "Cascade"; }
  std::string_view caption() const override { return "from the setting to the symptom"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override { return table_maker<Story>(prepared); }

  std::optional<ViewRequest> prepare(const ViewContext&, Area) override {
    return ViewRequest{"story", [](RunFacts& facts) -> Result<PreparedPtr> { return facts.story(); }, Urgency::later};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    const auto& story = static_cast<const Story&>(*prepared);
    ImGui::SetCursorScreenPos(area.min());
    ImGui::BeginChild("story", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 start = ImGui::GetCursorScreenPos();
    const int chosen = chosen_link(story, context.selection.place);
    Teller teller(context, actions, {start.x, start.y, area.width, area.height}, chosen);
    teller.head(story);
    for (const StoryLink& link : story.links) teller.tell(link, &link == &story.links.back());
    if (teller.clicked() != 0) clicked_ = teller.clicked();
    ImGui::SetCursorScreenPos({start.x, start.y + teller.height()});
    ImGui::Dummy({1, 8 * context.scale});
    ImGui::EndChild();
  }

 private:
  /// Of the links at the selected place the one that was clicked, else the one of that very place, else the last.
  int chosen_link(const Story& story, const Place& place) const {
    int last = 0;
    int same = 0;
    for (const StoryLink& link : story.links) {
      if (!link.target || !same_spot(link.target->place, place)) continue;
      if (link.number == clicked_) return clicked_;
      last = link.number;
      if (same == 0 && link.target->place == place) same = link.number;
    }
    return same != 0 ? same : last;
  }

  int clicked_ = 0;
};

}  // namespace

std::unique_ptr<View> make_cascade_view() { return std::make_unique<CascadeView>(); }

}  // namespace nanscope::gui
