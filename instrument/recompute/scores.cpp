/// q k' over all keys, times a factor, capped or not.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/run/mask.h"
#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

/// Scores made of scores: scaled, capped, behind their mask.
bool predict_of_scores(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                       std::int64_t count, Prediction& into, std::string& why) {
  const Step* step = values.run().step(out.step);
  Block x;
  if (step == nullptr || !input_rows(values, op, "scores", out, first, count, x, why)) return false;
  const std::int64_t columns = x.columns / std::max<std::int64_t>(1, out.heads);
  if (columns <= 0 || x.columns != out.channels) {
    why = "what it is made of has another width";
    return false;
  }
  into.resize(count, x.columns, -1.0F);
  const double u = std::max(stored_roundoff(values, out), roundoff(values.activation_format(out.step)));
  const Format kept = stored_format(values, out);
  return each_span(values, out, first, count, [&](const Span* span, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end && span != nullptr; ++row) {
      std::optional<RowMask> mask;
      if (form.variant == kAddsMask) {
        OpForm given;
        given.variant = kGivenMask;
        mask = row_mask(values, op, *step, *span, step_row(values.run(), out, row, *span),
                        column_positions(*step, *span, columns), given);
        if (!mask) return false;
      }
      for (std::int64_t c = 0; c < x.columns; ++c) {
        const auto at = static_cast<std::size_t>((row - first) * x.columns + c);
        const auto column = static_cast<std::size_t>(c % columns);
        if (mask && !mask->visible[column]) continue;
        const double scaled = form.number * double{x.row(row - first)[c]};
        double value = form.cap > 0 ? form.cap * std::tanh(scaled / form.cap) : scaled;
        if (mask && !mask->added.empty()) value += double{mask->added[column]};
        if (!std::isfinite(value)) continue;
        into.value[at] = static_cast<float>(value);
        into.bound[at] = static_cast<float>(2.02 * u * (std::abs(value) + std::abs(scaled)) +
                                            std::abs(form.number) * double{x.off(row - first, c)} + least_error(kept));
      }
    }
    return true;
  });
}

/// The factor between scores and scores.
double shown_ratio(Values& values, const Op& op, const Tensor& out) {
  const Tensor* in = values.run().input(op, "scores");
  if (in == nullptr || !in->known || !out.known || in->count() != out.count() || out.tokens == 0) return 1;
  std::vector<double> ratios;
  for (const std::int64_t row : {out.tokens - 1, out.tokens / 2}) {
    const auto a = values.run().row_values(*in, row);
    const auto b = values.run().row_values(out, row);
    for (std::size_t i = 0; a && b && i < a->size(); ++i) {
      if (!hidden_by_mask(double{(*b)[i]}) && std::abs((*a)[i]) > 1e-3F && std::isfinite((*b)[i]))
        ratios.push_back(double{(*b)[i]} / double{(*a)[i]});
    }
  }
  if (ratios.size() < 4) return 1;
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2), ratios.end());
  return ratios[ratios.size() / 2];
}

std::vector<OpForm> forms_of_scores(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = {{.text = "as before", .number = 1}};
  if (op.input("mask") != 0) {
    forms.push_back({.text = "plus what the mask adds", .variant = kAddsMask, .number = 1});
    return forms;
  }
  const double ratio = shown_ratio(values, op, out);
  forms.push_back({.text = "scaled", .number = ratio});
  const double width = static_cast<double>(std::max<std::int64_t>(1, std::lround(1 / (ratio * ratio))));
  forms.push_back({.text = "over the root of the head's width", .number = 1 / std::sqrt(width)});
  for (const double cap : kCaps) forms.push_back({.text = "capped", .number = 1, .cap = cap});
  return forms;
}

struct Shape {
  std::int64_t heads = 1;
  std::int64_t columns = 0;
};

/// Of scores that were not dumped: that of the probabilities behind them, else as many keys as the longest context.
Shape shape_of(RunView& run, const Op& op, const Tensor& out) {
  const Tensor* shown = out.known ? &out : known_probs(run, op);
  if (shown != nullptr) return {shown->heads, keys_of(*shown)};
  const Tensor* q = run.input(op, "q");
  const Step* step = run.step(op.step);
  Shape shape{q != nullptr ? std::max<std::int64_t>(1, q->heads) : 1, 0};
  if (step == nullptr) return shape;
  if (step->batch > 1) shape.columns = step->rows / step->batch;
  for (const Span& span : step->spans) shape.columns = std::max(shape.columns, span.context);
  return shape;
}

/// Two products of a query with keys, and by how much their scores differ; `second` is 0 where a score is known itself.
struct Sample {
  double first = 0;
  double second = 0;
  double difference = 0;
};

/// Samples of the dumped scores, or of the logarithms of ratios of the dumped probabilities.
std::vector<Sample> samples_of(Values& values, const Op& op, const Tensor& out) {
  constexpr double kNegligible = 0x1p-14;  // the smallest normal number of f16: below it, bits are missing
  std::vector<Sample> samples;
  const Tensor* shown = out.known ? &out : known_probs(values.run(), op);
  if (shown == nullptr || shown->tokens == 0) return samples;
  const Step* step = values.run().step(op.step);
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; step != nullptr && i < step->spans.size() && rows.size() < 4; ++i) {
    const Span& span = step->spans[i];
    for (const std::int64_t position : {span.context - 1, span.first_token + span.rows / 2}) {
      if (const auto row = values.run().row_at(*shown, span, position)) rows.push_back(*row);
    }
  }
  for (const std::int64_t row : rows) {
    OpForm plain;
    plain.number = 1;
    Prediction made;
    std::string why;
    if (!predict_attention_scores(values, op, out, plain, row, 1, made, why)) return {};
    const Fact<TensorData> actual = values.run().read(*shown, row, 1);
    if (!actual || made.columns != shown->channels) return {};
    const std::int64_t keys = made.columns / std::max<std::int64_t>(1, shown->heads);
    std::optional<std::int64_t> before;
    for (std::int64_t c = 0; c < made.columns; ++c) {
      const auto x = [&](std::int64_t at) { return double{made.value[static_cast<std::size_t>(at)]}; };
      const double s = double{actual->value(0, c)};
      if (c % keys == 0) before.reset();
      if (made.bound[static_cast<std::size_t>(c)] < 0 || !std::isfinite(s)) continue;
      if (out.known && !hidden_by_mask(s)) samples.push_back({x(c), 0, s});
      if (out.known || s < kNegligible) continue;
      if (before) samples.push_back({x(c), x(*before), std::log(s / double{actual->value(0, *before)})});
      before = c;
    }
  }
  return samples;
}

struct Fit {
  double factor = 0;
  double cap = 0;
  double residual = 0;
};

/// The factor by least squares (Gauss-Newton) under a cap, and the median of what it leaves.
Fit fit(const std::vector<Sample>& samples, double cap, double factor) {
  constexpr int kRounds = 12;
  struct Bent {
    double value, slope;
  };
  const auto bend = [cap](double z) {
    if (cap <= 0) return Bent{z, 1};
    const double bent = std::tanh(z / cap);
    return Bent{cap * bent, 1 - std::pow(bent, 2)};
  };
  Fit out{factor, cap, 0};
  for (int round = 0; round < kRounds; ++round) {
    double above = 0;
    double below = 0;
    for (const Sample& one : samples) {
      const Bent a = bend(out.factor * one.first);
      const Bent b = bend(out.factor * one.second);
      const double derivative = one.first * a.slope - one.second * b.slope;
      above += derivative * (one.difference - a.value + b.value);
      below += derivative * derivative;
    }
    if (below <= 0) break;
    out.factor += above / below;
  }
  std::vector<double> left;
  left.reserve(samples.size());
  for (const Sample& one : samples)
    left.push_back(std::abs(one.difference - bend(out.factor * one.first).value + bend(out.factor * one.second).value));
  std::nth_element(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(left.size() / 2), left.end());
  out.residual = left[left.size() / 2];
  return out;
}

/// Factor and cap that the numbers show.
std::optional<Fit> shown_fit(Values& values, const Op& op, const Tensor& out) {
  // Caps of scores and logits in transformers 5.24.0: nanochat's least, Gemma 2's most.
  constexpr int kLeastCap = 15;
  constexpr int kMostCap = 50;
  const std::vector<Sample> samples = samples_of(values, op, out);
  if (samples.size() < 8) return std::nullopt;
  Fit best = fit(samples, 0, 0.1);
  const double plain = best.residual;
  for (int cap = kLeastCap; cap <= kMostCap; ++cap) {
    const Fit tried = fit(samples, cap, best.factor > 0 ? best.factor : 0.1);
    if (tried.residual < best.residual && tried.residual < 0.2 * plain) best = tried;
  }
  // Configurations state the root of a whole number: probabilities are too coarse to give it to the last digit.
  const double exact = 1 / std::sqrt(std::max(1.0, std::round(1 / (best.factor * best.factor))));
  if (std::abs(best.factor / exact - 1) < 0.02) best.factor = exact;
  return best;
}

}  // namespace

std::vector<OpForm> forms_attention_scores(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  if (op.input("scores") != 0) return forms_of_scores(values, op, out);
  const auto* stated = op.get<ScoresAttributes>();
  const Tensor* q = values.run().input(op, "q");
  const std::int64_t heads = shape_of(values.run(), op, out).heads;
  const std::int64_t width = q != nullptr && q->channels > 0 ? q->channels / std::max<std::int64_t>(1, heads) : 0;
  const auto add = [&](double factor, double cap, std::string text) {
    OpForm form;
    form.number = factor;
    form.cap = cap;
    form.text = std::move(text);
    const bool known = std::any_of(forms.begin(), forms.end(), [&](const OpForm& one) {
      return one.cap == cap && std::abs(one.number - factor) < 1e-4 * factor;
    });
    if (!known && std::isfinite(factor) && factor != 0) forms.push_back(form);
  };
  if (stated != nullptr && stated->factor) {
    add(*stated->factor, stated->softcap.value_or(0), "q k' times the stated factor");
  }
  if (width > 0) add(1 / std::sqrt(static_cast<double>(width)), 0, "q k' over the root of the head's width");
  add(1, 0, "q k' without a factor");
  if (width > 0 && op.layer) {
    forms.push_back({.text = "q k' over the root of the head's width and the layer's number",
                     .variant = kByLayer,
                     .number = 1 / std::sqrt(static_cast<double>(width))});
  }
  if (const auto shown = shown_fit(values, op, out)) {
    add(shown->factor, shown->cap,
        "q k' times a factor of its own" + (shown->cap > 0 ? fmt::format(", capped at {}", shown->cap) : ""));
  }
  const std::size_t plain = forms.size();
  for (std::size_t i = 0; reads_scaled_codes(values, op, "k") && i < plain; ++i) {
    OpForm form = forms[i];
    form.rounded = kToActivations;
    form.text += ", keys rounded as they were read back";
    forms.push_back(std::move(form));
  }
  for (std::size_t i = 0; cached_unseen(values, op, "k") && i < plain; ++i)
    add_cached(forms, OpForm(forms[i]), ", keys from a cache of 8 bits that was not dumped");
  add_own_keys(values, op, "k", forms);
  return forms;
}

std::vector<OpForm> faults_attention_scores(Values& values, const Op& op, const Tensor& out) {
  if (op.input("scores") != 0) return {{.text = "not scaled", .number = 1, .fault = true}};
  const OpForm chosen = values.recomputer().form_of(op, out);
  std::vector<OpForm> forms = wrong_reads(values, op, "k", chosen);
  const auto add = [&](auto change, std::string text) {
    OpForm form = chosen;
    change(form);
    form.text = std::move(text);
    form.fault = true;
    forms.push_back(std::move(form));
  };
  if (chosen.cap > 0) add([](OpForm& form) { form.cap = 0; }, "the cap of the scores left out");
  add([](OpForm& form) { form.number = 1; }, "the factor of the scores left out");
  const Tensor* q = values.run().input(op, "q");
  const std::int64_t heads = std::max<std::int64_t>(1, shape_of(values.run(), op, out).heads);
  if (q != nullptr) add_rotated_alone(values, op, forms, chosen, "k", q->channels / heads);
  return forms;
}

std::int64_t cost_attention_scores(Values& values, const Op& op, const Tensor&) {
  const Tensor* q = values.run().input(op, "q");
  return q != nullptr ? std::max<std::int64_t>(1, q->width()) : 1;
}

namespace {

/// From number `first` of the prediction on: scores of the keys that are there, rounded by `u` of themselves, or by
/// `least`.
void put_scores(const Line& line, const KeyMatrix& keys, double u, double least, std::int64_t first, Prediction& into) {
  const std::size_t columns = line.value.size();
  float* value = into.value.data() + first;
  float* bound = into.bound.data() + first;
  for (std::size_t c = 0; c < columns; ++c) {
    value[c] = static_cast<float>(line.value[c]);
    bound[c] = static_cast<float>(2.02 * u * std::abs(line.value[c]) + line.error[c] + kDeviations * line.deviation[c] +
                                  least);
  }
  // The sum and its product with the factor are rounded, and so is the number that it is compared with.
  for (std::size_t c = 0; !into.deviation.empty() && c < columns; ++c) {
    if (line.error[c] == 0)
      into.deviation[static_cast<std::size_t>(first) + c] =
          static_cast<float>(std::hypot(line.deviation[c], u * line.value[c]));
  }
  for (std::size_t c = 0; !keys.all_there && c < columns; ++c) {
    if (!keys.there[c]) value[c] = 0, bound[c] = -1;
  }
}

}  // namespace

bool predict_attention_scores(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                              std::int64_t count, Prediction& into, std::string& why) {
  if (op.input("scores") != 0) return predict_of_scores(values, op, out, form, first, count, into, why);
  const Step* step = values.run().step(out.step);
  Block q;
  if (step == nullptr || !input_rows(values, op, "q", out, first, count, q, why)) return false;
  const Shape shape = shape_of(values.run(), op, out);
  into.resize(count, shape.columns * shape.heads, -1.0F);
  const double u = std::max(stored_roundoff(values, out), roundoff(values.activation_format(out.step)));
  const bool by_deviation = u <= kF32;
  if (by_deviation) into.deviation.assign(into.bound.size(), 0.0F);
  const Format kept = stored_format(values, out);
  OpForm own = form;
  if (form.variant == kByLayer) own.number /= static_cast<double>(op.layer.value_or(0) + 1);
  Line line;
  return each_span(values, out, first, count, [&](const Span* span, std::int64_t begin, std::int64_t end) {
    if (span == nullptr) return true;
    auto keys = gather_keys(values, op, "k", *step, *span, shape.columns, form, why);
    if (!keys) return false;
    const auto heads = heads_of(q.columns, keys->block.columns, shape.heads, why);
    if (!heads) return false;
    measure_keys(*keys, heads->width, by_deviation);
    const double least = least_error_of_sum(kept, q.columns / heads->count);
    const std::int64_t row_size = shape.columns * heads->count;
    values.in_rows(end - begin, row_size * heads->width / 16, [&](std::int64_t from, std::int64_t to) {
      Line line;
      ScoreProducts products;
      for (std::int64_t row = begin - first + from; row < begin - first + to; ++row) {
        score_products(q, row, *keys, *heads, own.shift == kTiled, products);
        for (std::int64_t head = 0; head < heads->count; ++head) {
          score_line(q, row, *keys, *heads, head, own, products, line);
          put_scores(line, *keys, u, least, row * into.columns + head * shape.columns, into);
        }
      }
    });
    return true;
  });
}

}  // namespace nanscope
