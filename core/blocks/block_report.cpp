#include "core/blocks/block_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/blocks/block_codec.h"
#include "core/blocks/presets.h"
#include "core/numbers/anatomy.h"
#include "core/numbers/bits_drawing.h"
#include "core/numbers/bits_input.h"
#include "core/numbers/rounding.h"

namespace nanscope {
namespace {

using Json = nlohmann::ordered_json;

/// What became of the values, and who agrees in every bit.
struct BlockOutcome {
  std::vector<std::string> names;  ///< presets, or rules of this one
  std::uint32_t scale = 0;         ///< code
  float scale_value = 0;
  std::size_t clipped = 0;
  std::size_t flushed = 0;  ///< stored as 0 though they are not
  double rms = 0;           ///< of what is lost, over the finite
  std::vector<float> read;  ///< the values that are read back
};

/// A block, understood and encoded.
struct Report {
  const BlockPreset* preset;
  std::vector<float> values;
  float second = 1;
  EncodedBlock block;
  BlockOutcome own;
  std::size_t owner = 0;  ///< the element that set the scale
};

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  return fmt::format("{:.6g}", value);
}

Result<float> read_value(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') {
    return fail(
        fmt::format("'{}' is no number; the elements of a block are numbers like 0.1, -3, nan, -inf, 0x1.8p3", text));
  }
  return f32_of(value);
}

Result<const BlockPreset*> read_preset(const std::string& name) {
  if (const BlockPreset* preset = find_block_preset(name)) return preset;
  return fail(fmt::format("unknown block format '{}'; bits --block list names all of them", name));
}

BlockOutcome outcome_of(std::string name, const BlockFormat& format, std::span<const float> values, float second,
                        const EncodedBlock& block) {
  BlockOutcome out;
  out.names.push_back(std::move(name));
  out.scale = block.scale.code;
  out.scale_value = block_scale_value(format, out.scale);
  double sum = 0;
  std::size_t counted = 0;
  const float most =
      std::abs(block_value(format, static_cast<std::uint8_t>(info(format.element).max_finite_code), out.scale, second));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float read = block_value(format, block.codes[i], out.scale, second);
    out.read.push_back(read);
    if (std::abs(values[i]) > most && std::abs(read) == most) ++out.clipped;
    if (read == 0 && values[i] != 0 && !std::isnan(values[i])) ++out.flushed;
    if (!std::isfinite(values[i]) || !std::isfinite(read)) continue;
    const double off = static_cast<double>(read) - static_cast<double>(values[i]);
    sum += off * off;
    ++counted;
  }
  out.rms = counted > 0 ? std::sqrt(sum / static_cast<double>(counted)) : 0;
  return out;
}

/// NaN, else the largest magnitude, the first of equals.
std::size_t owner_of(std::span<const float> values) {
  const auto size = [](float value) { return std::isnan(value) ? std::pair{1, 0.0F} : std::pair{0, std::abs(value)}; };
  const auto smaller = [&](float a, float b) { return size(a) < size(b); };
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end(), smaller) - values.begin());
}

Result<Report> make_report(const BlockReportOptions& options) {
  Report report{};
  const Result<const BlockPreset*> preset = read_preset(options.preset);
  if (!preset) return tl::unexpected(preset.error());
  report.preset = *preset;
  const BlockFormat& format = report.preset->format;
  const auto room = static_cast<std::size_t>(format.block.rows) * static_cast<std::size_t>(format.block.columns);
  if (options.values.empty()) return fail("which values are in the block? (bits --block mxfp4 0.1 3 -0.5 6.2)");
  if (options.values.size() > room) {
    return fail(
        fmt::format("a block of {} has {} elements; {} were given", options.preset, room, options.values.size()));
  }
  for (const std::string& text : options.values) {
    const Result<float> value = read_value(text);
    if (!value) return tl::unexpected(value.error());
    report.values.push_back(*value);
  }
  if (options.second && !(*options.second > 0 && std::isfinite(*options.second))) {
    return fail(fmt::format("--scale {}: a scale is finite and positive", *options.second));
  }
  report.second = second_block_scale(format, block_amax(report.values));
  if (!std::isfinite(report.second) || report.second == 0) report.second = 1;
  if (options.second && format.second != SecondScale::none) report.second = f32_of(*options.second);
  report.block = encode_block(format, report.values, report.second);
  report.own = outcome_of(std::string(report.preset->name), format, report.values, report.second, report.block);
  report.owner = owner_of(report.values);
  return report;
}

bool same_bits(const BlockOutcome& a, const BlockOutcome& b) {
  return std::ranges::equal(a.read, b.read, [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

void add_outcome(std::vector<BlockOutcome>& all, BlockOutcome found) {
  for (BlockOutcome& one : all) {
    if (!same_bits(one, found)) continue;
    one.names.insert(one.names.end(), found.names.begin(), found.names.end());
    return;
  }
  all.push_back(std::move(found));
}

/// The same format under other rules for the scale.
std::vector<BlockOutcome> other_rules(const Report& report) {
  std::vector<BlockOutcome> all;
  if (report.preset->format.scale != Format::e8m0) return all;
  for (const ScaleRule rule : {ScaleRule::floor, ScaleRule::ceil, ScaleRule::rceil, ScaleRule::even}) {
    BlockFormat format = report.preset->format;
    format.rule = rule;
    format.even_bits = static_cast<std::int8_t>(info(format.element).mantissa_bits);
    const EncodedBlock block = encode_block(format, report.values, report.second);
    add_outcome(all, outcome_of(std::string(name(rule)), format, report.values, report.second, block));
  }
  return all;
}

/// What others who write the same elements make of the values.
std::vector<BlockOutcome> other_producers(const Report& report) {
  std::vector<BlockOutcome> all;
  for (const BlockPreset& preset : block_presets()) {
    const BlockFormat& format = preset.format;
    const auto room = static_cast<std::size_t>(format.block.rows) * static_cast<std::size_t>(format.block.columns);
    if (format.element != report.preset->format.element || report.values.size() > room) continue;
    float second = second_block_scale(format, block_amax(report.values));
    if (format.second == report.preset->format.second) second = report.second;
    if (!std::isfinite(second) || second == 0) second = 1;
    const EncodedBlock block = encode_block(format, report.values, second);
    add_outcome(all, outcome_of(std::string(preset.name), format, report.values, second, block));
  }
  return all;
}

/// An element's code by itself: its bits and what it lost.
struct Element {
  std::uint32_t code;
  float value;   ///< of the code
  float read;    ///< real
  float scaled;  ///< before it was rounded
  bool clipped;
  bool flushed;
};

Element element_of(const Report& report, std::size_t i) {
  const BlockFormat& format = report.preset->format;
  const BlockScale& scale = report.block.scale;
  Element out{};
  out.code = report.block.codes[i];
  out.value = static_cast<float>(exact_value(format.element, out.code));
  out.read = report.own.read[i];
  out.scaled = scale.multiply ? report.values[i] * scale.factor : report.values[i] / scale.factor;
  const float largest = info(format.element).max_finite;
  out.clipped = std::abs(out.scaled) > largest && std::abs(out.value) == largest;
  out.flushed = out.value == 0 && report.values[i] != 0 && !std::isnan(report.values[i]);
  return out;
}

std::string fate_of(const Report& report, std::size_t i, const Element& element) {
  const float given = report.values[i];
  std::string fate;
  if (std::isnan(given) && !std::isnan(element.read)) {
    fate = "NaN laundered";
  } else if (!std::isnan(given) && std::isnan(element.read)) {
    fate = "lost to NaN";
  } else if (std::isnan(given)) {
    fate = "NaN";
  } else if (element.read == given) {
    fate = "exact";
  } else if (std::isfinite(given)) {
    const double off = std::abs(static_cast<double>(element.read) - static_cast<double>(given));
    fate = fmt::format("{} lost ({:.3g} %)", number(off), 100 * off / std::abs(static_cast<double>(given)));
  } else {
    fate = "Inf laundered";
  }
  if (element.clipped) fate += ", clipped";
  if (element.flushed) fate += ", flushed to 0";
  if (i == report.owner) fate += ", set the scale";
  return fate;
}

std::string scale_formula(const Report& report) {
  const BlockFormat& f = report.preset->format;
  const std::string m = number(std::abs(static_cast<double>(report.values[report.owner])));
  const int top = std::ilogb(std::abs(f.largest));
  switch (f.rule) {
    case ScaleRule::floor:
      return fmt::format("2^(floor(log2 {}) - {})", m, top);
    case ScaleRule::ceil:
      return fmt::format("2^(ceil(log2 {}) - {})", m, top);
    case ScaleRule::rceil:
      return fmt::format("2^ceil(log2({} / {}))", m, f.largest);
    case ScaleRule::even:
      return fmt::format("2^(floor(log2 {} rounded to {} bits of mantissa) - {})", m, f.even_bits, top);
    case ScaleRule::max_over_amax:
      return fmt::format("1 / ({} / {})", f.largest, m);
    case ScaleRule::signed_extreme:
      return fmt::format("{} / {}", number(static_cast<double>(report.values[report.owner])), f.largest);
    default:
      break;
  }
  if (f.second == SecondScale::none) return fmt::format("{} / {}", m, f.largest);
  return fmt::format("{} / {}, and {} brought in", m, f.largest, number(static_cast<double>(report.second)));
}

std::string table_of(std::string_view title, const std::vector<BlockOutcome>& outcomes, const Report& report) {
  if (outcomes.size() < 2) return "";
  std::string text = fmt::format("\n{}\n  {:<8} {:<12} {:>7} {:>7} {:>11}  {}\n", title, "scale", "", "clipped",
                                 "flushed", "rms lost", "who");
  for (const BlockOutcome& one : outcomes) {
    text += fmt::format("{} {:<8} {:<12} {:>7} {:>7} {:>11}  {}\n", same_bits(one, report.own) ? '>' : ' ',
                        fmt::format("0x{:02x}", one.scale), number(static_cast<double>(one.scale_value)), one.clipped,
                        one.flushed, number(one.rms), fmt::join(one.names, " "));
  }
  return text;
}

std::string element_lines(const Report& report) {
  const BlockFormat& format = report.preset->format;
  std::string text = fmt::format("\n  {:>4} {:>13} {:>12} {:>5} {:<11} {:>10} {:>13}\n", "#", "given", "scaled", "code",
                                 "", "value", "read back");
  for (std::size_t i = 0; i < report.values.size(); ++i) {
    const Element element = element_of(report, i);
    text += fmt::format("  {:>4} {:>13} {:>12} {:>5} {:<11} {:>10} {:>13}  {}\n", i,
                        number(static_cast<double>(report.values[i])),
                        report.block.scale.filled ? "-" : number(static_cast<double>(element.scaled)),
                        bits::code_text(format.element, element.code), bits::field_text(format.element, element.code),
                        number(static_cast<double>(element.value)), number(static_cast<double>(element.read)),
                        fate_of(report, i, element));
  }
  return text;
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json outcomes_json(const std::vector<BlockOutcome>& outcomes, const Report& report) {
  Json list = Json::array();
  for (const BlockOutcome& one : outcomes) {
    Json read = Json::array();
    for (const float value : one.read) read.push_back(finite(static_cast<double>(value)));
    list.push_back({{"names", one.names},
                    {"scale_code", fmt::format("0x{:02x}", one.scale)},
                    {"scale", finite(static_cast<double>(one.scale_value))},
                    {"clipped", one.clipped},
                    {"flushed", one.flushed},
                    {"rms_lost", finite(one.rms)},
                    {"this", same_bits(one, report.own)},
                    {"read", std::move(read)}});
  }
  return list;
}

}  // namespace

std::string block_list() {
  std::string text;
  for (const BlockPreset& preset : block_presets()) {
    text += fmt::format("{:<24} {:<27} {}\n", preset.name, block_summary(preset.format), preset.producer);
    if (!preset.deviation.empty()) text += fmt::format("{:<24} {}\n", "", preset.deviation);
  }
  return text;
}

Result<std::string> block_text(const BlockReportOptions& options) {
  const Result<Report> made = make_report(options);
  if (!made) return tl::unexpected(made.error());
  const Report& report = *made;
  const BlockFormat& format = report.preset->format;
  std::string text = fmt::format("{}: {} ({})\n", report.preset->name, block_summary(format), report.preset->producer);
  if (!report.preset->deviation.empty())
    text += fmt::format("apart from the specification: {}\n", report.preset->deviation);
  const float scale = block_scale_value(format, report.own.scale);
  text += fmt::format("\nscale {} = {}, set by element {} ({}): {}\n", fmt::format("0x{:02x}", report.own.scale),
                      number(static_cast<double>(scale)), report.owner,
                      number(static_cast<double>(report.values[report.owner])), scale_formula(report));
  text += bits::draw_fields(dissect(format.scale, report.own.scale), options.ascii);
  if (format.second != SecondScale::none) {
    text += fmt::format("scale of the tensor {}{}: an element is worth code value x {}\n",
                        number(static_cast<double>(report.second)),
                        options.second ? "" : ", as these values alone would set it",
                        number(static_cast<double>(block_whole(format, scale, report.second))));
  }
  text += element_lines(report);
  text += fmt::format("\n{} of {} elements; {} clipped, {} flushed to 0, rms lost {}; ties go {}\n",
                      report.values.size(), format.block.rows * format.block.columns, report.own.clipped,
                      report.own.flushed, number(report.own.rms), name(format.ties));
  text += table_of("Other rules for the scale", other_rules(report), report);
  text += table_of(fmt::format("What others make of these values with {}", name(format.element)),
                   other_producers(report), report);
  return text;
}

Result<std::string> block_json(const BlockReportOptions& options) {
  const Result<Report> made = make_report(options);
  if (!made) return tl::unexpected(made.error());
  const Report& report = *made;
  const BlockFormat& format = report.preset->format;
  Json json = {
      {"schema", "nanscope.bits.block/1"},
      {"preset", report.preset->name},
      {"producer", report.preset->producer},
      {"deviation", report.preset->deviation},
      {"block", {format.block.rows, format.block.columns}},
      {"element", name(format.element)},
      {"rule", name(format.rule)},
      {"ties", name(format.ties)},
      {"scale",
       {{"format", name(format.scale)},
        {"code", bits::code_text(format.scale, report.own.scale)},
        {"bits", bits::field_text(format.scale, report.own.scale)},
        {"value", finite(static_cast<double>(report.own.scale_value))},
        {"set_by", report.owner}}},
      {"second", format.second == SecondScale::none ? Json(nullptr) : finite(static_cast<double>(report.second))},
      {"clipped", report.own.clipped},
      {"flushed", report.own.flushed},
      {"rms_lost", finite(report.own.rms)},
      {"elements", Json::array()}};
  for (std::size_t i = 0; i < report.values.size(); ++i) {
    const Element element = element_of(report, i);
    json["elements"].push_back({{"given", finite(static_cast<double>(report.values[i]))},
                                {"scaled", finite(static_cast<double>(element.scaled))},
                                {"code", bits::code_text(format.element, element.code)},
                                {"bits", bits::field_text(format.element, element.code)},
                                {"value", finite(static_cast<double>(element.value))},
                                {"read", finite(static_cast<double>(element.read))},
                                {"clipped", element.clipped},
                                {"flushed", element.flushed}});
  }
  json["rules"] = outcomes_json(other_rules(report), report);
  json["producers"] = outcomes_json(other_producers(report), report);
  return json.dump(1) + "\n";
}

}  // namespace nanscope
