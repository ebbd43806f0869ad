#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>

#include "core/counted.h"
#include "gui/context_menu.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/views/registry.h"

/// The cascade: the chain of the diagnosis as a story told downwards, from a root to its symptom. Below it what else
/// was found, what was looked for in vain, and what was not looked at.
namespace nanscope::gui {
namespace {

constexpr float kDisc = 11;              ///< radius of a link's number
constexpr float kLinkPad = 5;            ///< above and below a link
constexpr float kLinkTitle = 18;         ///< height of its title
constexpr float kSection = 28;           ///< height of a heading
constexpr float kCascadeWideFrom = 820;  ///< from this width on, every link shows its numbers beside it
constexpr float kNumbersWide = 210;      ///< least width of a column of numbers
constexpr std::size_t kNumbersRows = 2;  ///< beside a link that is not chosen
constexpr std::size_t kMostLinkNumbers = 12;
constexpr std::size_t kMostNotes = 200;
constexpr int kMostLinkLines = 4;  ///< of a link that is not chosen

/// The same op of the same step; the token counts where both places name one.
bool same_spot(const Place& link, const Place& selected) {
  const auto agree = [](const auto& a, const auto& b) { return !a || !b || *a == *b; };
  return link.request == selected.request && link.step == selected.step && link.rank == selected.rank &&
         link.layer == selected.layer && link.op == selected.op && agree(link.token, selected.token);
}

/// The story while it is drawn downwards.
class Teller {
 public:
  /// `chosen`: number of the link whose numbers are shown in full, 0 for none. `toggled`: sections that are not as
  /// they are at first.
  Teller(const ViewContext& context, const ViewActions& actions, Area area, int chosen, std::set<std::string>& toggled)
      : context_(context),
        actions_(actions),
        toggled_(toggled),
        area_(area),
        chosen_(chosen),
        y_(area.y),
        wide_(area.width >= px(kCascadeWideFrom)) {}

  /// What the check against the model found, where the diagnosis of the dump alone found nothing.
  bool only_the_check_found_it(const Story& story) const {
    return context_.errors && context_.errors->findings && context_.errors->findings->off() > 0 &&
           story.verdict != Verdict::fault && story.verdict != Verdict::damaged;
  }

  void head(const Story& story) {
    if (!only_the_check_found_it(story)) return head_of(story);
    Story checked = story;
    checked.verdict = Verdict::fault;
    checked.headline = context_.errors->words();
    checked.headline.front() = 'N';
    head_of(checked, "the dump without its model shows this: " + story.headline);
  }

  /// `alone`: what the diagnosis without the model says, where something else is said first; else empty.
  void head_of(const Story& story, const std::string& alone = {}) {
    const Theme& theme = context_.theme;
    y_ += px(12);
    const bool bad = story.verdict == Verdict::fault || story.verdict == Verdict::damaged;
    const Color tone = story.verdict == Verdict::clean ? theme.accent : theme.ink(bad ? kNan : kClipped);
    const std::string count = story.links.empty()
                                  ? story.spread
                                  : fmt::format("{} \u00B7 {}", counted(story.links.size(), "link"), story.spread);
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
      fact("Certainty", story.certainty);
      if (!story.fix.empty()) fact("Fix", story.fix);
      if (!story.settings.empty()) fact("Avoid by", story.settings);
    }
    if (!story.first_bad.empty()) fact("First bad", story.first_bad);
    if (!alone.empty()) fact("Alone", alone);
    y_ += px(8);
    fill({area_.x, y_, area_.width, px(1)}, theme.line);
    y_ += px(10);
  }

  /// `next`: the link below; null for the last.
  void tell(const StoryLink& link, const StoryLink* next) {
    const float top = y_;
    const bool chosen = link.number == chosen_;
    const Layout layout = lay_out(link, chosen);
    const Area card{area_.x + px(6), top, area_.width - px(12), layout.height};
    const bool pointed = interact(link, card);
    if (chosen) chosen_card_ = card;
    if (chosen || pointed) fill(card, chosen ? context_.theme.raised : context_.theme.raised.alpha(140), px(6));
    if (chosen) fill({card.x, card.y + px(8), px(3), card.height - px(16)}, context_.theme.accent, px(1.5F));
    const ImVec2 center(left() + px(kDisc), top + px(kLinkPad + kDisc - 1));
    if (next != nullptr) thread(link, *next, center, top + layout.height);
    disc(link, center);
    write(link, layout, top);
    y_ = top + layout.height;
  }

  void sections(const Story& story) {
    if (!story.links.empty()) y_ += px(10);
    other_faults(story);
    warnings(story);
    checks("Not looked at", story.not_looked_at, true);
    checks("Not in this run: what to capture", story.not_in_dump, story.links.empty());
    checks("Looked for and not there", story.excluded, story.links.empty());
    coverage(story);
  }

  float height() const { return y_ - area_.y; }
  /// Of the chosen link; of no width where there is none.
  Area chosen_card() const { return chosen_card_; }

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
    for (const std::string& words_line : wrap(context_.fonts.small, printable(words), width() - indent)) {
      label(context_.fonts.small, {left() + indent, y_, width() - indent, line_height()}, context_.theme.text,
            words_line);
      y_ += line_height();
    }
    y_ += px(3);
  }

  Layout lay_out(const StoryLink& link, bool chosen) const {
    Layout layout;
    const bool numbers = !link.evidence.empty();
    layout.summary =
        wrap(context_.fonts.small, printable(link.summary), text_width(), chosen || wide_ ? 0 : kMostLinkLines);
    layout.evidence_beside = numbers && wide_;
    layout.evidence_below = numbers && chosen && !wide_;
    const float lines = static_cast<float>(layout.summary.size());
    const float place = text_size(context_.fonts.mono_small, printable(link.place)).x + px(14);
    layout.place_below = !link.place.empty() && title_width(link) + place > text_width();
    layout.height = px(kLinkPad + kLinkTitle + kLinkPad) + (lines + (layout.place_below ? 1 : 0)) * line_height();
    if (layout.evidence_below) layout.columns = text_width() >= px(2 * kNumbersWide) ? 2 : 1;
    if (layout.evidence_beside) {
      layout.columns = std::max<std::size_t>(1, static_cast<std::size_t>(beside().width / px(kNumbersWide)));
    }
    const std::size_t most = chosen ? kMostLinkNumbers : kNumbersRows * layout.columns;
    layout.numbers = std::min(link.evidence.size(), most);
    const std::size_t lines_of_numbers = (layout.numbers + layout.columns - 1) / layout.columns;
    const auto rows = static_cast<float>(lines_of_numbers);
    if (layout.evidence_below) layout.height += px(6) + rows * line_height();
    if (layout.evidence_beside) layout.height = std::max(layout.height, px(2 * kLinkPad + 4) + rows * line_height());
    return layout;
  }

  bool interact(const StoryLink& link, Area card) {
    if (!link.target) return false;
    ImGui::SetCursorScreenPos(card.min());
    if (ImGui::InvisibleButton(fmt::format("link {}", link.number).c_str(), {card.width, card.height})) {
      actions_.choose(*link.target);
    }
    if (asked_for_menu()) actions_.menu({*link.target, link.summary});
    if (!ImGui::IsItemHovered()) return false;
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    actions_.hint("go to " + link.place);
    return true;
  }

  /// From one link's disc to the next; dashed where the next one did not come of it.
  void thread(const StoryLink& link, const StoryLink& next, ImVec2 center, float bottom) const {
    const float from = center.y + px(kDisc + 3);
    const float to = bottom + px(kLinkPad - 4);
    if (next.because == link.number) {
      line({center.x, from}, {center.x, to}, tone(link), px(2));
      return;
    }
    const auto dashes = static_cast<int>(std::ceil((to - from) / px(7)));
    for (int dash = 0; dash < dashes; ++dash) {
      const float y = from + static_cast<float>(dash) * px(7);
      line({center.x, y}, {center.x, std::min(y + px(3), to)}, context_.theme.muted.alpha(120), px(2));
    }
  }

  Color tone(const StoryLink& link) const {
    switch (link.tone) {
      case LinkTone::cause:
        return context_.theme.accent;
      case LinkTone::damage:
        return context_.theme.cell(kClipped);
      case LinkTone::nan:
        break;
    }
    return context_.theme.cell(kNan);
  }

  /// What came of another link than the one above it says so.
  static std::string source_of(const StoryLink& link) {
    if (link.because == 0 || link.because == link.number - 1) return {};
    return fmt::format("from {}", link.because);
  }

  /// Width of the title with what it came of.
  float title_width(const StoryLink& link) const {
    const std::string source = source_of(link);
    const float taken = source.empty() ? 0 : text_size(context_.fonts.small, source).x + px(8);
    return text_size(context_.fonts.text, link.title).x + taken;
  }

  void disc(const StoryLink& link, ImVec2 center) const {
    const std::string number = std::to_string(link.number);
    ImGui::GetWindowDrawList()->AddCircleFilled(center, px(kDisc), tone(link).packed(), 32);
    const ImVec2 size = text_size(context_.fonts.small, number);
    const Color ink = ink_over(context_.theme, tone(link));
    text(context_.fonts.small, {center.x - size.x / 2 + 0.5F, center.y - size.y / 2}, ink, number);
  }

  void write(const StoryLink& link, const Layout& layout, float top) const {
    const Theme& theme = context_.theme;
    float y = top + px(kLinkPad);
    const Area title{text_left(), y, text_width(), px(kLinkTitle)};
    label(context_.fonts.text, title, theme.text, link.title);
    const float taken = text_size(context_.fonts.text, link.title).x + px(8);
    label(context_.fonts.small, {title.x + taken, y + px(1), title.width - taken, title.height}, theme.muted,
          source_of(link));
    if (!layout.place_below) label(context_.fonts.mono_small, title, theme.accent, printable(link.place), 1);
    y += px(kLinkTitle);
    if (layout.place_below) {
      label(context_.fonts.mono_small, {text_left(), y, text_width(), line_height()}, theme.accent,
            printable(link.place));
      y += line_height();
    }
    for (const std::string& words_line : layout.summary) {
      label(context_.fonts.small, {text_left(), y, text_width() + px(4), line_height()}, theme.muted, words_line);
      y += line_height();
    }
    if (layout.evidence_below) numbers(link, layout, {text_left(), y + px(4), text_width(), 0});
    if (layout.evidence_beside) {
      Area area = beside();
      area.y = top + px(kLinkPad + 2);
      numbers(link, layout, area);
    }
  }

  /// A heading that opens and closes what is below it. Answers whether it is open.
  bool section(const std::string& name, std::size_t count, bool at_first) {
    const bool open = at_first != toggled_.contains(name);
    const Area row{area_.x + px(6), y_, area_.width - px(12), px(kSection)};
    ImGui::SetCursorScreenPos(row.min());
    if (ImGui::InvisibleButton(name.c_str(), {row.width, row.height}) && toggled_.erase(name) == 0) {
      toggled_.insert(name);
    }
    if (ImGui::IsItemHovered()) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      fill(row, context_.theme.raised.alpha(140), px(6));
    }
    const float middle = row.y + row.height / 2;
    const float x = left() + px(4);
    ImDrawList* list = ImGui::GetWindowDrawList();
    const std::uint32_t ink = context_.theme.muted.packed();
    if (open) {
      list->AddTriangleFilled({x - px(4), middle - px(2)}, {x + px(4), middle - px(2)}, {x, middle + px(3)}, ink);
    } else {
      list->AddTriangleFilled({x - px(2), middle - px(4)}, {x + px(3), middle}, {x - px(2), middle + px(4)}, ink);
    }
    label(context_.fonts.text, {left() + px(16), row.y, width() - px(60), row.height}, context_.theme.text, name);
    if (count > 0)
      label(context_.fonts.small, {left(), row.y, width(), row.height}, context_.theme.muted, std::to_string(count), 1);
    y_ += px(kSection);
    return open;
  }

  /// A name, to its right or below it a place that can be gone to, and sentences.
  void item(std::string_view name, const std::string& place, const std::optional<Selection>& target,
            std::initializer_list<std::string_view> sentences, Color ink) {
    const float x = left() + px(16);
    const float wide = area_.right() - px(18) - x;
    const float top = y_;
    const float room = wide - text_size(context_.fonts.small, name).x - px(14);
    const bool below = !place.empty() && text_size(context_.fonts.mono_small, place).x > room;
    std::vector<std::string> lines;
    for (const std::string_view sentence : sentences) {
      if (sentence.empty()) continue;
      for (std::string& one : wrap(context_.fonts.small, printable(sentence), wide)) lines.push_back(std::move(one));
    }
    const float height = (1 + (below ? 1 : 0) + static_cast<float>(lines.size())) * line_height() + px(7);
    if (target) go(place, *target, {area_.x + px(6), top, area_.width - px(12), height - px(2)});
    y_ += px(2);
    label(context_.fonts.small, {x, y_, wide, line_height()}, ink, printable(name));
    if (below) y_ += line_height();
    label(context_.fonts.mono_small, {x, y_, wide, line_height()}, context_.theme.accent, printable(place),
          below ? 0 : 1);
    y_ += line_height();
    for (const std::string& one : lines) {
      label(context_.fonts.small, {x, y_, wide + px(4), line_height()}, context_.theme.muted, one);
      y_ += line_height();
    }
    y_ = top + height;
  }

  void go(const std::string& place, const Selection& target, Area area) {
    ImGui::SetCursorScreenPos(area.min());
    ImGui::PushID(++items_);
    if (ImGui::InvisibleButton("item", {area.width, area.height})) actions_.choose(target);
    if (asked_for_menu()) actions_.menu({target});
    ImGui::PopID();
    if (!ImGui::IsItemHovered()) return;
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    fill(area, context_.theme.raised.alpha(140), px(6));
    actions_.hint("go to " + place);
  }

  void other_faults(const Story& story) {
    std::vector<const StoryFault*> others;
    for (std::size_t i = 0; i < story.faults.size(); ++i) {
      const bool told =
          std::any_of(story.links.begin(), story.links.end(), [i](const StoryLink& link) { return link.fault == i; });
      if (!told) others.push_back(&story.faults[i]);
    }
    if (others.empty() || !section("Other faults", others.size(), true)) return;
    for (const StoryFault* fault : others) {
      item(fault->fault_class, fault->tensor, fault->target, {fault->summary, fault->fix}, context_.theme.ink(kNan));
    }
  }

  void warnings(const Story& story) {
    if (story.warnings.empty() || !section("Early warnings", story.warnings.size(), true)) return;
    for (const StoryWarning& warning : story.warnings) {
      const std::string more = warning.more > 0 ? fmt::format("So do {}.", counted(warning.more, "other tensor")) : "";
      item(warning.kind, warning.place, warning.target, {warning.summary, more, warning.advice},
           context_.theme.ink(kClipped));
    }
  }

  void checks(const std::string& name, const std::vector<StoryCheck>& all, bool at_first) {
    if (all.empty() || !section(name, all.size(), at_first)) return;
    for (const StoryCheck& check : all) item(check.fault_class, {}, {}, {check.text}, context_.theme.text);
  }

  void coverage(const Story& story) {
    if (!story.coverage.empty() && section("Coverage", 0, true)) {
      for (const std::string& sentence : story.coverage) paragraph(sentence);
    }
    if (story.notes.empty() || !section("Not understood, or not read", story.notes.size(), false)) return;
    for (std::size_t i = 0; i < std::min(story.notes.size(), kMostNotes); ++i) {
      item(story.notes[i].text, story.notes[i].tensor, {}, {}, context_.theme.text);
    }
    if (story.notes.size() > kMostNotes) paragraph(fmt::format("and {} more", story.notes.size() - kMostNotes));
  }

  void paragraph(std::string_view words) {
    const float x = left() + px(16);
    for (const std::string& one : wrap(context_.fonts.small, printable(words), area_.right() - px(18) - x)) {
      label(context_.fonts.small, {x, y_, area_.right() - px(14) - x, line_height()}, context_.theme.muted, one);
      y_ += line_height();
    }
    y_ += px(4);
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
  std::set<std::string>& toggled_;
  Area area_;
  int chosen_;
  int items_ = 0;
  Area chosen_card_;
  float y_;
  bool wide_;
};

class CascadeView final : public View {
 public:
  std::string_view name() const override { return "cascade"; }
  std::string_view title() const override { return "Cascade"; }
  std::string_view caption() const override { return "from the root to the symptom"; }
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
    const int chosen = chosen_link(story, context.selection);
    Teller teller(context, actions, {start.x, start.y, area.width, area.height}, chosen, toggled_);
    teller.head(story);
    for (std::size_t i = 0; i < story.links.size(); ++i) {
      teller.tell(story.links[i], i + 1 < story.links.size() ? &story.links[i + 1] : nullptr);
    }
    teller.sections(story);
    // At first the cause and its fix are to be read.
    if (followed_ && chosen != *followed_) follow(teller.chosen_card(), area);
    if (chosen != 0) followed_ = chosen;
    ImGui::SetCursorScreenPos({start.x, start.y + teller.height()});
    ImGui::Dummy({1, 8 * context.scale});
    ImGui::EndChild();
  }

 private:
  /// Scrolls to a link that was chosen elsewhere, if it is not on screen.
  static void follow(Area card, Area area) {
    if (card.width <= 0 || (card.y >= area.y && card.bottom() <= area.bottom())) return;
    const float by = card.y - (area.y + (area.height - card.height) / 2);
    ImGui::SetScrollY(std::max(0.0F, ImGui::GetScrollY() + by));
  }

  /// The link that was chosen; of those at a place that was come by otherwise the one of that very place, else the
  /// last.
  static int chosen_link(const Story& story, const Selection& selection) {
    int last = 0;
    int same = 0;
    for (const StoryLink& link : story.links) {
      if (!link.target || !same_spot(link.target->place, selection.place)) continue;
      if (link.number == selection.link) return link.number;
      last = link.number;
      if (same == 0 && link.target->place == selection.place) same = link.number;
    }
    return same != 0 ? same : last;
  }

  std::optional<int> followed_;    ///< number of the link that was chosen last
  std::set<std::string> toggled_;  ///< sections that were opened or closed by hand
};

}  // namespace

std::unique_ptr<View> make_cascade_view() { return std::make_unique<CascadeView>(); }

}  // namespace nanscope::gui
