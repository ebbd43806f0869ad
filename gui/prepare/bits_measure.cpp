#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/numbers/bits_drawing.h"
#include "core/numbers/bits_input.h"
#include "gui/prepare/bits_sheet.h"

/// The ruler around an element, and the histogram of its tensor.
namespace nanscope::gui {
namespace {

constexpr double kMargin = 0.1;  ///< of the axis at both ends
constexpr double kBreak = 0.28;  ///< of an axis that does not keep the scale
constexpr double kBeyond = 0.94;

/// From values to the axis.
struct RulerAxis {
  double low = 0;
  double high = 0;
  double first = kMargin;
  double last = 1 - kMargin;

  float at(double value) const {
    if (!(high > low)) return 0.5F;
    return static_cast<float>(first + (last - first) * std::clamp((value - low) / (high - low), 0.0, 1.0));
  }
};

std::uint32_t mask_of(Format format) {
  const int bits = info(format).bits;
  return bits >= 32 ? 0xffffffffU : (1U << bits) - 1U;
}

Cell tone_of_code(Format format, std::uint32_t code, bool clips) {
  const NumberClass kind = classify(format, code);
  if (kind == NumberClass::nan) return kNan;
  if (kind == NumberClass::inf) return kInf;
  const double largest = exact_value(format, info(format).max_finite_code);
  if (std::abs(exact_value(format, code)) == largest) return clips ? kClipped : kLowHeadroom;
  return kind == NumberClass::zero ? kZero : kHealthyLast;
}

/// Codes in order of value, those of NaN last.
std::vector<std::uint32_t> all_codes(Format format) {
  std::vector<std::uint32_t> codes;
  const std::uint64_t ordered = ordered_count(format);
  for (std::uint64_t i = 0; i < ordered; ++i) codes.push_back(code_at(format, i));
  for (std::uint32_t code = 0; code <= mask_of(format); ++code) {
    if (classify(format, code) == NumberClass::nan) codes.push_back(code);
  }
  return codes;
}

Histogram by_code(const TensorData& elements, std::uint32_t chosen, bool clips) {
  const std::uint32_t mask = mask_of(elements.format);
  std::vector<std::uint64_t> counts(std::size_t{mask} + 1);
  for (std::int64_t i = 0; i < elements.count(); ++i) ++counts[elements.code(i) & mask];
  Histogram histogram;
  for (const std::uint32_t code : all_codes(elements.format)) {
    if (code == (chosen & mask)) histogram.chosen = histogram.bins.size();
    histogram.bins.push_back({bits::code_text(elements.format, code), short_decimal(exact_value(elements.format, code)),
                              counts[code], tone_of_code(elements.format, code, clips)});
  }
  return histogram;
}

/// Sign and power of two as one ordered number; zero is 0, Inf and NaN are the ends.
constexpr int kExponents = 400;  // more than any format has
constexpr int kInfBin = 2 * kExponents;
constexpr int kNanBin = kInfBin + 1;

int bin_of(float value) {
  if (std::isnan(value)) return kNanBin;
  if (value == 0) return 0;
  const int bin = std::isinf(value) ? kInfBin : std::ilogb(value) + kExponents;
  return std::signbit(value) ? -bin : bin;
}

CodeBin exponent_bin(Format format, int bin, std::uint64_t count) {
  if (bin == kNanBin) return {"NaN", "", count, kNan};
  if (bin == 0) return {"0", "", count, kZero};
  const char* sign = bin < 0 ? "-" : "";
  if (std::abs(bin) == kInfBin) return {fmt::format("{}Inf", sign), "", count, kInf};
  const int exponent = std::abs(bin) - kExponents;
  const double from = std::ldexp(1.0, exponent);
  const bool last = exponent == std::ilogb(exact_value(format, info(format).max_finite_code));
  return {fmt::format("{}2^{}", sign, exponent), fmt::format("|x| from {:.4g} to {:.4g}", from, 2 * from), count,
          last ? kLowHeadroom : kHealthyLast};
}

Histogram by_exponent(const TensorData& elements, std::uint32_t chosen) {
  std::map<int, std::uint64_t> counts;
  int smallest = kInfBin;
  int largest = 0;
  for (std::int64_t i = 0; i < elements.count(); ++i) {
    const int bin = bin_of(elements.value(i));
    ++counts[bin];
    if (bin == 0 || std::abs(bin) >= kInfBin) continue;
    smallest = std::min(smallest, std::abs(bin));
    largest = std::max(largest, std::abs(bin));
  }
  // Both signs show the same powers, so that the picture is symmetric about zero.
  for (int bin = smallest; bin <= largest; ++bin) counts.try_emplace(bin), counts.try_emplace(-bin);
  counts.try_emplace(0);
  const int chosen_bin = bin_of(static_cast<float>(exact_value(elements.format, chosen)));
  Histogram histogram;
  histogram.by_exponent = true;
  for (const auto& [bin, count] : counts) {
    if (bin == chosen_bin) histogram.chosen = histogram.bins.size();
    histogram.bins.push_back(exponent_bin(elements.format, bin, count));
  }
  return histogram;
}

/// Raised, where the character can be.
std::string_view raised(char letter) {
  constexpr std::string_view kFrom = "0123456789-+()";
  constexpr std::string_view kTo[] = {"\u2070", "\u00B9", "\u00B2", "\u00B3", "\u2074", "\u2075", "\u2076",
                                      "\u2077", "\u2078", "\u2079", "\u207B", "\u207A", "",       ""};
  const std::size_t at = kFrom.find(letter);
  return at == std::string_view::npos ? std::string_view() : kTo[at];
}

}  // namespace

std::string typeset(std::string_view formula) {
  std::string out;
  for (std::size_t i = 0; i < formula.size(); ++i) {
    const bool alone = i > 0 && i + 1 < formula.size() && formula[i - 1] == ' ' && formula[i + 1] == ' ';
    if (formula[i] == '^') {
      const bool group = i + 1 < formula.size() && formula[i + 1] == '(';
      const auto goes_on = [&](char letter) {
        return group ? letter != ')' : (letter >= '0' && letter <= '9') || letter == '-';
      };
      for (++i; i < formula.size() && goes_on(formula[i]); ++i) out += raised(formula[i]);
      if (!group) --i;
    } else if (formula[i] == 'x' && alone) {
      out += "\u00D7";
    } else if (formula[i] == '-') {
      out += "\u2212";
    } else {
      out += formula[i];
    }
  }
  return out;
}

Ruler make_ruler(const Rounding& rounding) {
  Ruler ruler;
  const std::vector<std::uint32_t> codes = bits::marks_around(rounding);
  if (codes.empty() || !std::isfinite(rounding.value)) return ruler;
  const auto value_of = [&](std::uint32_t code) { return exact_value(rounding.format, code); };
  RulerAxis axis{value_of(codes.front()), value_of(codes.back())};
  const bool above = rounding.value > axis.high;
  const bool below = rounding.value < axis.low;
  if (above) axis.last -= kBreak;
  if (below) axis.first += kBreak;
  ruler.broken = above || below;
  ruler.value = fmt::format("{:.6g}", rounding.value);
  ruler.value_at = static_cast<float>(above ? kBeyond : below ? 1 - kBeyond : double{axis.at(rounding.value)});
  const bool bucket = std::find(codes.begin(), codes.end(), rounding.code) != codes.end();
  ruler.bucket_end = bucket ? 1 : 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const double value = value_of(codes[i]);
    const bool stored = codes[i] == rounding.code;
    if (i > 0) {
      const double before = value_of(codes[i - 1]);
      const float meet = axis.at(before + (value - before) / 2);
      ruler.meets.push_back(meet);
      if (stored) ruler.bucket_begin = meet;
      if (codes[i - 1] == rounding.code) ruler.bucket_end = meet;
    }
    ruler.marks.push_back({codes[i], fmt::format("{:.9g}", value), axis.at(value), stored});
  }
  return ruler;
}

Histogram make_histogram(const TensorData& elements, std::uint32_t chosen, bool clips) {
  Histogram histogram =
      info(elements.format).bits <= 8 ? by_code(elements, chosen, clips) : by_exponent(elements, chosen);
  histogram.elements = static_cast<std::uint64_t>(elements.count());
  histogram.ordered = histogram.bins.size();
  while (histogram.ordered > 0 && histogram.bins[histogram.ordered - 1].tone == kNan) --histogram.ordered;
  for (const CodeBin& bin : histogram.bins) histogram.most = std::max(histogram.most, bin.count);
  return histogram;
}

}  // namespace nanscope::gui
