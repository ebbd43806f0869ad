/// The choice of experts, and of tokens.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"

namespace nanscope {
namespace {

/// OpForm::variant of a router's weights.
enum Routing : int {
  kSoftmaxThenTop = 0,
  kSoftmaxThenTopNormed = 1,
  kTopThenSoftmax = 2,
  kSigmoid = 3,
  kSigmoidNormed = 4
};

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

std::vector<double> weights_of(const float* logits, std::int64_t experts, std::int64_t top, int variant) {
  std::vector<double> scores = softmax(logits, experts);
  if (variant == kSigmoid || variant == kSigmoidNormed) {
    for (std::int64_t i = 0; i < experts; ++i)
      scores[static_cast<std::size_t>(i)] = 1 / (1 + std::exp(-double{logits[i]}));
  }
  const std::vector<std::size_t> order = ranked(scores);
  std::vector<double> chosen;
  for (std::int64_t i = 0; i < top; ++i) chosen.push_back(scores[order[static_cast<std::size_t>(i)]]);
  if (variant == kSoftmaxThenTopNormed || variant == kTopThenSoftmax || variant == kSigmoidNormed) {
    const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
    for (double& one : chosen) one /= sum;
  }
  return chosen;
}

}  // namespace

std::vector<OpForm> forms_route(Values& values, const Op& op, const Tensor& out) {
  if (out.role == "router_ids" || out.role == "router_scores") return no_forms(values, op, out);
  return {{.text = "softmax, the largest, normalised", .variant = kSoftmaxThenTopNormed},
          {.text = "softmax, the largest", .variant = kSoftmaxThenTop},
          {.text = "sigmoid, the largest, normalised", .variant = kSigmoidNormed},
          {.text = "sigmoid, the largest", .variant = kSigmoid}};
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
  const double inner = std::max(u, roundoff(values.activation_format(out.step)));
  const auto actual = values.run().read(out, first, count);
  for (std::int64_t t = 0; t < count; ++t) {
    std::vector<double> chosen = weights_of(logits.row(t), logits.columns, out.channels, form.variant);
    // In whatever order they were written.
    std::vector<std::size_t> places(chosen.size());
    if (actual) {
      std::vector<double> written;
      for (std::int64_t i = 0; i < out.channels; ++i) written.push_back(double{actual->value(t, i)});
      places = ranked(written);
    } else {
      std::iota(places.begin(), places.end(), std::size_t{0});
    }
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const auto at = static_cast<std::size_t>(t * out.channels) + places[i];
      into.value[at] = static_cast<float>(chosen[i]);
      into.bound[at] =
          static_cast<float>((1.01 * u + 4 * inner + 64 * kF32) * std::abs(chosen[i]) + least_error(out.format));
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
      into.bound[at] = static_cast<float>((4 * u + 64 * kF32) * std::abs(value) + least_error(out.format));
    }
  }
  return true;
}

}  // namespace nanscope
