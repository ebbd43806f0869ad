#include "core/numbers/bits_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "core/numbers/bits_input.h"

namespace nanscope::bits {
namespace {

struct Glyphs {
  std::string_view line, bar, top_left, top_mid, top_right, bottom_left, bottom_mid, bottom_right;
  std::string_view mark, stored, meet, value, gap;
};
constexpr Glyphs kUnicode = {"─", "│", "┌", "┬", "┐", "└", "┴", "┘", "┼", "●", "┊", "▲", "┄"};
constexpr Glyphs kAscii = {"-", "|", "+", "+", "+", "+", "+", "+", "+", "O", ":", "^", "."};

const Glyphs& glyphs(bool ascii) { return ascii ? kAscii : kUnicode; }

std::string repeat(std::string_view piece, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += piece;
  return text;
}

/// Columns of text that may hold multi-byte characters: one string a column.
class Columns {
 public:
  explicit Columns(std::size_t width) : cells_(width, " ") {}
  void put(std::size_t column, std::string_view glyph) {
    if (column < cells_.size()) cells_[column] = std::string(glyph);
  }
  /// Writes ASCII text centred at `column`, kept inside the line, unless it would touch other text.
  void label(std::size_t column, std::string_view text) {
    const std::size_t width = cells_.size();
    if (text.size() > width) return;
    const std::size_t half = text.size() / 2;
    const std::size_t start = std::min(column > half ? column - half : 0, width - text.size());
    const std::size_t from = start > 0 ? start - 1 : 0;
    const std::size_t to = std::min(width, start + text.size() + 1);
    for (std::size_t i = from; i < to; ++i) {
      if (cells_[i] != " ") return;
    }
    for (std::size_t i = 0; i < text.size(); ++i) cells_[start + i] = std::string(1, text[i]);
  }
  std::string line() const {
    std::string text = "  ";
    for (const std::string& cell : cells_) text += cell;
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  }

 private:
  std::vector<std::string> cells_;
};

constexpr std::size_t kRulerWidth = 76;
constexpr std::size_t kMargin = 6;

/// Maps values to columns; an input outside the marks gets a place behind a broken axis.
struct Axis {
  double low, high;
  std::size_t first = kMargin, last = kRulerWidth - 1 - kMargin;
  std::size_t column(double value) const {
    const double span = static_cast<double>(last - first);
    if (!(high > low)) return first + (last - first) / 2;
    const double place = std::clamp((value - low) / (high - low), 0.0, 1.0);
    return first + static_cast<std::size_t>(std::lround(place * span));
  }
};

}  // namespace

std::vector<Field> fields_of(const FormatInfo& f) {
  std::vector<Field> fields;
  const bool integer = f.exponent_bits == 0;
  if (f.has_sign) {
    fields.push_back({'S', f.bits - 1, {integer ? fmt::format("-{}", std::uint64_t{1} << f.mantissa_bits) : "+/-"}});
  }
  Field exponent{'E', f.mantissa_bits + f.exponent_bits - 1, {}};
  for (int bit = f.exponent_bits - 1; bit >= 0; --bit) exponent.weights.push_back(fmt::format("{}", 1u << bit));
  Field mantissa{integer ? 'I' : 'M', f.mantissa_bits - 1, {}};
  for (int bit = f.mantissa_bits - 1; bit >= 0; --bit) {
    mantissa.weights.push_back(integer ? fmt::format("{}", 1u << bit)
                                       : fmt::format("1/{}", 1u << (f.mantissa_bits - bit)));
  }
  for (Field* field : {&exponent, &mantissa}) {
    if (!field->weights.empty()) fields.push_back(*field);
  }
  return fields;
}

std::vector<std::uint32_t> marks_around(const Rounding& r) {
  std::vector<std::uint32_t> marks;
  const auto finite = [&](std::uint32_t code) { return std::isfinite(exact_value(r.format, code)); };
  auto down = r.lower;
  const bool on_mark = r.lower && r.upper && *r.lower == *r.upper;
  for (int i = 0; down && i < (on_mark ? 3 : 2); ++i, down = next_down(r.format, *down)) {
    if (finite(*down)) marks.insert(marks.begin(), *down);
  }
  auto up = on_mark ? next_up(r.format, *r.upper) : r.upper;
  for (int i = 0; up && i < 2; ++i, up = next_up(r.format, *up)) {
    if (finite(*up)) marks.push_back(*up);
  }
  return marks;
}

std::string draw_fields(const Anatomy& anatomy, bool ascii) {
  const FormatInfo& f = info(anatomy.format);
  const Glyphs& g = glyphs(ascii);
  const bool weighted = f.bits <= 16;
  std::string letters = "   ", top = "  ", bits = "  ", bottom = "  ", weights = "   ";
  bool first = true;
  for (const Field& field : fields_of(f)) {
    std::size_t inner = 1;
    bits += fmt::format("{} ", g.bar);
    letters += ' ';
    weights += ' ';
    for (std::size_t i = 0; i < field.weights.size(); ++i) {
      const std::size_t width = weighted ? field.weights[i].size() : 1;
      const std::size_t gap = weighted || i + 1 == field.weights.size() ? 1 : 0;
      const int bit = field.high - static_cast<int>(i);
      bits += fmt::format("{:^{}}{:{}}", (anatomy.code >> bit) & 1u, width, "", gap);
      letters += fmt::format("{:^{}}{:{}}", field.letter, width, "", gap);
      weights += fmt::format("{:^{}}{:{}}", field.weights[i], width, "", gap);
      inner += width + gap;
    }
    top += fmt::format("{}{}", first ? g.top_left : g.top_mid, repeat(g.line, inner));
    bottom += fmt::format("{}{}", first ? g.bottom_left : g.bottom_mid, repeat(g.line, inner));
    letters += ' ';
    weights += ' ';
    first = false;
  }
  top += g.top_right;
  bottom += g.bottom_right;
  bits += fmt::format("{}  {} = 0b{}", g.bar, code_text(anatomy.format, anatomy.code),
                      field_text(anatomy.format, anatomy.code));
  for (std::string* text : {&letters, &weights}) text->erase(text->find_last_not_of(' ') + 1);
  std::string drawing = fmt::format("{}\n{}\n{}\n{}\n", letters, top, bits, bottom);
  if (weighted) drawing += weights + "\n";
  return drawing;
}

std::string draw_buckets(const Rounding& r, const std::string& input_label, bool ascii) {
  const std::vector<std::uint32_t> marks = marks_around(r);
  if (marks.empty() || std::isnan(r.value)) return "";
  const Glyphs& g = glyphs(ascii);
  Axis axis{exact_value(r.format, marks.front()), exact_value(r.format, marks.back())};
  const bool right = r.value > axis.high;
  const bool left = r.value < axis.low;
  constexpr std::size_t kBreak = 24;  // columns of an axis that does not keep the scale
  if (right) axis.last -= kBreak;
  if (left) axis.first += kBreak;

  Columns values(kRulerWidth), codes(kRulerWidth), line(kRulerWidth), pointer(kRulerWidth), input(kRulerWidth);
  for (std::size_t i = 0; i < kRulerWidth; ++i) {
    const bool broken = (right && i > axis.last + 4) || (left && i + 4 < axis.first);
    line.put(i, broken ? g.gap : g.line);
  }
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const double value = exact_value(r.format, marks[i]);
    const std::size_t column = axis.column(value);
    if (i > 0) {
      const double before = exact_value(r.format, marks[i - 1]);
      line.put(axis.column(before + (value - before) / 2), g.meet);
    }
    line.put(column, g.mark);
    values.label(column, short_decimal(value));
    codes.label(column, code_text(r.format, marks[i]));
  }
  for (const std::uint32_t mark : marks) {
    if (mark == r.code) line.put(axis.column(r.stored), g.stored);
  }
  const std::size_t place = right ? kRulerWidth - 1 - kMargin : left ? kMargin : axis.column(r.value);
  pointer.put(place, g.value);
  input.label(place, input_label);
  return values.line() + codes.line() + line.line() + pointer.line() + input.line() +
         fmt::format("  {} stored   {} where two buckets meet   {} {}\n", g.stored, g.meet, g.value,
                     right || left ? "the value, beyond the range (not to scale)" : "the value");
}

}  // namespace nanscope::bits
