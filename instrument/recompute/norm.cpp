/// RMS, layer and l2 norms, over a row or over each head of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/numbers/codec.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"
#include "instrument/recompute/terms.h"
#include "instrument/recompute/variants.h"

namespace nanscope {
namespace {

// BERT: 1e-12, DeBERTa: 1e-7, GLM: 1.5625e-7, Helium: 1e-8. torch's normalize() adds nothing.
constexpr std::array kEps = {1e-5, 1e-6, 1e-12, 1e-7, 1.5625e-7, 1e-8, 0.0};

/// Channels that are normalised together: a head's where the weight has as many, else the row's.
std::int64_t group_width(const Tensor* weight, std::int64_t channels, const OpForm& form) {
  if (form.shift > 0) return form.shift;
  const std::int64_t own = weight != nullptr ? weight->count() : 0;
  return own > 0 && own < channels && channels % own == 0 ? own : channels;
}

struct Statistics {
  double mean = 0;
  double mean_off = 0;  ///< by what the inputs may be off
  double root = 0;      ///< 1 / sqrt(variance + eps)
  double off = 0;       ///< of the root, relative, by what the inputs may be off
};

Statistics statistics(const Block& x, std::int64_t row, std::int64_t first, std::int64_t width, const OpForm& form) {
  Statistics out;
  double sum = 0;
  double errors = 0;
  double whole = 0;
  const float* values = x.row(row) + first;
  for (std::int64_t c = 0; c < width; ++c) sum += double{values[c]};
  if (form.variant == kLayer) out.mean = sum / static_cast<double>(width);
  double squares = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    const double d = double{values[c]} - out.mean;
    squares += d * d;
    const double e = double{x.off(row, first + c)};
    errors += e * e;
    whole += e;
  }
  if (form.variant == kLayer) out.mean_off = whole / static_cast<double>(width);
  const double over = form.variant == kL2 ? 1 : static_cast<double>(width);
  // Sums are taken in f32: of squares beyond its range nothing is left.
  const bool overflows = squares > double{std::numeric_limits<float>::max()};
  out.root = overflows ? 0 : 1 / std::sqrt(squares / over + form.number);
  out.off = std::sqrt(errors / over) * out.root;
  return out;
}

/// Whether the weights were dumped: a norm that has none is then one without weight.
bool weights_dumped(RunView& run, const Op& op) {
  for (const Op& other : run.content(op.step).ops) {
    if (other.kind == OpKind::gemm && other.layer == op.layer && run.input(other, "weight") != nullptr) return true;
  }
  return false;
}

/// What may be added to the variance: what the model states, then what models have. Norms of queries and keys may have
/// a number that stands in the code alone.
std::vector<double> usual_eps(Values& values) {
  const std::vector<double>& stated = values.recomputer().model().norm_eps;
  std::vector<double> all(stated.begin(), stated.end());
  for (const double eps : kEps) {
    if (std::find(stated.begin(), stated.end(), eps) == stated.end()) all.push_back(eps);
  }
  return all;
}

/// The residual sum that a norm reads, if both terms of it are known and it is stored narrower than f32.
const Op* rounded_sum(Values& values, const Op& op) {
  RunView& run = values.run();
  const Tensor* x = run.input(op, "x");
  const Op* maker = x != nullptr && x->known ? run.maker(*x) : nullptr;
  if (maker == nullptr || maker->kind != OpKind::residual_add || roundoff(values.precision(*x)) <= kF32) return nullptr;
  const Tensor* a = run.input(*maker, "a");
  const Tensor* b = run.input(*maker, "b");
  return a != nullptr && a->known && b != nullptr && b->known ? maker : nullptr;
}

/// What a norm goes over by a form of it.
bool normed_rows(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                 std::int64_t count, Block& x, std::string& why) {
  if (form.rounded != kOfUnroundedSum) return input_rows(values, op, "x", out, first, count, x, why);
  const Op* sum = rounded_sum(values, op);
  Block b;
  if (sum == nullptr || !input_rows(values, *sum, "a", out, first, count, x, why) ||
      !input_rows(values, *sum, "b", out, first, count, b, why) || b.value.size() != x.value.size()) {
    why = "the terms of the sum before it were not dumped";
    return false;
  }
  for (std::size_t i = 0; i < x.value.size(); ++i) x.value[i] += b.value[i];
  return true;
}

}  // namespace

void add_unrounded_sums(Values& values, const Op& op, std::vector<OpForm>& forms) {
  if (rounded_sum(values, op) == nullptr) return;
  const std::size_t of_rounded = forms.size();
  for (std::size_t i = 0; i < of_rounded; ++i) {
    if (forms[i].rounded != 0 || forms[i].variant == kNotNormed) continue;
    OpForm form = forms[i];
    form.rounded = kOfUnroundedSum;
    form.text += " of the sum before it was rounded";
    forms.push_back(std::move(form));
  }
}

std::vector<OpForm> forms_layer_norm(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  const auto* stated = op.get<NormAttributes>();
  const Tensor* weight = values.run().input(op, "weight");
  const bool biased = values.run().input(op, "bias") != nullptr;
  std::vector<int> widths{0};
  if (weight == nullptr && out.heads > 1) widths.push_back(static_cast<int>(out.width()));
  for (const int width : widths) {
    for (const int kind : {kRms, kLayer, kL2}) {
      if ((biased && kind != kLayer) || (kind == kL2 && weight != nullptr)) continue;
      if (stated != nullptr && stated->norm && stated->norm->starts_with("layer") != (kind == kLayer)) continue;
      for (const double eps : usual_eps(values)) {
        OpForm form;
        form.text = kind == kRms ? "rms norm" : kind == kLayer ? "layer norm" : "l2 norm";
        form.variant = kind;
        form.number = stated != nullptr && stated->eps ? *stated->eps : eps;
        form.shift = width;
        forms.push_back(form);
        if (kind != kL2 && weight != nullptr) {  // Gemma's, Nemotron's
          form.text += " times 1 + weight";
          form.scale_power = 2;
          forms.push_back(form);
        }
        if (stated != nullptr && stated->eps) break;
      }
    }
  }
  // A layer that has none of what its siblings have: ModernBERT's first.
  if (weight == nullptr) forms.push_back({.text = "no norm", .variant = kNotNormed});
  if (const auto served = values.served_format(op, "weight")) {
    const std::size_t as_stored = forms.size();
    for (std::size_t i = 0; i < as_stored; ++i) {
      OpForm form = forms[i];
      form.weight_as = *served;
      form.text += fmt::format(", its weight rounded to {} when it was loaded", name(*served));
      forms.push_back(std::move(form));
    }
  }
  add_unrounded_sums(values, op, forms);
  return forms;
}

std::vector<OpForm> faults_layer_norm(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  RunView& run = values.run();
  const OpForm chosen = values.recomputer().form_of(op, out);
  const auto add = [&](auto change, std::string text) {
    OpForm form = chosen;
    change(form);
    form.text = std::move(text);
    form.fault = true;
    if (!(form == chosen)) forms.push_back(std::move(form));
  };
  add([](OpForm& form) { form.number = 0; }, "eps left out");
  for (const double eps : {1e-3, 1e-2, 1.0}) add([&](OpForm& form) { form.number = eps; }, "another eps");
  add([](OpForm& form) { form.scale_power = form.scale_power == 2 ? 1 : 2; },
      chosen.scale_power == 2 ? "the 1 of 1 + weight left out" : "1 added to the weight");
  add([](OpForm& form) { form.variant = form.variant == kLayer ? kRms : kLayer; },
      chosen.variant == kLayer ? "the mean not subtracted" : "the mean subtracted");
  const Tensor* weight = run.input(op, "weight");
  if (weight == nullptr) return forms;
  for (const StepId step : {kBeforeSteps, op.step}) {
    for (const Tensor& other : run.content(step).tensors) {
      const Op* maker = run.maker(other);
      const bool fits = maker != nullptr && maker->kind == OpKind::parameter && other.id != weight->id &&
                        other.role == weight->role && other.count() == weight->count();
      if (!fits || forms.size() > 80) continue;
      add([&](OpForm& form) { form.other = other.id; }, "the weight is " + values.facts().name_of(other));
    }
  }
  return forms;
}

std::int64_t cost_layer_norm(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 4; }

bool predict_layer_norm(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                        std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const Tensor* weight = form.other != 0 ? run.tensor(form.other) : run.input(op, "weight");
  if (out.role == "stats") {
    why = "statistics are not recomputed";
    return false;
  }
  if (weight == nullptr && !weights_dumped(run, op)) {
    why = "its weight was not dumped";
    return false;
  }
  Block x;
  if (!normed_rows(values, op, out, form, first, count, x, why)) return false;
  if (form.alpha != 0) multiply(x, form.alpha, roundoff(values.activation_format(out.step)));
  const auto scale = weight != nullptr ? run.values(*weight) : nullptr;
  const Tensor* bias = form.rounded == kNormWithoutBias ? nullptr : run.input(op, "bias");
  const auto offset = bias != nullptr ? run.values(*bias) : nullptr;
  const std::int64_t width = group_width(weight, x.columns, form);
  if (width <= 0 || x.columns % width != 0 || (weight != nullptr && (!scale || scale->empty()))) {
    why = "the shape of its weight is not that of its rows";
    return false;
  }
  const auto loaded = [&](float value) {
    return double{form.weight_as ? decode(*form.weight_as, encode(*form.weight_as, value, Overflow::saturate)) : value};
  };
  into.resize(count, x.columns);
  const double u = stored_roundoff(values, out);
  const double least = least_error(stored_format(values, out));
  const double inner = std::max(u, roundoff(values.activation_format(out.step)));
  const double plus = form.scale_power == 2 ? 1 : 0;
  values.in_rows(count, 4 * x.columns, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t t = from; t < to; ++t) {
      for (std::int64_t begin = 0; begin < x.columns; begin += width) {
        const Statistics s = statistics(x, t, begin, width, form);
        for (std::int64_t c = begin; c < begin + width; ++c) {
          const auto at = static_cast<std::size_t>(t * x.columns + c);
          const double w = scale ? plus + loaded((*scale)[static_cast<std::size_t>(c) % scale->size()]) : 1;
          const double b =
              offset && !offset->empty() ? loaded((*offset)[static_cast<std::size_t>(c) % offset->size()]) : 0;
          const double normed = (double{x.row(t)[c]} - s.mean) * s.root;
          if (form.variant == kNotNormed) {  // a copy
            into.value[at] = x.row(t)[c];
            into.bound[at] = static_cast<float>(1.01 * u * std::abs(double{x.row(t)[c]}) + double{x.off(t, c)} + least);
            continue;
          }
          const double value = normed * w + b;
          into.value[at] = static_cast<float>(value);
          const double rounding = 1.01 * u * std::abs(value) + 1.01 * inner * std::abs(normed * w) +
                                  8 * kF32 * std::abs(w) * (std::abs(normed) + 1 + std::abs(s.mean * s.root));
          const double inherited =
              std::abs(w) * ((double{x.off(t, c)} + s.mean_off) * s.root + std::abs(normed) * s.off);
          // What is multiplied by the weight may be subnormal.
          into.bound[at] = static_cast<float>(rounding + inherited + least * (1 + std::abs(w)));
        }
      }
    }
  });
  return true;
}

}  // namespace nanscope
