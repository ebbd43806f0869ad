/// Codes and their scales: quantised activations, and stores into a KV cache.
#include "instrument/recompute/scaled.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "core/numbers/codec.h"
#include "core/run/ranks.h"
#include "core/run/scales.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

constexpr std::int64_t kRowsCompared = 64;
constexpr std::array kFlavours = {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz};

bool is_flavour(Format format) { return std::find(kFlavours.begin(), kFlavours.end(), format) != kFlavours.end(); }

}  // namespace

std::vector<OpForm> reading_faults(Format own, bool scaled, std::string_view what, std::string_view verb) {
  std::vector<OpForm> forms;
  const auto add = [&](int power, std::optional<Format> as) {
    OpForm form;
    form.scale_power = power;
    form.as = as;
    form.fault = true;
    form.about = as ? About::format : About::scale;
    form.text = as ? std::string(what) + ' ' + std::string(verb) + " as " + std::string(name(*as))
                   : std::string("the scale ") + std::string(power_text(power));
    if (as && power != 1) form.text += ", the scale " + std::string(power_text(power));
    forms.push_back(std::move(form));
  };
  for (const int power : {0, 2, -1}) {
    if (scaled) add(power, std::nullopt);
  }
  for (const Format as : kFlavours) {
    if (is_flavour(own) && as != own) add(1, as);
  }
  return forms;
}

std::optional<ScaleGrid> zero_points(RunView& run, const Op& op, std::string_view role, const Tensor& codes) {
  const Tensor* zeros = run.input(op, role);
  return zeros != nullptr && zeros->known && info(codes.format).exponent_bits == 0 ? ScaleGrid::of(run, *zeros, codes)
                                                                                   : std::nullopt;
}

SchemeForm scheme_form(RunView& run, const Op& store, const Tensor& codes, const std::string& letter) {
  SchemeForm form;
  const auto* how = store.get<KvStoreAttributes>();
  const bool is_key = letter == "k";
  if (how == nullptr || !(is_key ? how->scheme_k : how->scheme_v)) return form;
  form.stated = true;
  form.low = is_key ? how->low_k : how->low_v;
  form.high = is_key ? how->high_k : how->high_v;
  if (!form.low || !form.high || *form.low > *form.high) form.low = form.high = std::nullopt;
  form.zero_is_value = (is_key ? how->zero_k : how->zero_v) == "value";
  form.unrounded = (is_key ? how->unrounded_k : how->unrounded_v).value_or(false);
  if (const Tensor* zeros = run.output(store, letter + "_zeros")) form.zeros = ScaleGrid::of(run, *zeros, codes);
  return form;
}

namespace {

/// One code of `scaled` values in `as`, as a reader of `format` sees it, and how far the neighbouring codes are.
struct Coded {
  double value = 0;
  double bound = 0;
};

/// OpForm::variant of a cast.
enum Casting : int { kToNearest = 0, kTowardsZero = 1, kImpliedScale = 2 };

/// The code of the largest magnitude that is not above that of `scaled`.
double truncated(double scaled, Format format, double least_code) {
  const double within = std::clamp(scaled, least_code, double{info(format).max_finite});
  if (info(format).exponent_bits == 0) return std::trunc(within);
  const std::uint32_t code = encode(format, static_cast<float>(std::abs(within)), Overflow::saturate);
  const bool above = double{decode(format, code)} > std::abs(within);  // codes of magnitudes ascend
  return std::copysign(double{decode(format, above ? code - 1 : code)}, within);
}

/// A cast that cuts the digits off, as that of vLLM 0.32's KV cache on a CPU does. Where an error of the value leaves
/// two codes open, the bound is what lies between them.
Coded coded_towards_zero(double scaled, double off, Format format, double least_code) {
  const double value = truncated(scaled, format, least_code);
  const double up = std::abs(truncated(scaled + off, format, least_code) - value);
  const double down = std::abs(truncated(scaled - off, format, least_code) - value);
  return {value, std::max(up, down)};
}

OpForm cast_towards_zero() { return {.text = "the cast rounds towards zero", .variant = kTowardsZero, .fault = true}; }

/// `least_code`: the lowest, which is -largest but for integers around a zero point.
Coded coded(double scaled, double off, Format as, Format format, double least_code, int rounding) {
  if (rounding == kTowardsZero) return coded_towards_zero(scaled, off, format, least_code);
  const FormatInfo& row = info(as);
  const double largest = double{row.max_finite};
  const double wanted = std::clamp(scaled, least_code, largest);
  const double relative = row.exponent_bits > 0 ? std::ldexp(1.0, -row.mantissa_bits - 1) : 0;
  const double least = row.exponent_bits > 0 ? least_error(as) : 0.5;
  // What lies beyond the largest code is the largest code, however uncertain it is out there.
  const double reach = std::max(std::abs(std::clamp(scaled + off, least_code, largest) - wanted),
                                std::abs(std::clamp(scaled - off, least_code, largest) - wanted));
  if (as == format) return {wanted, 1.02 * (relative * std::abs(wanted) + least) + reach};
  const std::uint32_t code = encode(as, static_cast<float>(wanted), Overflow::saturate);
  const double value = double{decode(format, code)};
  const double up = double{decode(format, code + 1)};
  const double gap = std::isfinite(up - value) ? std::abs(up - value) : std::abs(value) * relative * 2;
  return {value, 1.02 * gap};
}

}  // namespace

namespace {

/// Whether codes show, row by row, the signs of what the step stored: a cache that holds the step's rows in their
/// order.
bool holds_rows_of_step(Values& values, const Tensor& pool) {
  const Op* store = values.run().maker(pool);
  const Tensor* in = store != nullptr ? values.run().input(*store, pool.role.substr(0, 1)) : nullptr;
  if (in == nullptr || in->tokens != pool.tokens || in->channels != pool.channels) return false;
  for (std::int64_t row = 0; row < std::min(pool.tokens, kRowsCompared); ++row) {
    const auto codes = values.run().row_values(pool, row);
    const auto from = values.rows(*in, row, 1);
    if (!codes || !from) return false;
    std::size_t compared = 0;
    std::size_t alike = 0;
    for (std::size_t c = 0; c < codes->size(); ++c) {
      if ((*codes)[c] == 0 || from->value[c] == 0) continue;
      ++compared;
      alike += std::signbit((*codes)[c]) == std::signbit(from->value[c]) ? 1 : 0;
    }
    if (10 * alike < 9 * compared) return false;
  }
  return true;
}

}  // namespace

std::unordered_map<std::int64_t, std::int64_t> own_slots(Values& values, const Tensor& pool) {
  std::unordered_map<std::int64_t, std::int64_t> rows;
  const Step* step = values.run().step(pool.step);
  if (step == nullptr) return rows;
  for (const Span& span : step->spans) {
    for (std::int64_t at = 0; at < span.rows; ++at) {
      const auto slot = values.facts().cache.row_of(pool, *step, span, span.first_token + at);
      if (slot) rows.emplace(*slot, span.row + at);
    }
  }
  if (rows.empty() && pool.tokens == step->rows && holds_rows_of_step(values, pool)) {
    for (std::int64_t row = 0; row < pool.tokens; ++row) rows.emplace(row, row);
  }
  return rows;
}

RowScale row_scale(Values& values, const Op& op, std::string_view role, const Tensor& codes) {
  RowScale out;
  RunView& run = values.run();
  const std::string letter(role.substr(0, 1));
  if (const Tensor* scale = run.input(op, role)) {
    out.grid = ScaleGrid::of(run, *scale, codes);
    const Step* step = run.step(codes.step);
    if (!out.grid && step != nullptr) {
      Tensor fresh = codes;
      fresh.tokens = step->rows;
      out.grid = ScaleGrid::of(run, *scale, fresh);
      out.by_step_row = true;
    }
  } else if (const Tensor* chosen = run.output(op, role)) {
    out.grid = ScaleGrid::of(run, *chosen, codes);
  } else if (const Tensor* made = run.output(op, letter + "_scales")) {
    out.grid = ScaleGrid::of(run, *made, codes);
  } else if (const ScaleRow* row = values.facts().scale_of(op.id, letter);
             row != nullptr && !values.facts().scale_by_row(*row)) {
    out.grid = ScaleGrid::uniform(row->scale);
  }
  return out;
}

std::optional<double> implied_scale(std::span<const float> source, std::span<const float> codes, Format format) {
  const FormatInfo& row = info(format);
  std::vector<double> ratios;
  const double smallest = row.exponent_bits > 0 ? double{row.min_normal} : 1;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const double code = std::abs(double{codes[i]});
    if (!(code < double{row.max_finite}) || !(code >= smallest) || !std::isfinite(source[i]) || source[i] == 0)
      continue;
    ratios.push_back(double{source[i]} / double{codes[i]});
  }
  if (ratios.size() < 8) return std::nullopt;
  auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

// quantise: x / scale -> code

namespace {

/// Stated as an input in dumps; a quantization that chose it puts it out beside its codes.
const Tensor* scale_of_quantise(RunView& run, const Op& op) {
  const Tensor* given = run.input(op, "scale");
  return given != nullptr ? given : run.output(op, "scale");
}

/// The scale that the first rows of codes show.
std::optional<double> shown_scale(Values& values, const Op& op, const Tensor& out) {
  const Tensor* x = values.run().input(op, "x");
  if (x == nullptr || !x->known || x->count() != out.count() || x->channels != out.channels) return std::nullopt;
  const std::int64_t rows = std::min(out.tokens, kRowsCompared);
  const auto source = values.rows(*x, 0, rows);
  const auto codes = values.rows(out, 0, rows);
  return source && codes ? implied_scale(source->value, codes->value, out.format) : std::nullopt;
}

}  // namespace

std::vector<OpForm> forms_quantise(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms{OpForm{}};
  forms.front().text = "x over its scale, rounded";
  if (scale_of_quantise(values.run(), op) != nullptr || !out.known || out.tokens == 0) return forms;
  // Without a scale in the dump, the one that the codes show: of each tensor its own.
  if (shown_scale(values, op, out))
    forms.push_back({.text = "x over the scale that the codes show", .variant = kImpliedScale});
  return forms;
}

std::vector<OpForm> faults_quantise(Values& values, const Op& op, const Tensor& out) {
  auto forms = reading_faults(out.format, scale_of_quantise(values.run(), op) != nullptr, "codes", "written");
  forms.push_back(cast_towards_zero());
  return forms;
}

std::int64_t cost_quantise(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 4; }

bool predict_quantise(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                      std::int64_t count, Prediction& into, std::string& why) {
  Block x;
  const Tensor* in = values.run().input(op, "x");
  if (in == nullptr || !input_rows(values, op, "x", out, first, count, x, why)) return false;
  const Tensor* scale = scale_of_quantise(values.run(), op);
  const auto grid = scale != nullptr ? ScaleGrid::of(values.run(), *scale, out) : std::nullopt;
  if (scale != nullptr && !grid) {
    why = "the shape of its scale fits no grid";
    return false;
  }
  const auto shown = form.variant == kImpliedScale ? shown_scale(values, op, out) : std::nullopt;
  if (scale == nullptr && !shown) {
    why = "its scale was not dumped";
    return false;
  }
  into.resize(count, x.columns);
  const Format as = form.as.value_or(out.format);
  const double u = in->known ? roundoff(values.precision(*in)) : 0;
  const auto zeros = zero_points(values.run(), op, "zero_point", out);
  // Integers around a zero point use the lowest code, too; symmetric ones do not.
  const double lowest = -double{info(as).max_finite} - (zeros ? 1 : 0);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const auto at = static_cast<std::size_t>(t * x.columns + c);
      const double s = powered(grid ? grid->at(first + t, c) : *shown, form.scale_power);
      const double scaled = double{x.row(t)[c]} / s;
      // What was cast may have been wider than what was dumped of it.
      const double off =
          (u * std::abs(double{x.row(t)[c]}) + double{x.off(t, c)}) / std::abs(s) + 4 * kF32 * std::abs(scaled);
      const Coded code =
          coded(scaled + (zeros ? zeros->at(first + t, c) : 0), off, as, out.format, lowest, form.variant);
      into.value[at] = static_cast<float>(code.value);
      into.bound[at] = std::isfinite(code.bound) ? static_cast<float>(code.bound) : -1.0F;
    }
  }
  return true;
}

// dequantise: code x scale

std::vector<OpForm> forms_dequantise(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = "the code times its scale";
  return forms;
}

std::vector<OpForm> faults_dequantise(Values& values, const Op& op, const Tensor&) {
  const Tensor* codes = values.run().input(op, "codes");
  return reading_faults(codes != nullptr ? codes->format : Format::f32, values.run().input(op, "scale") != nullptr,
                        "codes", "read");
}

std::int64_t cost_dequantise(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 2; }

StepRows::StepRows(Values& values, const Tensor& codes, const RowScale& scale)
    : mapped_(scale.by_step_row && (codes.axis == Axis::slots || codes.axis == Axis::keys)) {
  if (mapped_) slots_ = own_slots(values, codes);
}

std::optional<std::int64_t> StepRows::of(std::int64_t row) const {
  if (!mapped_) return row;
  const auto found = slots_.find(row);
  return found == slots_.end() ? std::nullopt : std::optional(found->second);
}

bool read_back(Values& values, const Tensor& codes, const RowScale& scale, const Tensor& out, const OpForm& form,
               std::int64_t first, std::int64_t count, Prediction& into) {
  const Fact<TensorData> data = values.run().read(codes, first, count);
  if (!data || (out.known && data->channels != out.channels)) return false;
  into.resize(count, data->channels);
  const std::vector<float> read = data->values_as(form.as.value_or(codes.format));
  const double u = roundoff(values.precision(out));
  const double least = least_error(stored_format(values, out));
  const StepRows rows(values, codes, scale);
  for (std::int64_t t = 0; t < count; ++t) {
    const auto step_row = rows.of(first + t);
    for (std::int64_t c = 0; c < data->channels; ++c) {
      const auto at = static_cast<std::size_t>(t * data->channels + c);
      if (!step_row) {
        into.bound[at] = -1;
        continue;
      }
      const double value = double{read[at]} * powered(scale.at(first + t, *step_row, c), form.scale_power);
      into.value[at] = static_cast<float>(value);
      into.bound[at] = static_cast<float>(1.01 * u * std::abs(value) + 4 * kF32 * std::abs(value) + least);
    }
  }
  return true;
}

bool predict_dequantise(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                        std::int64_t count, Prediction& into, std::string& why) {
  const Tensor* codes = values.run().input(op, "codes");
  if (codes == nullptr || !codes->known || codes->tokens != out.tokens || !holds_codes(codes->format)) {
    why = "its codes were not dumped";
    return false;
  }
  const RowScale scale = row_scale(values, op, "scale", *codes);
  if (!scale.grid) {
    why = "its scale was not dumped";
    return false;
  }
  return read_back(values, *codes, scale, out, form, first, count, into);
}

// kv_store: rows into slots, cast or as they are

std::vector<OpForm> forms_kv_store(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = holds_codes(out.format) ? "its row over the scale, rounded" : "its row";
  return forms;
}

std::vector<OpForm> faults_kv_store(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  if (holds_codes(out.format)) {
    const std::string role = out.role.substr(0, 1) + "_scale";
    const bool scaled =
        values.run().input(op, role) != nullptr || values.facts().scale_of(op.id, out.role.substr(0, 1)) != nullptr;
    forms = reading_faults(out.format, scaled, "codes", "written");
    forms.push_back(cast_towards_zero());
  }
  const std::string other = out.role.front() == 'k' ? "v" : "k";
  if (const TensorId id = op.input(other); id != 0) {
    forms.push_back({.text = out.role.front() == 'k' ? "the values stored in the place of the keys"
                                                     : "the keys stored in the place of the values",
                     .other = id,
                     .fault = true});
  }
  const Step* step = values.run().step(out.step);
  for (const int shift : {-1, 1}) {
    if (step == nullptr || !step->placed) break;
    forms.push_back({.text = "rows stored one slot off", .shift = shift, .fault = true});
  }
  return forms;
}

std::int64_t cost_kv_store(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 4; }

bool predict_kv_store(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                      std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const std::string letter = out.role.substr(0, 1);
  const Tensor* in = form.other != 0 ? run.tensor(form.other) : run.input(op, letter);
  if (in == nullptr || !values.available(*in)) {
    why = "what it stores was not dumped";
    return false;
  }
  if (out.role.ends_with("_scales") || out.role.ends_with("_zeros")) {
    why = "how a scheme chooses scales is not computed again";
    return false;
  }
  const bool codes = holds_codes(out.format);
  const RowScale scale = codes ? row_scale(values, op, letter + "_scale", out) : RowScale{};
  if (codes && !scale.grid) {
    why = "its scale was not dumped";
    return false;
  }
  const bool pool = out.axis == Axis::slots || out.axis == Axis::keys;
  const auto slots = pool ? own_slots(values, out) : std::unordered_map<std::int64_t, std::int64_t>{};
  into.resize(count, out.channels, -1.0F);
  const Format as = form.as.value_or(out.format);
  const double u = in->known ? roundoff(values.precision(*in)) : 0;
  const double stored = 1.01 * roundoff(values.precision(out));
  const double least = least_error(stored_format(values, out));
  const SchemeForm scheme = scheme_form(run, op, out, letter);
  for (std::int64_t t = 0; t < count; ++t) {
    std::int64_t from = first + t;
    if (pool) {
      const auto slot = slots.find(first + t + form.shift);
      if (slot == slots.end()) continue;
      from = slot->second;
    }
    const auto row = pool ? from : run.same_row(out, from, *in).value_or(from);
    if (row < 0 || row >= in->tokens) continue;
    const auto x = values.rows(*in, row, 1);
    if (!x || x->columns != out.channels) {
      why = "what it stores has another width";
      return false;
    }
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      const double value = double{x->value[static_cast<std::size_t>(c)]};
      const double own = u * std::abs(value) + double{x->off(0, c)};
      if (!codes) {
        into.value[at] = static_cast<float>(value);
        const bool same = in->known && in->format == out.format;
        into.bound[at] = static_cast<float>(same ? 0 : own + stored * std::abs(value) + least);
        continue;
      }
      const double s = powered(scale.at(first + t, row, c), form.scale_power);
      const double zero = scheme.zero(from, c);
      const double quotient = scheme.zero_is_value ? (value - zero) / s : value / s + zero;
      const double off = own / std::abs(s) + 4 * kF32 * (std::abs(value / s) + std::abs(zero)) +
                         (scheme.unrounded ? std::ldexp(std::abs(quotient), -11) : 0);
      const double lowest = scheme.low ? static_cast<double>(*scheme.low) : -double{info(as).max_finite};
      const Coded code = coded(scheme.within(quotient), off, as, out.format, lowest, form.variant);
      into.value[at] = static_cast<float>(code.value);
      // A scale that was rounded to 0 says nothing of the codes beneath it.
      const bool told = std::isfinite(code.bound) && (s != 0 || !scheme.stated);
      into.bound[at] = told ? static_cast<float>(code.bound) : -1.0F;
    }
  }
  return true;
}

}  // namespace nanscope
