/// The choice of experts, and of tokens.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/routing.h"

namespace nanscope {
namespace {

std::vector<double> softmax(const float* x, std::int64_t n) {
  const double largest = double{*std::max_element(x, x + n)};
  std::vector<double> p(static_cast<std::size_t>(n));
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += p[static_cast<std::size_t>(i)] = std::exp(double{x[i]} - largest);
  for (double& one : p) one /= sum;
  return p;
}

/// Indices by falling value.
std::vector<std::size_t> ranked(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  return order;
}

/// The experts that were chosen, where they were dumped.
const Tensor* chosen_ids(RunView& run, const Op& op, const Tensor& weights) {
  for (const Op& other : run.content(op.step).ops) {
    if (other.kind != OpKind::route || other.layer != op.layer) continue;
    const Tensor* ids = run.output(other, "router_ids");
    if (ids != nullptr && ids->known && ids->tokens == weights.tokens && ids->channels == weights.channels) return ids;
  }
  return nullptr;
}

/// What was added to the scores before the choice; null where nothing was, or it was not dumped.
std::shared_ptr<const std::vector<float>> bias_of(RunView& run, const Op& op, std::int64_t experts) {
  const Tensor* bias = run.input(op, "bias");
  return bias != nullptr && bias->known && bias->count() == experts ? run.values(*bias) : nullptr;
}

/// Nothing where an id names no expert.
std::optional<std::vector<std::size_t>> dumped_choice(RunView& run, const Tensor& ids, std::int64_t row,
                                                      std::int64_t experts) {
  const auto values = run.row_values(ids, row);
  if (!values) return std::nullopt;
  std::vector<std::size_t> chosen;
  for (const float one : *values) {
    if (!(one >= 0) || one >= static_cast<float>(experts)) return std::nullopt;
    chosen.push_back(static_cast<std::size_t>(one));
  }
  return chosen;
}

}  // namespace

std::vector<double> scores_of(const float* logits, std::int64_t experts, int variant) {
  std::vector<double> scores(logits, logits + experts);
  if ((variant & kAsGiven) != 0) return scores;
  if ((variant & kSigmoid) == 0) return softmax(logits, experts);
  for (double& one : scores) one = 1 / (1 + std::exp(-one));
  return scores;
}

std::optional<std::vector<std::size_t>> chosen_by(const std::vector<double>& ranks, std::int64_t top, double rounding) {
  std::vector<std::size_t> order = ranked(ranks);
  const auto chosen = static_cast<std::size_t>(top);
  if (chosen < order.size()) {
    const double last = ranks[order[chosen - 1]];
    if (last - ranks[order[chosen]] <= rounding * std::abs(last)) return std::nullopt;
  }
  order.resize(chosen);
  return order;
}

std::vector<OpForm> forms_route(Values& values, const Op& op, const Tensor& out) {
  if (out.role == "router_ids" || out.role == "router_scores") return no_forms(values, op, out);
  std::vector<OpForm> forms;
  const auto add = [&](int variant, std::string text) {
    forms.push_back({.text = text + ", normalised", .variant = variant | kNormed});
    forms.push_back({.text = std::move(text), .variant = variant});
  };
  const Tensor* in = values.run().input(op, "logits");
  const bool scored = in != nullptr && in->role == "router_scores";
  const bool biased = in != nullptr && bias_of(values.run(), op, in->channels) != nullptr;
  if (scored) add(kAsGiven, "the largest scores");
  if (scored && biased) add(kAsGiven | kBiased, "the scores of those that are largest with their bias");
  add(0, "softmax, the largest");
  add(kSigmoid, "sigmoid, the largest");
  if (biased) add(kSigmoid | kBiased, "sigmoid, of those that are largest with their bias");
  if (biased) add(kBiased, "softmax, of those that are largest with their bias");
  return forms;
}
std::vector<OpForm> faults_route(Values& values, const Op& op, const Tensor& out) { return no_forms(values, op, out); }
std::int64_t cost_route(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 16; }

bool predict_route(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                   std::int64_t count, Prediction& into, std::string& why) {
  Block logits;
  if (out.role != "router_weights") {
    why = "which experts are chosen is not recomputed";
    return false;
  }
  if (!input_rows(values, op, "logits", out, first, count, logits, why)) return false;
  if (logits.columns < out.channels || out.channels == 0) return false;
  into.resize(count, out.channels);
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  const double inner = std::max(u, roundoff(values.activation_format(out.step)));
  const auto actual = values.run().read(out, first, count);
  const Tensor* ids = chosen_ids(values.run(), op, out);
  const auto bias = bias_of(values.run(), op, logits.columns);
  const auto* stated = op.get<RouteAttributes>();
  const double scale = form.number != 0 ? form.number : stated != nullptr ? stated->scale.value_or(1) : 1;
  for (std::int64_t t = 0; t < count; ++t) {
    const std::vector<double> scores = scores_of(logits.row(t), logits.columns, form.variant);
    const bool biased = (form.variant & kBiased) != 0 && bias;
    std::vector<double> ranks = scores;
    for (std::size_t e = 0; biased && e < ranks.size(); ++e) ranks[e] += double{(*bias)[e]};
    std::vector<std::size_t> places(static_cast<std::size_t>(out.channels));
    std::iota(places.begin(), places.end(), std::size_t{0});
    auto chosen = ids != nullptr ? dumped_choice(values.run(), *ids, first + t, logits.columns)
                                 : chosen_by(ranks, out.channels, biased ? 4 * inner : -1);
    const auto begin = into.bound.begin() + t * out.channels;
    if (!chosen) {
      std::fill(begin, begin + out.channels, -1.0F);
      continue;
    }
    if (actual && ids == nullptr) {
      // In whatever order they were written.
      std::vector<double> written;
      for (std::int64_t i = 0; i < out.channels; ++i) written.push_back(double{actual->value(t, i)});
      places = ranked(written);
      std::stable_sort(chosen->begin(), chosen->end(),
                       [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    }
    double sum = 0;
    for (const std::size_t expert : *chosen) sum += scores[expert];
    for (std::size_t i = 0; i < chosen->size(); ++i) {
      const auto at = static_cast<std::size_t>(t * out.channels) + places[i];
      const double value = scale * scores[(*chosen)[i]] / ((form.variant & kNormed) != 0 ? sum : 1);
      into.value[at] = static_cast<float>(value);
      into.bound[at] = static_cast<float>((1.01 * u + 4 * inner + 64 * kF32) * std::abs(value) + least_error(kept));
    }
  }
  return true;
}

/// OpForm::variant of what a sampler makes of logits.
enum Sampling : int { kProbabilities = 0, kTemperature = 1, kKept = 2 };

std::vector<OpForm> forms_token_softmax(Values&, const Op&, const Tensor& out) {
  if (out.role == "scaled_logits") return {{.text = "logits over a temperature", .variant = kTemperature}};
  return {{.text = "softmax", .variant = kProbabilities},
          {.text = "softmax over the tokens that a grammar, top-k or top-p left", .variant = kKept}};
}
std::vector<OpForm> faults_token_softmax(Values& values, const Op& op, const Tensor& out) {
  return no_forms(values, op, out);
}
std::int64_t cost_token_softmax(Values& values, const Op& op, const Tensor& out) {
  return unit_cost(values, op, out) * 8;
}

/// Logits of a row with -Inf where the written probability is zero; false when none is left.
bool keep_written(const TensorData& written, std::int64_t t, const float* row, std::vector<float>& kept) {
  bool any = false;
  for (std::size_t c = 0; c < kept.size(); ++c) {
    const bool left = written.value(t, static_cast<std::int64_t>(c)) > 0;
    kept[c] = left ? row[c] : -std::numeric_limits<float>::infinity();
    any = any || left;
  }
  return any;
}

bool predict_token_softmax(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                           std::int64_t count, Prediction& into, std::string& why) {
  const bool scaled = form.variant == kTemperature;
  Block x;
  if (!input_rows(values, op, scaled ? "x" : "logits", out, first, count, x, why)) return false;
  if (out.known && x.columns != out.channels) {
    why = "it has another width than the logits";
    return false;
  }
  into.resize(count, x.columns);
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  for (std::int64_t t = 0; t < count; ++t) {
    double factor = 1;
    std::vector<double> p;
    if (scaled) {
      const auto actual = values.run().read(out, first + t, 1);
      const float* row = x.row(t);
      const std::int64_t largest = std::max_element(row, row + x.columns) - row;
      if (!actual || row[largest] == 0) return false;
      factor = double{actual->value(0, largest)} / double{row[largest]};
      if (!std::isfinite(factor)) {
        why = "its temperature leaves no number";
        return false;
      }
    } else if (form.variant == kKept) {
      const auto written = values.run().read(out, first + t, 1);
      std::vector<float> kept(static_cast<std::size_t>(x.columns));
      if (!written || !keep_written(*written, 0, x.row(t), kept)) {
        why = "no token is left to choose from, and what hid them was not dumped";
        return false;
      }
      p = softmax(kept.data(), x.columns);
    } else {
      p = softmax(x.row(t), x.columns);
    }
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const auto at = static_cast<std::size_t>(t * x.columns + c);
      const double value = scaled ? factor * double{x.row(t)[c]} : p[static_cast<std::size_t>(c)];
      into.value[at] = static_cast<float>(value);
      into.bound[at] = static_cast<float>((4 * u + 64 * kF32) * std::abs(value) + least_error(kept));
    }
  }
  return true;
}

}  // namespace nanscope
