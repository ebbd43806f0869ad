#include "instrument/diagnosis/provenance/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/numbers/codec.h"
#include "core/run/scale_grid.h"
#include "core/run/scales.h"

namespace nanscope {
namespace {

/// The element of a tensor of scales that an element of a matrix has. Of a pool, scales of tokens cannot be told from
/// those of other things by their number: only what can be nothing else is taken.
std::optional<Element> element_of(Facts& facts, const Tensor& scales, const Tensor& scaled, std::int64_t row,
                                  std::int64_t channel) {
  const std::int64_t count = scales.count();
  const bool plain = count == 1 || count == scaled.tokens || count == scaled.heads || count == scaled.channels;
  if (scaled.axis == Axis::slots && !plain) return std::nullopt;
  const std::optional<ScaleGrid> grid = ScaleGrid::of(facts.run, scales, scaled);
  if (!grid) return std::nullopt;
  const std::int64_t down = grid->rows_a_cell();
  const std::int64_t across = grid->channels_a_cell();
  const std::int64_t columns = across > 0 ? (scaled.channels + across - 1) / across : 1;
  const std::int64_t at = (down > 0 ? row / down * columns : 0) + (across > 0 ? channel / across : 0);
  if (at < 0 || at >= count) return std::nullopt;
  return Element{scales.id, at / scales.channels, at % scales.channels};
}

void add_scale(const UsedScale& scale, Explanation& found) {
  found.numbers.push_back({"scale", scale.value});
  if (scale.ledger != nullptr) found.numbers.push_back({"headroom", scale.ledger->headroom});
}

void go_on_at(const UsedScale& scale, Explanation& found) {
  found.scale = scale.ledger;
  found.element = scale.parameter;
  found.danger = true;
}

/// The flavour of fp8 in which a code that is a number in its own is none.
std::optional<Format> bad_as(Format format, std::uint32_t code) {
  constexpr std::array kFlavours = {Format::e4m3, Format::e4m3fnuz, Format::e5m2, Format::e5m2fnuz};
  if (std::find(kFlavours.begin(), kFlavours.end(), format) == kFlavours.end()) return std::nullopt;
  const auto other = std::find_if(kFlavours.begin(), kFlavours.end(),
                                  [&](Format flavour) { return !std::isfinite(decode(flavour, code)); });
  return other == kFlavours.end() ? std::nullopt : std::optional(*other);
}

std::string plain_text(const Subject& subject) {
  return value_text(subject.facts, subject.tensor, subject.element.row, subject.element.channel);
}

/// What became of a value that is beyond the largest finite one.
std::string_view fate_of(const Subject& subject, double largest) {
  if (subject.bad) return "overflowed";
  return !subject.value || double{std::abs(*subject.value)} == largest ? "clipped" : "stored";
}

}  // namespace

std::optional<UsedScale> used_scale(const Subject& subject, std::string_view role, std::string_view target,
                                    const Tensor& scaled, std::int64_t row, std::int64_t channel) {
  UsedScale used;
  if (const Tensor* scales = subject.facts.run.input(subject.op, role)) {
    used.parameter = element_of(subject.facts, *scales, scaled, row, channel);
    if (!used.parameter) return std::nullopt;
    const std::optional<float> value = value_at(subject.facts, *scales, used.parameter->row, used.parameter->channel);
    if (!value) return std::nullopt;
    used.value = double{*value};
    used.text = fmt::format("{} ({})", to_string(EvidenceValue{used.value}), subject.facts.name_of(*scales));
    return used;
  }
  // Under a scheme scales are an output of the store; where they are several, the ledger tells the largest alone.
  const Tensor* made = target.empty() ? nullptr : subject.facts.run.output(subject.op, std::string(target) + "_scales");
  if (made != nullptr && made->count() > 1) {
    const std::optional<Element> at = element_of(subject.facts, *made, subject.tensor, subject.element.row, channel);
    const auto value = at ? value_at(subject.facts, *made, at->row, at->channel) : std::nullopt;
    if (!value) return std::nullopt;
    used.value = double{*value};
    used.text = fmt::format("scale {}", to_string(EvidenceValue{used.value}));
    return used;
  }
  const std::int64_t width = scaled.width();
  used.ledger = subject.facts.scale_of(subject.op.id, target, width > 0 ? channel / width : -1);
  if (used.ledger == nullptr) return std::nullopt;
  used.value = used.ledger->scale;
  used.text = fmt::format("scale {}", to_string(EvidenceValue{used.value}));
  return used;
}

Explanation explain_stored(const Subject& subject, const Tensor& x, std::int64_t row, std::int64_t channel,
                           const std::optional<UsedScale>& scale) {
  Facts& facts = subject.facts;
  const std::string_view format = name(subject.tensor.format);
  if (bad_channel(facts, x, row, channel, 1)) {
    return follow_element(subject, {"", &x, row}, channel, fmt::format("stored as {}", format));
  }
  Explanation found;
  found.origin = subject.bad;
  found.element = Element{x.id, row, channel};
  if (!x.known) {
    found.text = fmt::format("{}: stored as {}", said_of(facts, x, row, channel), plain_text(subject));
    if (!subject.bad) return found;
    const bool scaled = scale && !scale_complaint(scale->value).empty();
    if (scaled) go_on_at(*scale, found);
    found.text += scaled ? fmt::format("; the scale {} is {}", scale->text, scale_complaint(scale->value))
                         : std::string(kBornBetween);
    return found;
  }
  const double largest = info(subject.tensor.format).max_finite;
  const std::string value = value_text(facts, x, row, channel);
  if (scale) add_scale(*scale, found);
  if (scale && !scale_complaint(scale->value).empty()) {
    go_on_at(*scale, found);
    found.text = fmt::format("{} / {} became {}", value, scale->text, plain_text(subject));
    return found;
  }
  const std::optional<float> source = value_at(facts, x, row, channel);
  const double quotient = double{source.value_or(0)} / (scale ? scale->value : 1);
  const bool beyond = source && std::abs(quotient) > largest;
  const bool headless = scale && scale->ledger != nullptr && scale->ledger->headroom < 1;
  const bool unseen = !source && scale && (subject.bad || headless);
  if (scale && (beyond || unseen)) {
    go_on_at(*scale, found);
    if (source) found.numbers.insert(found.numbers.end(), {{"x", double{*source}}, {"x / scale", quotient}});
    found.numbers.push_back({"largest finite", largest});
    found.text = fmt::format("{} / {}{} is beyond the largest finite {} {:g}: {} as {}", value, scale->text,
                             source ? fmt::format(" = {:.6g}", quotient) : std::string(), format, largest,
                             fate_of(subject, largest), plain_text(subject));
  } else if (beyond && (subject.bad || (subject.value && double{std::abs(*subject.value)} == largest))) {
    found.numbers.insert(found.numbers.end(), {{"x", double{*source}}, {"largest finite", largest}});
    found.text = fmt::format("{} is beyond the largest finite {} {:g}: {} as {}", value, format, largest,
                             fate_of(subject, largest), plain_text(subject));
  } else {
    found.text = fmt::format("{} stored as {}", value, plain_text(subject));
    if (scale && scale->parameter) found.text += fmt::format(" under scale {}", scale->text);
  }
  return found;
}

Explanation explain_read_back(const Subject& subject, const Tensor& codes, std::int64_t row, std::int64_t channel,
                              const std::optional<UsedScale>& scale) {
  Facts& facts = subject.facts;
  Explanation found = follow_element(subject, {"", &codes, row}, channel, "read back");
  if (scale) add_scale(*scale, found);
  const std::optional<float> read = value_at(facts, codes, row, channel);
  if (!codes.known || !read || is_bad(codes, *read) || !scale) return found;
  const std::string code = value_text(facts, codes, row, channel);
  const double product = double{*read} * scale->value;
  if (!subject.bad) {
    found.text = fmt::format("{} times {} is {:.6g}", code, scale->text, product);
    return found;
  }
  const double largest = info(subject.tensor.format).max_finite;
  found.danger = true;
  found.text = fmt::format("the code is healthy, reading it is not: {} times {}", code, scale->text);
  if (std::abs(product) > largest) {
    go_on_at(*scale, found);
    found.text +=
        fmt::format(" = {:.6g} is beyond the largest finite {} {:g}", product, name(subject.tensor.format), largest);
    return found;
  }
  found.text += fmt::format(" became {}", plain_text(subject));
  const std::uint32_t bits = code_at(facts, codes, row, channel).value_or(0);
  if (!scale_complaint(scale->value).empty()) {
    go_on_at(*scale, found);
  } else if (const auto other = bad_as(codes.format, bits)) {
    found.text += fmt::format("; in {} the code is NaN or Inf", name(*other));
  }
  return found;
}

void blame_scale(const Subject& subject, std::initializer_list<std::string_view> roles, const Element& scaled,
                 Explanation& found) {
  const Tensor* tensor = subject.facts.run.tensor(scaled.tensor);
  for (const std::string_view role : roles) {
    if (tensor == nullptr || subject.op.input(role) == 0) continue;
    const auto scale = used_scale(subject, role, {}, *tensor, scaled.row, scaled.channel);
    if (!scale) continue;
    const std::string_view complaint = scale_complaint(scale->value);
    if (complaint.empty()) continue;
    go_on_at(*scale, found);
    found.numbers.push_back({"scale", scale->value});
    found.text += fmt::format("; the scale {} is {}", scale->text, complaint);
    return;
  }
}

}  // namespace nanscope
