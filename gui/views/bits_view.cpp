#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/counted.h"
#include "core/numbers/bits_drawing.h"
#include "core/numbers/bits_input.h"
#include "core/numbers/bits_words.h"
#include "gui/context_menu.h"
#include "gui/export/tables.h"
#include "gui/marks.h"
#include "gui/prepare/bits_pair.h"
#include "gui/views/registry.h"
#include "gui/views/twin_parts.h"

/// The bits: one element before storing, stored and read back, and where it fell among its neighbours.
namespace nanscope::gui {
namespace {

constexpr float kSide = 18;         ///< left and right of everything
constexpr float kTwoColumns = 760;  ///< from this width on, ruler and histogram stand beside the stages
constexpr float kMostCell = 38;     ///< width of a bit
constexpr float kWeighted = 30;     ///< bits so wide show their weights
constexpr float kCellHeight = 26;
constexpr float kCardPad = 14;  ///< left and right within a stage
constexpr float kChoice = 18;   ///< height of the words that say which element was taken
constexpr float kBitsLine = 16;
constexpr float kRulerHeight = 112;
constexpr float kHistogramHeight = 168;
constexpr float kMostHistogram = 420;  ///< it takes what room there is
constexpr float kMostBin = 48;         ///< width of a bar
constexpr float kNamesHeight = 34;
constexpr float kApart = 30;  ///< between the numbers and the codes of NaN
constexpr float kFieldGap = 8;
constexpr float kBitsPartsHeight = 32;  ///< which run is shown, and how it differs

/// How much of a stage is told.
enum class Density : std::uint8_t {
  full,
  compact,  ///< without what the fields mean
  tight,    ///< without the formula
};

/// Room on a line that words have taken already.
class Taken {
 public:
  explicit Taken(float gap) : gap_(gap) {}
  /// False when it would come closer than the gap to what is there.
  bool take(float left, float width) {
    const bool free = std::none_of(taken_.begin(), taken_.end(), [&](const std::pair<float, float>& other) {
      return left < other.second + gap_ && other.first < left + width + gap_;
    });
    if (free) taken_.emplace_back(left, left + width);
    return free;
  }

 private:
  float gap_;
  std::vector<std::pair<float, float>> taken_;
};

/// The view while it is drawn downwards.
class Drawer {
 public:
  Drawer(const ViewContext& context, const ViewActions& actions, const BitsPair& pair, TwinPart part, Area area)
      : context_(context),
        actions_(actions),
        pair_(pair),
        sheet_(part == TwinPart::there ? *pair.there : pair.here),
        area_(area) {}

  /// Answers the height that was used.
  float draw() {
    const bool beside = area_.width >= px(kTwoColumns);
    const float left = area_.x + px(kSide);
    const float width = area_.width - px(2 * kSide);
    const float half = (width - px(40)) / 2;
    float y = area_.y + px(12);
    const float stages = draw_stages({left, y, beside ? half : width, 0});
    const Area side = beside ? Area{left + half + px(40), y, half, 0} : Area{left, y + stages, width, 0};
    const float measures = draw_measures(side);
    y += beside ? std::max(stages, measures) : stages + measures;
    return y - area_.y;
  }

 private:
  float px(float pixels) const { return pixels * context_.scale; }
  const Theme& theme() const { return context_.theme; }
  const Fonts& fonts() const { return context_.fonts; }

  Color tone(Cell cell) const { return cell > kHealthyLast ? theme().cell(cell) : theme().text; }

  float draw_stages(Area area) {
    density_ = density_for(area.width);
    float y = area.y;
    if (!sheet_.choice.empty()) {
      const std::string words = (context_.printed ? "This is " : "No element is selected: this is ") + sheet_.choice;
      label(fonts().small, {area.x, y - px(4), area.width, px(kBitsLine)}, theme().muted, words);
      y += px(kChoice);
    }
    for (const BitsStage& stage : sheet_.stages) {
      y += draw_stage(stage, {area.x, y, area.width, 0});
      if (stage.next.empty()) continue;
      const float gap = px(next_height(density_));
      draw_next(stage, {area.x, y, area.width, gap});
      y += gap;
    }
    return y - area.y + px(10);
  }

  void draw_next(const BitsStage& stage, Area area) const {
    const float middle = area.x + px(14);
    const float end = area.bottom() - px(density_ == Density::full ? 9 : 2);
    line({middle, area.y + px(3)}, {middle, end}, theme().muted, px(1.5F));
    line({middle - px(4), end - px(4)}, {middle, end}, theme().muted, px(1.5F));
    line({middle + px(4), end - px(4)}, {middle, end}, theme().muted, px(1.5F));
    label(fonts().mono_small, {area.x + px(30), area.y + px(2), area.width - px(30), px(kBitsLine)}, theme().muted,
          stage.next);
  }

  /// The roomiest in which all stages are seen at once.
  Density density_for(float width) const {
    for (const Density density : {Density::full, Density::compact}) {
      float height = px(kChoice + 12);
      for (const BitsStage& stage : sheet_.stages) {
        height += stage_height(stage, width, density) + (stage.next.empty() ? 0 : px(next_height(density)));
      }
      if (height <= area_.height) return density;
    }
    return Density::tight;
  }

  static float next_height(Density density) { return density == Density::full ? 28 : 20; }

  float stage_height(const BitsStage& stage, float width, Density density) const {
    if (density == Density::tight) return px(8 + 20 + 2 + kCellHeight + 6);
    if (density == Density::compact) return px(8 + 20 + 2 + kCellHeight + 4 + kBitsLine + 4);
    const FormatInfo& format = info(stage.anatomy.format);
    return px(10 + 20 + 26 + 8) + cells_height(format, width - px(2 * kCardPad)) + px(8 + 2 * kBitsLine + 8);
  }

  float draw_stage(const BitsStage& stage, Area area) {
    const Area card{area.x, area.y, area.width, stage_height(stage, area.width, density_)};
    fill(card, theme().raised.alpha(stage.selected ? 255 : 120), px(6));
    if (stage.selected) fill({card.x, card.y + px(10), px(3), card.height - px(20)}, theme().accent, px(1.5F));
    go_to(stage, {card.x, card.y, card.width, px(30)});
    if (density_ == Density::full) {
      draw_full(stage, card.inset(px(kCardPad), px(10)));
    } else {
      draw_compact(stage, card.inset(px(kCardPad), px(8)));
    }
    return card.height;
  }

  std::string code_words(const BitsStage& stage) const {
    const FormatInfo& format = info(stage.anatomy.format);
    return fmt::format("{} {}", format.name, bits::code_text(format.format, stage.anatomy.code));
  }

  /// Title and place, value and code, the bits, what they mean.
  void draw_full(const BitsStage& stage, Area inside) const {
    const std::string place = to_string(stage.target.place);
    const float place_width = std::min(text_size(fonts().mono_small, place).x + 1, inside.width * 0.6F);
    label(fonts().text, {inside.x, inside.y, inside.width - place_width - px(10), px(18)}, theme().text, stage.title);
    label(fonts().mono_small, {inside.right() - place_width, inside.y, place_width, px(18)}, theme().accent, place, 1);
    float y = inside.y + px(20);
    label(fonts().mono, {inside.x, y, inside.width, px(24)}, theme().muted, code_words(stage), 1);
    label(fonts().title, {inside.x, y, inside.width - px(130), px(24)}, tone(stage.tone), value_text(stage));
    y += px(28);
    y += draw_cells(stage, {inside.x, y, inside.width, 0}) + px(6);
    label(fonts().small, {inside.x, y, inside.width, px(kBitsLine)}, theme().muted,
          bits_note(stage.anatomy, inside.width));
    const std::string formula = typeset(stage.anatomy.formula);
    const bool large = text_size(fonts().mono, formula).x <= inside.width;
    label(large ? fonts().mono : fonts().mono_small, {inside.x, y + px(kBitsLine), inside.width, px(kBitsLine + 2)},
          theme().text, formula);
  }

  /// On one line title and value, then the code and the place where they fit; below it the bits, and the formula
  /// where there is room for it.
  void draw_compact(const BitsStage& stage, Area inside) const {
    const float top = inside.y;
    float x = inside.x;
    label(fonts().text, {x, top, inside.width * 0.4F, px(20)}, theme().text, stage.title);
    x += std::min(text_size(fonts().text, stage.title).x, inside.width * 0.4F) + px(12);
    const std::string value = value_text(stage);
    label(fonts().title, {x, top, inside.right() - x, px(20)}, tone(stage.tone), value);
    x += text_size(fonts().title, value).x + px(12);
    float right = inside.right();
    const auto put = [&](const ImFont* font, Color ink, const std::string& words) {
      const float width = text_size(font, words).x + 1;
      if (right - width < x) return;
      label(font, {right - width, top, width, px(20)}, ink, words, 1);
      right -= width + px(12);
    };
    const std::string code = code_words(stage);
    const std::string place = to_string(stage.target.place);
    const float both = text_size(fonts().mono_small, code).x + text_size(fonts().mono_small, place).x + px(13);
    if (x + both <= right) put(fonts().mono_small, theme().accent, place);
    put(fonts().mono_small, theme().muted, code);
    const float below = top + px(22);
    draw_cells(stage, {inside.x, below, inside.width, 0});
    if (density_ == Density::tight) return;
    label(fonts().mono_small, {inside.x, below + px(kCellHeight + 4), inside.width, px(kBitsLine)}, theme().muted,
          typeset(stage.anatomy.formula));
  }

  static std::string value_text(const BitsStage& stage) {
    if (stage.anatomy.kind == NumberClass::nan) return "NaN";
    if (stage.anatomy.kind == NumberClass::inf) return stage.anatomy.negative ? "-Inf" : "Inf";
    return fmt::format("{:.9g}{}", stage.anatomy.value, stage.tone == kClipped ? "  clipped" : "");
  }

  /// The fields in words; a mantissa that is too long for the line stands in the formula anyway.
  std::string bits_note(const Anatomy& anatomy, float width) const {
    if (anatomy.kind == NumberClass::nan) return "not a number";
    if (anatomy.kind == NumberClass::inf) return "infinity";
    std::string note = typeset(bits::fields_note(anatomy));
    if (anatomy.kind != NumberClass::normal) note = fmt::format("{}: {}", name(anatomy.kind), note);
    if (text_size(fonts().small, note).x > width) note = note.substr(0, note.find(", mantissa"));
    return note;
  }

  void go_to(const BitsStage& stage, Area area) {
    if (stage.selected) return;
    ImGui::SetCursorScreenPos(area.min());
    const std::string place = to_string(stage.target.place);
    if (ImGui::InvisibleButton((stage.title + place).c_str(), {area.width, area.height})) actions_.choose(stage.target);
    if (asked_for_menu()) actions_.menu({stage.target});
    if (!ImGui::IsItemHovered()) return;
    ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
    actions_.hint("go to " + place);
  }

  float cell_width(const FormatInfo& format, float width) const {
    const auto fields = static_cast<float>(bits::fields_of(format).size());
    return std::min(px(kMostCell), (width - (fields - 1) * px(kFieldGap)) / static_cast<float>(format.bits));
  }

  float cells_height(const FormatInfo& format, float width) const {
    return px(kCellHeight) + (cell_width(format, width) >= px(kWeighted) ? px(kBitsLine) : 0);
  }

  /// Set bits in full colour, weights below where they fit. Those that the twin has otherwise are underlined.
  float draw_cells(const BitsStage& stage, Area area) const {
    const Anatomy& anatomy = stage.anatomy;
    const StagePair* twin = pair_.stage(stage.title);
    const std::uint32_t differ = twin != nullptr ? twin->differ.value_or(0) : 0;
    const FormatInfo& format = info(anatomy.format);
    const float width = cell_width(format, area.width);
    const bool weighted = density_ == Density::full && width >= px(kWeighted);
    float x = area.x;
    for (const bits::Field& field : bits::fields_of(format)) {
      const Color ground = theme().field(field.letter);
      for (std::size_t i = 0; i < field.weights.size(); ++i) {
        const bool set = ((anatomy.code >> (field.high - static_cast<int>(i))) & 1U) != 0;
        const float gap = width > px(8) ? 1.0F : 0.0F;
        const Area cell{x, area.y, width - gap, px(kCellHeight)};
        fill(cell, set ? ground : ground.alpha(70), px(width > px(14) ? 3 : 1));
        if (((differ >> (field.high - static_cast<int>(i))) & 1U) != 0) {
          fill({cell.x, cell.bottom() - px(3), cell.width, px(3)}, theme().accent);
        }
        label(set ? fonts().mono : fonts().mono_small, cell, set ? theme().text : theme().muted, set ? "1" : "0", 0.5F);
        if (weighted) {
          const Area below{x - px(4), cell.bottom(), width + px(8), px(kBitsLine)};
          if (text_size(fonts().mono_small, field.weights[i]).x < below.width) {
            label(fonts().mono_small, below, set ? theme().text : theme().muted, field.weights[i], 0.5F);
          }
        }
        x += width;
      }
      x += px(kFieldGap);
    }
    return cells_height(format, area.width);
  }

  float draw_measures(Area area) {
    float y = area.y;
    if (!sheet_.verdict.empty() || !sheet_.origin.empty() || !sheet_.block.empty())
      y += draw_verdict({area.x, y, area.width, 0});
    y += draw_ruler({area.x, y, area.width, px(kRulerHeight)});
    const float room = area_.bottom() - y - px(14);
    y += draw_histogram({area.x, y, area.width, std::clamp(room, px(kHistogramHeight), px(kMostHistogram))});
    return y - area.y;
  }

  float draw_verdict(Area area) const {
    float y = area.y;
    if (!sheet_.verdict.empty()) {
      label(fonts().title, {area.x, y, area.width, px(20)}, tone(sheet_.stage().tone), "Stored: " + sheet_.verdict);
      y += px(22);
    }
    for (const std::string* words : {&sheet_.lost, &sheet_.bucket, &sheet_.origin, &sheet_.block}) {
      for (const std::string& words_line : wrap(fonts().small, *words, area.width, 2)) {
        label(fonts().small, {area.x, y, area.width, px(kBitsLine)}, theme().muted, words_line);
        y += px(kBitsLine);
      }
    }
    return y - area.y + px(8);
  }

  float section(Area area, std::string_view title, std::string_view words) const {
    label(fonts().text, {area.x, area.y, area.width, px(18)}, theme().text, title);
    const float taken = text_size(fonts().text, title).x + px(12);
    label(fonts().small, {area.x + taken, area.y, area.width - taken, px(19)}, theme().muted, words, 1);
    return px(24);
  }

  float draw_ruler(Area area) const {
    const Ruler& ruler = sheet_.ruler;
    const Format format = sheet_.stage().anatomy.format;
    const float head = section(area, "Neighbours", fmt::format("what {} can hold around it", name(format)));
    if (ruler.marks.empty()) {
      label(fonts().small, {area.x, area.y + head, area.width, px(kBitsLine)}, theme().muted,
            "It is no finite number and has no neighbours.");
      return head + px(kBitsLine + 18);
    }
    const float y = area.y + head + px(46);  // of the axis
    const auto x = [&](float at) { return std::floor(area.x + at * area.width); };
    if (ruler.bucket_end > ruler.bucket_begin) {
      fill({x(ruler.bucket_begin), y - px(9), x(ruler.bucket_end) - x(ruler.bucket_begin), px(18)},
           theme().accent.alpha(46), px(4));
    }
    draw_axis(ruler, area, y);
    for (const Ruler::Mark& mark : ruler.marks) {
      fill({x(mark.at) - px(1), y - px(7), px(2), px(14)}, theme().text);
      if (mark.stored) ImGui::GetWindowDrawList()->AddCircleFilled({x(mark.at), y}, px(6), theme().accent.packed(), 24);
    }
    draw_mark_names(ruler, area, y);
    draw_pointer(ruler, area, y);
    return head + px(kRulerHeight);
  }

  /// The stored value before its neighbours; names that would touch are left out.
  void draw_mark_names(const Ruler& ruler, Area area, float y) const {
    const Format format = sheet_.stage().anatomy.format;
    Taken taken(px(10));
    for (const bool stored : {true, false}) {
      for (const Ruler::Mark& mark : ruler.marks) {
        if (mark.stored != stored) continue;
        const std::string code = bits::code_text(format, mark.code);
        const float width =
            std::max(text_size(fonts().mono_small, mark.value).x, text_size(fonts().mono_small, code).x);
        const float left = std::floor(area.x + mark.at * area.width) - width / 2;
        if (!taken.take(left, width)) continue;
        const Color ink = stored ? theme().text : theme().muted;
        label(fonts().mono_small, {left, y - px(40), width + 1, px(14)}, ink, mark.value, 0.5F);
        label(fonts().mono_small, {left, y - px(26), width + 1, px(14)}, theme().muted, code, 0.5F);
      }
    }
  }

  void draw_axis(const Ruler& ruler, Area area, float y) const {
    const auto x = [&](float at) { return std::floor(area.x + at * area.width); };
    const float last = x(ruler.marks.back().at);
    const float first = x(ruler.marks.front().at);
    const bool above = ruler.broken && ruler.value_at > 0.5F;
    const bool below = ruler.broken && !above;
    const float from = below ? first - px(18) : area.x;
    const float to = above ? last + px(18) : area.right();
    line({from, y}, {to, y}, theme().muted, px(1.5F));
    for (float dash = above ? to + px(5) : area.x; ruler.broken && dash < (above ? area.right() : from);
         dash += px(9)) {
      line({dash, y}, {std::min(dash + px(4), area.right()), y}, theme().muted, px(1.5F));
    }
    for (const float meet : ruler.meets) {
      for (float at = y - px(9); at < y + px(9); at += px(4)) {
        fill({x(meet), at, 1, px(2)}, theme().muted);
      }
    }
  }

  /// The value before rounding, and an arrow to where it went.
  void draw_pointer(const Ruler& ruler, Area area, float y) const {
    const float at = std::floor(area.x + ruler.value_at * area.width);
    const Color ink = tone(sheet_.stage().tone);
    ImGui::GetWindowDrawList()->AddTriangleFilled({at, y + px(4)}, {at - px(6), y + px(14)}, {at + px(6), y + px(14)},
                                                  ink.packed());
    const std::string words = ruler.broken ? ruler.value + ", not to scale" : ruler.value;
    const float width = text_size(fonts().mono_small, words).x;
    const float left = std::clamp(at - width / 2, area.x, area.right() - width - 1);
    label(fonts().mono_small, {left, y + px(15), width + 1, px(14)}, ink, words);
    for (const Ruler::Mark& mark : ruler.marks) {
      const float target = std::floor(area.x + mark.at * area.width);
      if (!mark.stored || std::abs(target - at) < px(16)) continue;
      const float way = target < at ? 1.0F : -1.0F;
      line({at - way * px(9), y + px(9)}, {target + way * px(4), y + px(9)}, ink, px(1.5F));
      line({target + way * px(4), y + px(9)}, {target + way * px(9), y + px(5)}, ink, px(1.5F));
      line({target + way * px(4), y + px(9)}, {target + way * px(9), y + px(13)}, ink, px(1.5F));
    }
  }

  float draw_histogram(Area area) {
    const Histogram& histogram = sheet_.histogram;
    const Place& place = sheet_.stage().target.place;
    const std::string how = histogram.by_exponent ? "by power of two" : "by code";
    const float head = section(area, fmt::format("All of {}.{}", place.op, place.role),
                               fmt::format("{}, {}, log counts", counted(histogram.elements, "element"), how));
    const Area bars{area.x, area.y + head, area.width, area.height - head - px(kNamesHeight)};
    fill({bars.x, bars.bottom(), bars.width, 1}, theme().line);
    const float highest = std::log1p(static_cast<float>(histogram.most));
    ImGui::SetCursorScreenPos(bars.min());
    ImGui::InvisibleButton("histogram", {std::max(1.0F, bars.width), std::max(1.0F, bars.height)});
    const bool hovered = ImGui::IsItemHovered();
    for (std::size_t i = 0; i < histogram.bins.size(); ++i) {
      const CodeBin& bin = histogram.bins[i];
      const Area column = bin_area(bars, i);
      if (bin.count > 0) {
        const float share = std::log1p(static_cast<float>(bin.count)) / highest;
        const float height = std::max(px(3), std::floor((bars.height - px(14)) * share));
        fill({column.x, bars.bottom() - height, column.width, height},
             bin.tone == kZero ? theme().muted : theme().cell(bin.tone));
      }
      if (histogram.chosen == i) draw_chosen(bars, column);
      const float mouse = ImGui::GetIO().MousePos.x;
      if (hovered && mouse >= column.x && mouse < std::max(column.right(), column.x + 1)) tell_bin(bin, column);
    }
    draw_bin_names(bars);
    return area.height;
  }

  /// The codes of NaN have no value: they stand apart, wide enough for their names.
  Area bin_area(Area bars, std::size_t bin) const {
    const Histogram& histogram = sheet_.histogram;
    const auto apart = static_cast<float>(histogram.bins.size() - histogram.ordered);
    const float slot = apart > 0 ? std::min(px(40), bars.width * 0.3F / apart) : 0;
    const float numbers = bars.width - apart * slot - (apart > 0 ? px(kApart) : 0);
    if (bin >= histogram.ordered) {
      const float left = bars.right() - static_cast<float>(histogram.bins.size() - bin) * slot;
      return {std::floor(left + slot / 2 - px(5)), bars.y, px(10), bars.height};
    }
    const auto count = static_cast<float>(histogram.ordered);
    const float used = std::min(numbers, count * px(kMostBin));
    const float from = bars.x + (numbers - used) / 2;
    const float left = std::floor(from + used * static_cast<float>(bin) / count);
    const float right = std::max(left + 1, std::floor(from + used * static_cast<float>(bin + 1) / count));
    return {left, bars.y, right - left - (right - left > px(4) ? 1.0F : 0.0F), bars.height};
  }

  /// Marks the bin of the element from above.
  void draw_chosen(Area bars, Area column) const {
    const float middle = column.x + column.width / 2;
    ImGui::GetWindowDrawList()->AddTriangleFilled({middle - px(5), bars.y}, {middle + px(5), bars.y},
                                                  {middle, bars.y + px(8)}, theme().accent.packed());
  }

  void tell_bin(const CodeBin& bin, Area column) const {
    outline(column.inset(-1), theme().text);
    const std::string bin_name = typeset(bin.name);
    std::vector<std::string> lines = {counted(bin.count, "element")};
    if (!bin.values.empty()) lines.insert(lines.begin(), bin.values);
    tooltip(context_, bin_name, lines);
    actions_.hint(fmt::format("{}   {}   {}", bin_name, bin.values, counted(bin.count, "element")));
  }

  /// NaN, the largest finite values, Inf and zero before all others; names that would touch are left out.
  void draw_bin_names(Area bars) const {
    const Histogram& histogram = sheet_.histogram;
    std::vector<std::size_t> wanted;
    for (const Cell tone : {kNan, kInf, kClipped, kLowHeadroom, kZero}) {
      for (std::size_t i = 0; i < histogram.bins.size(); ++i) {
        if (histogram.bins[i].tone == tone) wanted.push_back(i);
      }
    }
    for (std::size_t i = 0; i < histogram.bins.size(); ++i) wanted.push_back(i);
    Taken taken(px(14));
    for (const std::size_t i : wanted) {
      const CodeBin& bin = histogram.bins[i];
      const std::string bin_name = typeset(bin.name);
      const std::string value = histogram.by_exponent ? "" : bin.tone == kNan ? "NaN" : bin.values;
      const float width = std::max(text_size(fonts().mono_small, bin_name).x, text_size(fonts().mono_small, value).x);
      const Area column = bin_area(bars, i);
      const float middle = column.x + column.width / 2;
      const float left = std::clamp(middle - width / 2, bars.x, std::max(bars.x, bars.right() - width));
      if (!taken.take(left, width)) continue;
      const Color ink = bin.tone > kHealthyLast && bin.count > 0 ? theme().cell(bin.tone) : theme().muted;
      label(fonts().mono_small, {left, bars.bottom() + px(3), width + 1, px(14)}, ink, bin_name, 0.5F);
      label(fonts().mono_small, {left, bars.bottom() + px(16), width + 1, px(14)}, ink, value, 0.5F);
    }
  }

  const ViewContext& context_;
  const ViewActions& actions_;
  const BitsPair& pair_;
  const BitsSheet& sheet_;
  Area area_;
  Density density_ = Density::full;
};

class BitsView final : public View {
 public:
  std::string_view name() const override { return "bits"; }
  std::string_view title() const override { return "Bits"; }
  std::string_view caption() const override { return "one element before storing, stored and read back"; }
  std::optional<TableMaker> table(const PreparedPtr& prepared) const override {
    return
        [data = std::dynamic_pointer_cast<const BitsPair>(prepared)] { return data ? table_of(data->here) : Table{}; };
  }

  std::optional<ViewRequest> prepare(const ViewContext& context, Area) override {
    const Place place = context.selection.place;
    const std::int64_t call = context.selection.call;
    const BesideRunPtr beside = context.beside;
    return ViewRequest{fmt::format("{} {} {}", to_string(place), call, beside_key(beside)),
                       [place, call, beside](RunFacts& facts) { return answer(facts, place, call, beside); }};
  }

  void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) override {
    const auto& pair = static_cast<const BitsPair&>(*prepared);
    if (pair.here.stages.empty()) {
      notice(context, area, pair.here.notice, pair.here.advice);
      return;
    }
    const bool beside = pair.there && area.width >= kTwoColumns * context.scale;
    if (!pair.label.empty()) {
      const float height = kBitsPartsHeight * context.scale;
      draw_parts(context, pair, {area.x, area.y, area.width, height}, beside);
      area = {area.x, area.y + height, area.width, area.height - height};
    }
    ImGui::SetCursorScreenPos(area.min());
    ImGui::BeginChild("bits", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
    const ImVec2 start = ImGui::GetCursorScreenPos();
    float height = 0;
    const auto draw_run = [&](TwinPart part, Area column) {
      ImGui::PushID(static_cast<int>(part));
      height = std::max(height, Drawer(context, actions, pair, part, column).draw());
      ImGui::PopID();
    };
    if (beside) {
      const float half = std::floor(area.width / 2);
      draw_run(TwinPart::here, {start.x, start.y, half, area.height});
      draw_run(TwinPart::there, {start.x + half, start.y, area.width - half, area.height});
      fill({start.x + half, start.y, 1, height}, context.theme.line);
    } else {
      draw_run(pair.there ? part_ : TwinPart::here, {start.x, start.y, area.width, area.height});
    }
    ImGui::SetCursorScreenPos({start.x, start.y + height});
    ImGui::Dummy({1, 8 * context.scale});
    ImGui::EndChild();
  }

 private:
  static Result<PreparedPtr> answer(RunFacts& facts, const Place& place, std::int64_t call,
                                    const BesideRunPtr& beside) {
    Result<BitsSheet> sheet = make_bits_sheet(facts.view(), place, call);
    if (!sheet) return tl::unexpected(sheet.error());
    BitsPair alone;
    alone.here = std::move(*sheet);
    if (beside && facts.model() != nullptr) return beside_model(facts, std::move(alone), place, beside->label);
    if (!beside || facts.beside() == nullptr) return std::make_shared<const BitsPair>(std::move(alone));
    Result<BitsPair> pair = make_bits_pair(std::move(alone.here), facts.beside()->view(), beside->label);
    if (!pair) return tl::unexpected(pair.error());
    return std::make_shared<const BitsPair>(std::move(*pair));
  }

  static Result<PreparedPtr> beside_model(RunFacts& facts, BitsPair alone, const Place& place,
                                          const std::string& label) {
    const Result<Subject> subject = find_subject(facts.view(), place);
    if (!subject) return std::make_shared<const BitsPair>(std::move(alone));
    ReferenceView there(facts.view(), *facts.model(), subject->tensor.id);
    if (!there.reference()) {
      alone.label = label;
      alone.words = there.problem().empty() ? "being recomputed\u2026" : "not recomputed: " + there.problem();
      return std::make_shared<const BitsPair>(std::move(alone));
    }
    Result<BitsPair> pair = make_bits_pair(std::move(alone.here), there, label);
    if (!pair) return tl::unexpected(pair.error());
    return std::make_shared<const BitsPair>(std::move(*pair));
  }

  /// Side by side the runs are named above their columns; else one of them is chosen.
  void draw_parts(const ViewContext& context, const BitsPair& pair, Area row, bool beside) {
    const float side = kSide * context.scale;
    const Area inside = row.inset(side, 0);
    if (beside) {
      const float half = std::floor(row.width / 2);
      const std::string words = fmt::format("{}   {}", part_name(TwinPart::there, pair.label), pair.words);
      const Area left{inside.x, row.y, half - 2 * side, row.height};
      label(context.fonts.small, left, context.theme.text, part_name(TwinPart::here, pair.label));
      label(context.fonts.small, left, context.theme.muted, "underlined: bits that differ", 1);
      label(context.fonts.small, {row.x + half + side, row.y, row.width - half - 2 * side, row.height},
            context.theme.accent, printable(words));
      return;
    }
    constexpr TwinPart kSides[] = {TwinPart::here, TwinPart::there};
    const float x = pair.there ? choose_part(context, inside, kSides, pair.label, part_) : inside.x;
    label(context.fonts.small, {x, row.y, inside.right() - x, row.height}, context.theme.muted, printable(pair.words));
  }

  TwinPart part_ = TwinPart::here;
};

}  // namespace

std::unique_ptr<View> make_bits_view() { return std::make_unique<BitsView>(); }

}  // namespace nanscope::gui
