#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/views/registry.h"

/// The cascade: the links from a setting to its symptom as a story told downwards.
namespace nanscope::gui {
namespace {

constexpr float kDisc = 11;       ///< radius of a link's number
constexpr float kWideFrom = 820;  ///< from this width on, every link shows its numbers beside it
constexpr std::size_t kEvidenceShown = 8;

/// The story while it is drawn downwards.
class Teller {
 public:
  Teller(const ViewContext& context, const ViewActions& actions, Area area)
      : context_(context), actions_(actions), area_(area), y_(area.y), wide_(area.width >= px(kWideFrom)) {}

  void head(const Story& story) {
    const Theme& theme = context_.theme;
    const auto found = std::count_if(story.links.begin(), story.links.end(),
                                     [](const StoryLink& link) { return link.state == LinkState::found; });
    y_ += px(12);
    const Color tone = story.clean ? theme.accent : theme.cell(kNan);
    label(context_.fonts.title, {left(), y_, width() - px(120), px(20)}, tone, story.headline);
    label(context_.fonts.small, {left(), y_, width(), px(20)}, theme.muted,
          fmt::format("{} of {} links", found, story.links.size()), 1);
    y_ += px(24);
    if (!story.cause.empty()) {
      fact("Cause", story.cause);
      fact("Fix", story.fix);
    }
    fact("Spread", story.spread);
    y_ += px(8);
    fill({area_.x, y_, area_.width, px(1)}, theme.line);
    y_ += px(10);
  }

  void tell(const StoryLink& link, bool last) {
    const float top = y_;
    const bool chosen = link.target && is_chosen(*link.target);
    const Layout layout = lay_out(link, chosen);
    const Area card{area_.x + px(6), top, area_.width - px(12), layout.height};
    const bool pointed = interact(link, card);
    if (chosen || pointed) fill(card, chosen ? context_.theme.raised : context_.theme.raised.alpha(140), px(6));
    if (chosen) fill({card.x, card.y + px(8), px(3), card.height - px(16)}, context_.theme.accent, px(1.5F));
    const ImVec2 center(left() + px(kDisc), top + px(8 + kDisc));
    if (!last) thread(link, center, top + layout.height);
    disc(link, center);
    write(link, layout, top);
    y_ = top + layout.height;
  }

  float height() const { return y_ - area_.y; }

 private:
  struct Layout {
    std::vector<std::string> summary;
    bool evidence_beside = false;
    bool evidence_below = false;
    float height = 0;
  };

  float px(float pixels) const { return pixels * context_.scale; }
  float left() const { return area_.x + px(18); }
  float width() const { return area_.width - px(36); }
  float text_left() const { return left() + px(2 * kDisc + 14); }
  float text_width() const {
    const float whole = area_.right() - px(18) - text_left();
    return wide_ ? std::min(whole * 0.55F, px(640)) : whole;
  }
  float line_height() const { return px(16); }

  /// "Cause   one sentence", wrapped.
  void fact(std::string_view name, std::string_view words) {
    const float indent = px(56);
    label(context_.fonts.small, {left(), y_, indent, line_height()}, context_.theme.muted, name);
    for (const std::string& words_line : wrap(context_.fonts.small, words, width() - indent, wide_ ? 2 : 3)) {
      label(context_.fonts.small, {left() + indent, y_, width() - indent, line_height()}, context_.theme.text,
            words_line);
      y_ += line_height();
    }
    y_ += px(3);
  }

  bool is_chosen(const Selection& target) const {
    const Place& place = target.place;
    const Place& now = context_.selection.place;
    return place.request == now.request && place.step == now.step && place.layer == now.layer && place.op == now.op &&
           (place.role == now.role || now.role.empty());
  }

  Layout lay_out(const StoryLink& link, bool chosen) const {
    Layout layout;
    const bool numbers = !link.evidence.empty() && link.state != LinkState::not_available;
    layout.summary = wrap(context_.fonts.small, link.summary, text_width(), chosen || wide_ ? 0 : 2);
    layout.evidence_beside = numbers && wide_;
    layout.evidence_below = numbers && chosen && !wide_;
    const float lines = static_cast<float>(layout.summary.size());
    layout.height = px(8 + 20) + lines * line_height() + px(8);
    const auto rows = static_cast<float>(std::min(link.evidence.size(), kEvidenceShown));
    if (layout.evidence_below) layout.height += px(6) + rows * line_height();
    if (layout.evidence_beside) {
      const float columns = 2;
      layout.height = std::max(layout.height, px(16) + std::ceil(rows / columns) * line_height() + px(4));
    }
    return layout;
  }

  bool interact(const StoryLink& link, Area card) {
    if (!link.target) return false;
    ImGui::SetCursorScreenPos(card.min());
    if (ImGui::InvisibleButton(fmt::format("link {}", link.number).c_str(), {card.width, card.height})) {
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
    const float to = bottom + px(8 - 3);
    if (link.state == LinkState::found) {
      line({center.x, from}, {center.x, to}, tone(link), px(2));
      return;
    }
    for (float y = from; y < to; y += px(7)) {
      line({center.x, y}, {center.x, std::min(y + px(3), to)}, context_.theme.muted.alpha(120), px(2));
    }
  }

  /// Links 1 to 5 lead to the fault, 6 and 7 give birth to it, the rest carry it.
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
    float y = top + px(8);
    const float place_width = found ? text_size(context_.fonts.mono_small, link.place).x : px(90);
    const float title_width = text_size(context_.fonts.text, link.title).x;
    const bool place_fits = title_width + place_width + px(14) <= text_width();
    label(context_.fonts.text,
          {text_left(), y, text_width() - (found && !place_fits ? 0 : place_width + px(14)), px(20)}, ink, link.title);
    if (!found) {
      const std::string_view state = link.state == LinkState::not_reached ? "not reached" : "not recorded";
      label(context_.fonts.small, {text_left(), y, text_width(), px(20)}, theme.muted, state, 1);
    } else if (place_fits) {
      label(context_.fonts.mono_small, {text_left(), y, text_width(), px(20)}, theme.accent, link.place, 1);
    }
    y += px(20);
    for (const std::string& words_line : layout.summary) {
      label(context_.fonts.small, {text_left(), y, text_width() + px(4), line_height()}, theme.muted, words_line);
      y += line_height();
    }
    if (layout.evidence_below) numbers(link, {text_left(), y + px(4), text_width(), 0}, 1);
    if (layout.evidence_beside) {
      const float x = text_left() + text_width() + px(32);
      numbers(link, {x, top + px(10), area_.right() - px(24) - x, 0}, 2);
    }
  }

  /// Names to the left, numbers aligned to the right of each column.
  void numbers(const StoryLink& link, Area area, int columns) const {
    const std::size_t shown = std::min(link.evidence.size(), kEvidenceShown);
    const float gap = px(28);
    const float column_width = (area.width - gap * static_cast<float>(columns - 1)) / static_cast<float>(columns);
    for (std::size_t i = 0; i < shown; ++i) {
      const auto column = static_cast<float>(i % static_cast<std::size_t>(columns));
      const auto row = static_cast<float>(i / static_cast<std::size_t>(columns));
      const Area cell{area.x + column * (column_width + gap), area.y + row * line_height(), column_width,
                      line_height()};
      const std::string& value = link.evidence[i].second;
      const float value_width = std::min(text_size(context_.fonts.mono_small, value).x, cell.width * 0.6F);
      label(context_.fonts.small, {cell.x, cell.y, cell.width - value_width - px(8), cell.height}, context_.theme.muted,
            link.evidence[i].first);
      label(context_.fonts.mono_small, {cell.right() - value_width - 1, cell.y, value_width + 1, cell.height},
            context_.theme.text, value, 1);
    }
  }

  const ViewContext& context_;
  const ViewActions& actions_;
  Area area_;
  float y_;
  bool wide_;
};

class CascadeView final : public View {
 public:
  std::string_view name() const override { return "cascade"; }
  std::string_view title() const override { return "Cascade"; }

  std::optional<ViewRequest> prepare(const ViewContext&, Area) override {
    return ViewRequest{"story", [](RunFacts& facts) -> Result<PreparedPtr> { return facts.story(); }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    if (!prepared) return;
    const auto& story = static_cast<const Story&>(*prepared);
    ImGui::SetCursorScreenPos(area.min());
    ImGui::BeginChild("story", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 start = ImGui::GetCursorScreenPos();
    Teller teller(context, actions, {start.x, start.y, area.width, area.height});
    teller.head(story);
    for (const StoryLink& link : story.links) teller.tell(link, &link == &story.links.back());
    ImGui::SetCursorScreenPos({start.x, start.y + teller.height()});
    ImGui::Dummy({1, 8 * context.scale});
    ImGui::EndChild();
  }
};

}  // namespace

std::unique_ptr<View> make_cascade_view() { return std::make_unique<CascadeView>(); }

}  // namespace nanscope::gui
