/// Codes and their scales: quantised activations, stores into a KV cache, and what is read back of either.
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

/// OpForm::variant of a read. Of kScaleOfRank `shift` is the rank whose scale it is.
enum Source : int { kStored = 0, kFresh = 1, kScaleOfRank = 2 };

constexpr std::array kFlavours = {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz};

bool is_flavour(Format format) { return std::find(kFlavours.begin(), kFlavours.end(), format) != kFlavours.end(); }

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

/// What a store under a scheme says of its codes besides their format.
struct SchemeForm {
  bool stated = false;
  std::optional<std::int64_t> low, high;
  std::optional<ScaleGrid> zeros;
  bool zero_is_value = false;
  bool unrounded = false;

  double zero(std::int64_t row, std::int64_t channel) const { return zeros ? zeros->at(row, channel) : 0; }
  double within(double quotient) const {
    return high ? std::clamp(quotient, static_cast<double>(*low), static_cast<double>(*high)) : quotient;
  }
};

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

/// One code of `scaled` values in `as`, as a reader of `format` sees it, and how far the neighbouring codes are.
struct Coded {
  double value = 0;
  double bound = 0;
};

/// `lowest`: of the codes, where it is not the negative of the largest.
Coded coded(double scaled, double off, Format as, Format format, std::optional<double> lowest = {}) {
  const FormatInfo& row = info(as);
  const double largest = double{row.max_finite};
  const double least_code = lowest.value_or(-largest);
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
  static constexpr std::int64_t kRowsCompared = 64;
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

}  // namespace

std::vector<OpForm> forms_quantise(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms{OpForm{}};
  forms.front().text = "x over its scale, rounded";
  if (scale_of_quantise(values.run(), op) != nullptr || !out.known || out.tokens == 0) return forms;
  // Without a scale in the dump, the one that the codes show.
  const Tensor* x = values.run().input(op, "x");
  if (x == nullptr || !x->known || x->count() != out.count()) return forms;
  const auto source = values.run().values(*x);
  const auto codes = values.run().values(out);
  const auto scale = source && codes ? implied_scale(*source, *codes, out.format) : std::nullopt;
  if (scale) forms.push_back({.text = "x over the scale that the codes show", .number = *scale});
  return forms;
}

std::vector<OpForm> faults_quantise(Values& values, const Op& op, const Tensor& out) {
  return reading_faults(out.format, scale_of_quantise(values.run(), op) != nullptr, "codes", "written");
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
  if (scale == nullptr && form.number == 0) {
    why = "its scale was not dumped";
    return false;
  }
  into.resize(count, x.columns);
  const Format as = form.as.value_or(out.format);
  const double u = in->known ? roundoff(values.precision(*in)) : 0;
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const auto at = static_cast<std::size_t>(t * x.columns + c);
      const double s = powered(grid ? grid->at(first + t, c) : form.number, form.scale_power);
      const double scaled = double{x.row(t)[c]} / s;
      // What was cast may have been wider than what was dumped of it.
      const double off =
          (u * std::abs(double{x.row(t)[c]}) + double{x.off(t, c)}) / std::abs(s) + 4 * kF32 * std::abs(scaled);
      const Coded code = coded(scaled, off, as, out.format);
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

namespace {

/// Which row of the step a row of codes holds, where scales are of the step's rows.
class StepRows {
 public:
  StepRows(Values& values, const Tensor& codes, const RowScale& scale)
      : mapped_(scale.by_step_row && (codes.axis == Axis::slots || codes.axis == Axis::keys)) {
    if (mapped_) slots_ = own_slots(values, codes);
  }

  /// Nothing for a row that another step stored, whose scale it is not.
  std::optional<std::int64_t> of(std::int64_t row) const {
    if (!mapped_) return row;
    const auto found = slots_.find(row);
    return found == slots_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  bool mapped_;
  std::unordered_map<std::int64_t, std::int64_t> slots_;
};

/// code x scale of some rows of `codes`, for the rows of an output.
bool read_back(Values& values, const Tensor& codes, const RowScale& scale, const Tensor& out, const OpForm& form,
               std::int64_t first, std::int64_t count, Prediction& into) {
  const Result<TensorData> data = values.run().read(codes, first, count);
  if (!data || (out.known && data->channels != out.channels)) return false;
  into.resize(count, data->channels);
  const Format as = form.as.value_or(codes.format);
  const double u = roundoff(values.precision(out));
  const Format kept = stored_format(values, out);
  const StepRows rows(values, codes, scale);
  for (std::int64_t t = 0; t < count; ++t) {
    const auto step_row = rows.of(first + t);
    for (std::int64_t c = 0; c < data->channels; ++c) {
      const auto at = static_cast<std::size_t>(t * data->channels + c);
      if (!step_row) {
        into.bound[at] = -1;
        continue;
      }
      const double code = double{decode(as, data->code(t, c))};
      const double value = code * powered(scale.at(first + t, *step_row, c), form.scale_power);
      into.value[at] = static_cast<float>(value);
      into.bound[at] = static_cast<float>(1.01 * u * std::abs(value) + 4 * kF32 * std::abs(value) + least_error(kept));
    }
  }
  return true;
}

}  // namespace

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
  into.resize(count, out.channels);
  std::fill(into.bound.begin(), into.bound.end(), -1.0F);
  const Format as = form.as.value_or(out.format);
  const double u = in->known ? roundoff(values.precision(*in)) : 0;
  const Format kept = stored_format(values, out);
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
        into.bound[at] = static_cast<float>(
            same ? 0 : own + 1.01 * roundoff(values.precision(out)) * std::abs(value) + least_error(kept));
        continue;
      }
      const double s = powered(scale.at(first + t, row, c), form.scale_power);
      const double zero = scheme.zero(from, c);
      const double quotient = scheme.zero_is_value ? (value - zero) / s : value / s + zero;
      const double off = own / std::abs(s) + 4 * kF32 * (std::abs(value / s) + std::abs(zero)) +
                         (scheme.unrounded ? std::ldexp(std::abs(quotient), -11) : 0);
      const Coded code = coded(scheme.within(quotient), off, as, out.format, scheme.low);
      into.value[at] = static_cast<float>(code.value);
      // A scale that was rounded to 0 says nothing of the codes beneath it.
      const bool told = std::isfinite(code.bound) && (s != 0 || !scheme.stated);
      into.bound[at] = told ? static_cast<float>(code.bound) : -1.0F;
    }
  }
  return true;
}

// kv_read: what attention reads of slots

std::vector<OpForm> forms_kv_read(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = {{.text = "the slot's code times its scale"}};
  // A prefill may go over its own keys and values before they are quantised.
  const Tensor* own = values.run().input(op, out.role.substr(0, 1));
  const Step* step = values.run().step(op.step);
  if (own != nullptr && step != nullptr && step->kind != StepKind::decode)
    forms.push_back({.text = "what was to be stored, before it was quantised", .variant = kFresh});
  return forms;
}

namespace {

/// The rows of this step before they were stored.
bool read_fresh(Values& values, const Op& op, const Tensor& out, const Span& span, std::int64_t first,
                std::int64_t count, Prediction& into) {
  const Step* step = values.run().step(out.step);
  const Tensor* own = values.run().input(op, out.role.substr(0, 1));
  const auto block = own != nullptr ? values.all(*own) : nullptr;
  if (!block || block->columns != out.channels) return false;
  into.resize(count, out.channels);
  std::fill(into.bound.begin(), into.bound.end(), -1.0F);
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t position = values.facts().cache.key_row(out, *step, span, first + t, op.layer).position;
    const std::int64_t row = span.row + position - span.first_token;
    if (position < span.first_token || position >= span.context || row >= block->rows) continue;
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      into.value[at] = block->row(row)[c];
      into.bound[at] = static_cast<float>(double{block->off(row, c)} + 1.01 * roundoff(values.precision(out)) *
                                                                           std::abs(double{block->row(row)[c]}));
    }
  }
  return true;
}

/// Whose keys or values were read.
const Span& own_span(const Step& step, const Tensor& out) {
  const bool stated = out.sequence >= 0 && out.sequence < std::ssize(step.spans);
  return step.spans[stated ? static_cast<std::size_t>(out.sequence) : 0];
}

/// The cache that a read takes, or the codes that were stored in a recording.
const Tensor* cache_of(Values& values, const Op& op, const Tensor& out) {
  const std::string letter = out.role.substr(0, 1);
  const Tensor* cache = values.run().input(op, letter + "_cache");
  if (cache != nullptr) return cache;
  const Op* store = values.run().find_op(op.step, op.layer, "kv_store");
  return store != nullptr ? values.run().output(*store, letter + "_codes") : nullptr;
}

}  // namespace

std::vector<OpForm> faults_kv_read(Values& values, const Op& op, const Tensor& out) {
  const Tensor* cache = cache_of(values, op, out);
  if (cache == nullptr || !holds_codes(cache->format)) return {};
  std::vector<OpForm> forms = reading_faults(cache->format, true, "codes", "read");
  const Step* step = values.run().step(op.step);
  if (step == nullptr) return forms;
  for (const Step* other : values.recomputer().ranks().others(*step)) {
    forms.push_back({.text = fmt::format("the scale of rank {}", other->rank),
                     .variant = kScaleOfRank,
                     .shift = static_cast<int>(other->rank),
                     .fault = true,
                     .about = About::scale});
  }
  return forms;
}

namespace {

/// What the ledger says of the store of some codes, or of the same store on another rank.
const ScaleRow* ledger_of(Values& values, const Tensor& codes, const OpForm& form, const std::string& letter) {
  RunView& run = values.run();
  const Op* store = run.maker(codes);
  const Step* step = run.step(codes.step);
  if (form.variant == kScaleOfRank && store != nullptr && step != nullptr) {
    const Op* own = store;
    store = nullptr;
    for (const Step* other : values.recomputer().ranks().others(*step)) {
      if (other->rank == form.shift) store = run.find_op(other->id, own->layer, own->name);
    }
  }
  return store != nullptr ? values.facts().scale_of(store->id, letter) : nullptr;
}

}  // namespace

namespace {

/// Rows that were stored under a scheme, read back: of those that are kept beside codes the ones that have none yet.
class SchemeReads {
 public:
  SchemeReads(Values& values, const Op& read, const std::string& letter) : values_(values), letter_(letter) {
    const auto* how = read.get<KvReadAttributes>();
    if (how == nullptr || !how->scheme_k) return;
    stated_ = true;
    from_ = letter == "k" ? how->coded_from_k : how->coded_from_v;
    end_ = letter == "k" ? how->coded_end_k : how->coded_end_v;
  }

  bool stated() const { return stated_; }

  void predict(const StoredRow& stored, std::int64_t position, std::int64_t at, const OpForm& form, const Tensor& out,
               Prediction& into) {
    if (from_ && end_ && position >= *from_ && position < *end_) return;  // quantized by another op, of another step
    const Result<TensorData> data = values_.run().read(*stored.codes, stored.row, 1);
    const Of& of = scales_of(*stored.codes);
    if (!data || data->channels != out.channels || (holds_codes(stored.codes->format) && !of.scale.grid)) return;
    const double u = 1.01 * roundoff(values_.precision(out)) + 4 * kF32;
    const double least = least_error(stored_format(values_, out));
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto index = static_cast<std::size_t>(at * out.channels + c);
      const double code = double{decode(form.as.value_or(stored.codes->format), data->code(0, c))};
      const double s = of.scale.grid ? powered(of.scale.at(stored.row, stored.row, c), form.scale_power) : 1;
      const double zero = of.form.zero(stored.row, c);
      const double value = of.form.zero_is_value ? code * s + zero : (code - zero) * s;
      const double parts = std::abs(code * s) + std::abs(of.form.zero_is_value ? zero : zero * s);
      into.value[index] = static_cast<float>(value);
      const double bound = u * parts + least;
      into.bound[index] = std::isfinite(bound) ? static_cast<float>(bound) : -1.0F;
    }
  }

 private:
  struct Of {
    RowScale scale;
    SchemeForm form;
  };

  const Of& scales_of(const Tensor& codes) {
    const auto [known, is_new] = of_.try_emplace(codes.id);
    const Op* store = is_new ? values_.run().maker(codes) : nullptr;
    if (store != nullptr && holds_codes(codes.format))
      known->second = {row_scale(values_, *store, letter_ + "_scale", codes),
                       scheme_form(values_.run(), *store, codes, letter_)};
    return known->second;
  }

  Values& values_;
  std::string letter_;
  bool stated_ = false;
  std::optional<std::int64_t> from_, end_;
  std::unordered_map<TensorId, Of> of_;
};

}  // namespace

std::int64_t cost_kv_read(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 2; }

bool predict_kv_read(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                     std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const std::string letter = out.role.substr(0, 1);
  const Tensor* cache = run.input(op, letter + "_cache");
  const Step* step = run.step(out.step);
  if (step == nullptr || step->spans.empty()) return false;
  const Span& reader = own_span(*step, out);
  if (form.variant == kFresh) return read_fresh(values, op, out, reader, first, count, into);
  if (cache != nullptr && !cache->known) {
    why = "the cache was not dumped";
    return false;
  }
  const RowScale whole = cache != nullptr ? row_scale(values, op, letter + "_scale", *cache) : RowScale{};
  const bool codes = cache != nullptr && holds_codes(cache->format);
  if (codes && !whole.grid) {
    why = "the scale of the cache was not dumped";
    return false;
  }
  if (cache != nullptr && cache->axis == out.axis && cache->tokens == out.tokens) {
    return read_back(values, *cache, whole, out, form, first, count, into);
  }
  into.resize(count, out.channels);
  const Format kept = stored_format(values, out);
  std::fill(into.bound.begin(), into.bound.end(), -1.0F);
  const auto rows = cache != nullptr ? std::optional<StepRows>(std::in_place, values, *cache, whole) : std::nullopt;
  SchemeReads reads(values, op, letter);
  for (std::int64_t t = 0; t < count; ++t) {
    const KeyRow key = values.facts().cache.key_row(out, *step, reader, first + t, op.layer);
    const Tensor* from = nullptr;
    std::int64_t row = 0;
    std::int64_t step_row = 0;
    double scale = 1;
    if (cache != nullptr) {
      const auto slot = values.facts().cache.row_of(*cache, *step, reader, key.position);
      const auto own = slot ? rows->of(*slot) : std::nullopt;
      if (!own) continue;
      step_row = *own;
      from = cache;
      row = *slot;
    } else if (key.writer != nullptr && key.slot) {
      const auto stored = values.facts().cache.stored_row(*key.writer, *key.slot, op.layer, letter);
      if (stored && reads.stated()) {
        reads.predict(*stored, key.position, t, form, out, into);
        continue;
      }
      const ScaleRow* ledger = stored ? ledger_of(values, *stored->codes, form, letter) : nullptr;
      if (!stored || ledger == nullptr || values.facts().scale_by_row(*ledger)) continue;
      from = stored->codes;
      row = stored->row;
      scale = ledger->scale;
    }
    if (from == nullptr) continue;
    const Result<TensorData> data = run.read(*from, row, 1);
    if (!data || data->channels != out.channels) continue;
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      const double s = cache != nullptr ? whole.at(row, step_row, c) : scale;
      const double value =
          double{decode(form.as.value_or(from->format), data->code(0, c))} * powered(s, form.scale_power);
      into.value[at] = static_cast<float>(value);
      into.bound[at] =
          static_cast<float>((1.01 * roundoff(values.precision(out)) + 4 * kF32) * std::abs(value) + least_error(kept));
    }
  }
  return true;
}

}  // namespace nanscope
