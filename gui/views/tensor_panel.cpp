#include "gui/views/tensor_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/numbers/format.h"
#include "gui/marks.h"
#include "gui/views/tensor_grid.h"
#include "gui/views/twin_parts.h"

namespace nanscope::gui {
namespace {

constexpr int kMoreDigits = 2;  ///< than in a cell, as there is room
constexpr float kPanelPad = 12;
constexpr float kPanelChip = 20;
constexpr float kAxisLine = 16;
constexpr float kDecadeRoom = 16;
constexpr float kNumberColumn = 230;  ///< wider areas have two columns of numbers
constexpr float kLeastBar = 2;        ///< a single element among millions is as high

/// A bar of a histogram: what it stands for and how many there are, in two parts.
struct Bar {
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  std::string words;
};

std::vector<Bar> value_bars(const TensorStatistics& statistics) {
  std::vector<Bar> bars;
  for (const ValueBin& bin : statistics.values) {
    bars.push_back({bin.positive, bin.negative,
                    fmt::format("|x| from 2^{} = {:.3g} to 2^{}: {} positive, {} negative", bin.exponent,
                                std::ldexp(1.0, bin.exponent), bin.exponent + 1, bin.positive, bin.negative)});
  }
  return bars;
}

std::vector<Bar> code_bars(const TensorStatistics& statistics) {
  std::vector<Bar> bars;
  for (std::size_t i = 0; i < statistics.codes.size(); ++i) {
    bars.push_back({statistics.codes[i], 0,
                    fmt::format("{} 0x{:02X}: {}", statistics.code_shift > 0 ? "high byte" : "code", i,
                                counted(statistics.codes[i], "element"))});
  }
  return bars;
}

std::vector<std::pair<std::string, std::string>> numbers_of(const TensorStatistics& s, NumberStyle style) {
  style.digits += kMoreDigits;

  const bool any = s.finite > 0;
  const auto of = [&](double value) { return any ? number_text(style, value) : std::string("\u2013"); };
  std::vector<std::pair<std::string, std::string>> numbers{{"elements", std::to_string(s.elements)},
                                                           {"min", of(s.min)},
                                                           {"max", of(s.max)},
                                                           {"mean", of(s.mean)},
                                                           {"standard deviation", of(s.deviation)},
                                                           {"largest |x|", of(s.absmax)},
                                                           {"zero", std::to_string(s.zero)},
                                                           {"NaN", std::to_string(s.nan)}};
  if (s.positive_inf > 0) numbers.emplace_back("+Inf", std::to_string(s.positive_inf));
  if (s.negative_inf > 0) numbers.emplace_back("-Inf", std::to_string(s.negative_inf));
  if (s.clipped > 0) numbers.emplace_back("clipped", std::to_string(s.clipped));
  return numbers;
}

/// On a logarithmic axis of counts: what there is one of stays to be seen beside millions.
void draw_histogram(const ViewContext& context, const std::vector<Bar>& bars, Area area) {
  const auto px = [&](float pixels) { return pixels * context.scale; };
  std::uint64_t most = 1;
  for (const Bar& bar : bars) most = std::max(most, bar.lower + bar.upper);
  const double top = std::log10(static_cast<double>(most)) + 1;
  const float pitch = area.width / static_cast<float>(std::max<std::size_t>(bars.size(), 1));
  const float gap = pitch > px(4) ? px(1) : 0;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const std::uint64_t count = bar.lower + bar.upper;
    const Area column{area.x + pitch * static_cast<float>(i), area.y, pitch, area.height};
    if (ImGui::IsWindowHovered() && column.holds(mouse)) {
      fill(column, context.theme.raised);
      tooltip(context, counted(count, "element"), {bar.words});
    }
    if (count == 0) continue;
    const double part = (std::log10(static_cast<double>(count)) + 1) / (top + 0.3);
    const float high = std::max(px(kLeastBar), area.height * static_cast<float>(part));
    const float upper = high * static_cast<float>(static_cast<double>(bar.upper) / static_cast<double>(count));
    const Area box{column.x, area.bottom() - high, std::max(1.0F, pitch - gap), high};
    fill(box, context.theme.cell(kHealthyFirst + kHealthySteps * 2 / 3));
    if (upper > 0) fill({box.x, box.y, box.width, upper}, context.theme.cell(kHealthyFirst + kHealthySteps / 4));
  }
  for (int decade = 0; decade <= static_cast<int>(top); ++decade) {
    const float y = std::floor(area.bottom() - area.height * static_cast<float>((decade + 1) / (top + 0.3)));
    if (y < area.y) break;
    fill({area.x, y, area.width, 1}, context.theme.line.alpha(140));
    if (area.height / static_cast<float>(top + 0.3) < px(kDecadeRoom)) continue;
    label(context.fonts.mono_small, {area.x, y - px(13), area.width, px(12)}, context.theme.muted,
          decade < 4 ? fmt::format("{:g}", std::pow(10, decade)) : fmt::format("1e{}", decade), 1);
  }
  fill({area.x, area.bottom(), area.width, 1}, context.theme.muted);
}

void draw_axis(const ViewContext& context, const TensorStatistics& statistics, bool of_codes, Area row) {
  std::string from = "no value but zero";
  std::string to;
  if (of_codes) {
    from = "0x00";
    to = fmt::format("0x{:02X}", statistics.codes.size() - 1);
  } else if (!statistics.values.empty()) {
    from = fmt::format("2^{}", statistics.values.front().exponent);
    to = fmt::format("2^{}", statistics.values.back().exponent + 1);
  }
  label(context.fonts.mono_small, row, context.theme.muted, from);
  label(context.fonts.mono_small, row, context.theme.muted, to, 1);
}

}  // namespace

std::string part_words(const TensorSheet& sheet, const FrontRange& range) {
  const auto span = [](const char* what, std::int64_t from, std::int64_t to, const std::string& first,
                       const std::string& last) {
    return to - from == 1 ? fmt::format("{} {}", what, first) : fmt::format("{}s {} to {}", what, first, last);
  };
  const char* column = sheet.query_by_key ? "key" : "channel";
  const auto named = [&](std::int64_t at) { return std::to_string(sheet.query_by_key ? at : sheet.channel(at)); };
  const auto row = [&](std::int64_t at) {
    const std::string number = row_number(sheet, at);
    return number.empty() ? std::to_string(at) : number;
  };
  return span("row", range.row_begin, range.row_end, row(range.row_begin), row(range.row_end - 1)) + ", " +
         span(column, range.column_begin, range.column_end, named(range.column_begin), named(range.column_end - 1));
}

bool TensorPanel::draw(const ViewContext& context, const TensorSheet& sheet, const TensorStatistics& statistics,
                       Area area) {
  const auto px = [&](float pixels) { return pixels * context.scale; };
  const Area inner = area.inset(px(kPanelPad), 0);
  bool whole = false;
  float y = area.y + px(6);
  const std::string title =
      statistics.whole ? (sheet.heads > 1 ? fmt::format("all of head {}", sheet.head) : std::string("all elements"))
                       : part_words(sheet, statistics.range);
  label(context.fonts.text, {inner.x, y, inner.width - (statistics.whole ? 0 : px(56)), px(22)}, context.theme.text,
        title);
  if (!statistics.whole) {
    const float left = inner.right() - chip_width(context, "all");
    whole = chip_button(context, left, inner.right(), y + px(1), px(kPanelChip), "all", false).pressed;
  }
  y += px(28);
  const auto numbers = numbers_of(statistics, context.numbers);
  const int columns = inner.width >= px(2 * kNumberColumn) ? 2 : 1;
  y += number_table(context, {inner.x, y, inner.width, 0}, columns, numbers.size(), numbers, true) + px(12);
  float x = inner.x;
  for (const bool codes : {false, true}) {
    const char* words = codes ? (statistics.code_shift > 0 ? "high bytes" : "codes") : "|values|";
    const ChipPress chip = chip_button(context, x, inner.right(), y, px(kPanelChip), words, codes == of_codes_);
    if (chip.pressed) of_codes_ = codes;
    x = chip.right + px(6);
  }
  label(context.fonts.small, {x, y, inner.right() - x, px(kPanelChip)}, context.theme.muted,
        of_codes_ ? "count, log" : "count, log; top: negative", 1);
  y += px(kPanelChip + 16);
  const float height = area.bottom() - px(kAxisLine + 10) - y;
  if (height < px(40)) return whole;
  draw_histogram(context, of_codes_ ? code_bars(statistics) : value_bars(statistics),
                 {inner.x, y, inner.width, height});
  draw_axis(context, statistics, of_codes_, {inner.x, y + height + px(3), inner.width, px(kAxisLine)});
  return whole;
}

}  // namespace nanscope::gui
