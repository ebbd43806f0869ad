// Gradients of attention and of the cross entropy: see gradient_test.h.
#include <optional>

#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_mix_gradient.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/cross_entropy_gradient.h"
#include "kernels/ops/softmax.h"
#include "kernels/ops/softmax_gradient.h"
#include "tests/unit/kernels/ops/gradient_test.h"

namespace nanscope::kernels {
namespace {

using test::central_differences;
using test::Doubles;
using test::every;
using test::Floats;
using test::Indices;
using test::kNan;
using test::random_floats;
using test::step_for;
using test::wide;

class AttentionGradients : public test::GradientTest {};

struct MaskedSize {
  const char* name;
  std::int64_t queries, before, keys, width, heads, kv_heads, first_key, window;

  bool sees(std::int64_t t, std::int64_t key) const {
    return key >= first_key && key <= before + t && (window == 0 || key > before + t - window);
  }
  std::int64_t kv_head(std::int64_t head) const { return head / (heads / kv_heads); }
};

/// The ordinary sizes of cases_attention.cpp, under each of its masks, and one of several tiles.
const MaskedSize kMaskedSizes[] = {
    {"prefill", 8, 0, 8, 32, 4, 2, 0, 0},
    {"prefill_first_key", 8, 0, 8, 32, 4, 2, 3, 0},
    {"prefill_sliding", 8, 0, 8, 32, 4, 2, 0, 3},
    {"ragged", 5, 32, 37, 24, 6, 2, 0, 0},
    {"ragged_first_key", 5, 32, 37, 24, 6, 2, 3, 0},
    {"ragged_sliding", 5, 32, 37, 24, 6, 2, 0, 3},
    {"decode", 1, 70, 80, 64, 4, 4, 0, 0},
    {"decode_sliding", 1, 70, 80, 64, 4, 4, 0, 3},
    {"long", 70, 0, 70, 16, 3, 1, 0, 0},
    {"long_sliding", 70, 0, 70, 16, 3, 1, 2, 17},
};
constexpr double kFactor = 0.17677669F;

// Softmax.

/// Probabilities of the visible ones of a row's scores, 0 elsewhere; a sink is one more score.
Doubles softmax_row(const Doubles& scores, const std::vector<bool>& visible, std::optional<double> sink) {
  double max = sink.value_or(-HUGE_VAL);
  for (std::size_t s = 0; s < scores.size(); ++s) max = visible[s] ? std::max(max, scores[s]) : max;
  double total = sink ? std::exp(*sink - max) : 0;
  Doubles p(scores.size());
  for (std::size_t s = 0; s < scores.size(); ++s) {
    if (visible[s]) total += p[s] = std::exp(scores[s] - max);
  }
  for (double& value : p) value = value == 0 ? 0 : value / total;
  return p;
}

struct SoftmaxSums {
  Doubles differences, formula;
  Doubles sink_differences, sink_formula;  ///< of each row and head
};

SoftmaxSums softmax_reference(const MaskedSize& size, const Floats& scores, const Floats& dp, const Floats* sinks) {
  SoftmaxSums sums;
  for (std::int64_t at = 0; at < size.queries * size.heads; ++at) {
    const std::int64_t t = at / size.heads;
    const std::int64_t head = at % size.heads;
    std::vector<bool> visible;
    for (std::int64_t s = 0; s < size.keys; ++s) visible.push_back(size.sees(t, s));
    std::optional<double> sink;
    if (sinks != nullptr) sink = sinks->at(0, head);
    const Doubles d = wide(dp, t, head * size.keys, size.keys);
    const auto loss_with = [&](const Doubles& row, std::optional<double> beside) {
      const Doubles p = softmax_row(row, visible, beside);
      double total = 0;
      for (std::size_t s = 0; s < p.size(); ++s) total += visible[s] ? p[s] * d[s] : 0;
      return total;
    };
    const auto loss = [&](const Doubles& row) { return loss_with(row, sink); };
    const Doubles row = wide(scores, t, head * size.keys, size.keys);
    const Doubles slopes = central_differences(row, loss);
    sums.differences.insert(sums.differences.end(), slopes.begin(), slopes.end());
    const Doubles p = softmax_row(row, visible, sink);
    const double along = loss(row);
    for (std::size_t s = 0; s < p.size(); ++s) sums.formula.push_back(visible[s] ? p[s] * (d[s] - along) : 0);
    if (!sink) continue;
    const auto of_sink = [&](const Doubles& v) { return loss_with(row, v[0]); };
    sums.sink_differences.push_back(central_differences({*sink}, of_sink)[0]);
    double total = 0;
    for (std::size_t s = 0; s < p.size(); ++s) total += visible[s] ? std::exp(row[s] - *sink) : 0;
    sums.sink_formula.push_back(-along / (1 + total));
  }
  return sums;
}

TEST_F(AttentionGradients, OfSoftmax) {
  for (const MaskedSize& size : kMaskedSizes) {
    for (const bool with_sinks : {false, true}) {
      Floats scores = random_floats(size.queries, size.heads * size.keys, 201, 20.0F);
      // Of a sink far below the largest score differences leave nothing: OfSinksThatTakeAllOrNothing has those.
      Floats sinks = random_floats(1, size.heads, 202, 4.0F);
      for (float& value : sinks.data) value += 18.0F;
      Floats dp = random_floats(size.queries, size.heads * size.keys, 203);
      Floats p(size.queries, size.heads * size.keys);
      Floats ds(size.queries, size.heads * size.keys, 7.0F);
      Floats dsink(size.queries, size.heads, 7.0F);
      test::launch(SoftmaxArgs{.scores = scores.view(),
                               .sinks = with_sinks ? sinks.view() : TensorView{},
                               .out = p.view(),
                               .heads = size.heads,
                               .first_position = size.before,
                               .first_key = size.first_key,
                               .window = size.window,
                               .mask = MaskMode::select});
      test::launch(SoftmaxGradientArgs{.probs = p.view(),
                                       .dprobs = dp.view(),
                                       .out = ds.view(),
                                       .heads = size.heads,
                                       .first_position = size.before,
                                       .first_key = size.first_key,
                                       .window = size.window,
                                       .sinks = with_sinks ? sinks.view() : TensorView{},
                                       .scores = with_sinks ? scores.view() : TensorView{},
                                       .sink_out = with_sinks ? dsink.view() : TensorView{}});
      const SoftmaxSums reference = softmax_reference(size, scores, dp, with_sinks ? &sinks : nullptr);
      expect_gradient(with_sinks ? "softmax_gradient beside sinks" : "softmax_gradient", size.name,
                      reference.differences, reference.formula, wide(ds));
      if (!with_sinks) continue;
      expect_gradient("softmax_gradient, sinks", size.name, reference.sink_differences, reference.sink_formula,
                      wide(dsink));
    }
  }
}

/// A sink that has next to all of the row, next to none of it, and whose row sees no key.
TEST_F(AttentionGradients, OfSinksThatTakeAllOrNothing) {
  Floats scores(3, 4, {1, 2, 3, 0.5F, 1, 2, 3, 0.5F, 1, 2, 3, 0.5F});
  Floats dp(3, 4, {0.5F, -1, 2, 0.25F, 0.5F, -1, 2, 0.25F, 0.5F, -1, 2, 0.25F});
  for (const float sink : {-60.0F, -9.0F, 40.0F, 80.0F}) {
    Floats sinks(1, 1, sink);
    Floats p(3, 4);
    Floats ds(3, 4, 7.0F);
    Floats dsink(3, 1, 7.0F);
    test::launch(SoftmaxArgs{.scores = scores.view(),
                             .sinks = sinks.view(),
                             .out = p.view(),
                             .first_position = -1,
                             .mask = MaskMode::select});
    test::launch(SoftmaxGradientArgs{.probs = p.view(),
                                     .dprobs = dp.view(),
                                     .out = ds.view(),
                                     .first_position = -1,
                                     .sinks = sinks.view(),
                                     .scores = scores.view(),
                                     .sink_out = dsink.view()});
    EXPECT_EQ(test::bits(dsink.at(0, 0)), 0U) << "no key, no gradient";
    for (std::int64_t t = 1; t < 3; ++t) {
      const auto power = [&](std::int64_t s) { return std::exp(double{scores.at(t, s)} - double{sink}); };
      double total = 1;
      for (std::int64_t s = 0; s < t; ++s) total += power(s);
      double along = 0;
      for (std::int64_t s = 0; s < t; ++s) along += power(s) / total * dp.at(t, s);
      EXPECT_NEAR(dsink.at(t, 0), -along / total, 1e-6 * std::abs(along / total)) << sink << " " << t;
      for (std::int64_t s = 0; s < t; ++s) {
        // Differences of pairs, of which the sink's dp is 0: less than an ulp of p may be left.
        double slope = dp.at(t, s) / total;
        for (std::int64_t k = 0; k < t; ++k) slope += power(k) / total * (double{dp.at(t, s)} - double{dp.at(t, k)});
        const double expected = power(s) / total * slope;
        EXPECT_NEAR(ds.at(t, s), expected, 2e-6 * std::abs(expected)) << sink << " " << t;
      }
    }
  }
}

// Scores and mix: both bilinear.

/// sum over what is seen of weights[t, h, s] * factor * (x[t, h] . y[s, g]): the mix's loss with weights the
/// probabilities, x the gradient of the output and y the values; the scores' with weights the gradient of the scores, x
/// the queries and y the keys.
struct Bilinear {
  const MaskedSize& size;
  double factor;

  /// What each visible (t, h, s) is to be told: weight, then x and y at their first channel.
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::int64_t t = 0; t < size.queries; ++t) {
      for (std::int64_t h = 0; h < size.heads; ++h) {
        for (std::int64_t s = 0; s < size.keys; ++s) {
          if (!size.sees(t, s)) continue;
          visit(static_cast<std::size_t>((t * size.heads + h) * size.keys + s),
                static_cast<std::size_t>((t * size.heads + h) * size.width),
                static_cast<std::size_t>((s * size.kv_heads + size.kv_head(h)) * size.width));
        }
      }
    }
  }
  double loss(const Doubles& weights, const Doubles& x, const Doubles& y) const {
    double total = 0;
    each([&](std::size_t w, std::size_t at_x, std::size_t at_y) {
      double dot = 0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(size.width); ++i) dot += x[at_x + i] * y[at_y + i];
      total += weights[w] * factor * dot;
    });
    return total;
  }
  std::size_t step(std::size_t elements) const {
    return step_for(static_cast<std::int64_t>(elements), size.queries * size.heads * size.keys * size.width);
  }
  struct Slopes {
    Doubles weights, x, y;
  };
  Slopes formula(const Doubles& weights, const Doubles& x, const Doubles& y) const {
    Slopes slopes{Doubles(weights.size()), Doubles(x.size()), Doubles(y.size())};
    each([&](std::size_t w, std::size_t at_x, std::size_t at_y) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(size.width); ++i) {
        slopes.weights[w] += factor * x[at_x + i] * y[at_y + i];
        slopes.x[at_x + i] += factor * weights[w] * y[at_y + i];
        slopes.y[at_y + i] += factor * weights[w] * x[at_x + i];
      }
    });
    return slopes;
  }
};

struct Operands {
  Floats weights, x, y;

  explicit Operands(const MaskedSize& size)
      : weights(random_floats(size.queries, size.heads * size.keys, 211)),
        x(random_floats(size.queries, size.heads * size.width, 212, 4.0F)),
        y(random_floats(size.keys, size.kv_heads * size.width, 213, 4.0F)) {
    // What is masked is no gradient's business.
    for (std::int64_t t = 0; t < size.queries; ++t) {
      for (std::int64_t at = 0; at < weights.columns; ++at) {
        if (!size.sees(t, at % size.keys)) weights.at(t, at) = kNan;
      }
    }
  }
};

Floats shared_gradient(const MaskedSize& size, Operands& of, float factor) {
  Floats out(size.keys, size.kv_heads * size.width, 7.0F);
  test::launch(AttentionMixGradientArgs{.weights = of.weights.view(),
                                        .x = of.x.view(),
                                        .out = out.view(),
                                        .heads = size.heads,
                                        .kv_heads = size.kv_heads,
                                        .factor = factor,
                                        .first_position = size.before,
                                        .first_key = size.first_key,
                                        .window = size.window});
  return out;
}

TEST_F(AttentionGradients, OfTheMixAndTheScores) {
  for (const MaskedSize& size : kMaskedSizes) {
    Operands of(size);
    const Doubles weights = wide(of.weights);
    const Doubles x = wide(of.x);
    const Doubles y = wide(of.y);
    const Floats dv = shared_gradient(size, of, 1.0F);
    const Floats dk = shared_gradient(size, of, static_cast<float>(kFactor));
    Floats dp(size.queries, size.heads * size.keys);
    test::launch(AttentionScoresArgs{
        .q = of.x.view(), .k = of.y.view(), .out = dp.view(), .heads = size.heads, .kv_heads = size.kv_heads});
    Floats dq(size.queries, size.heads * size.width);
    test::launch(AttentionMixArgs{.p = of.weights.view(),
                                  .v = of.y.view(),
                                  .out = dq.view(),
                                  .heads = size.heads,
                                  .kv_heads = size.kv_heads,
                                  .factor = static_cast<float>(kFactor),
                                  .first_position = size.before,
                                  .first_key = size.first_key,
                                  .window = size.window,
                                  .visible_only = true});
    const Bilinear mix{size, 1};
    const Bilinear scores{size, kFactor};
    const std::size_t of_y = mix.step(y.size());
    const std::size_t of_x = mix.step(x.size());
    const std::size_t of_weights = mix.step(weights.size());
    const auto by_y = [&](const Bilinear& op) {
      return central_differences(
          y, [&](const Doubles& v) { return op.loss(weights, x, v); }, of_y);
    };
    expect_gradient("attention_mix_gradient, dV", size.name, by_y(mix), every(mix.formula(weights, x, y).y, of_y),
                    every(dv.data, of_y));
    expect_gradient("attention_mix_gradient, dK", size.name, by_y(scores), every(scores.formula(weights, x, y).y, of_y),
                    every(dk.data, of_y));
    const auto by_x = central_differences(
        x, [&](const Doubles& v) { return scores.loss(weights, v, y); }, of_x);
    expect_gradient("attention_mix, dQ", size.name, by_x, every(scores.formula(weights, x, y).x, of_x),
                    every(dq.data, of_x));
    // A masked probability has no gradient: softmax_gradient does not look at its dP.
    for (std::int64_t t = 0; t < size.queries; ++t) {
      for (std::int64_t at = 0; at < dp.columns; ++at) {
        if (!size.sees(t, at % size.keys)) dp.at(t, at) = 0.0F;
      }
    }
    const auto by_weights = central_differences(
        weights, [&](const Doubles& v) { return mix.loss(v, x, y); }, of_weights);
    expect_gradient("attention_scores, dP", size.name, by_weights,
                    every(mix.formula(weights, x, y).weights, of_weights), every(dp.data, of_weights));
  }
}

/// Keys of the tile of a row's own position are read from elsewhere.
TEST_F(AttentionGradients, OfATileOfItsOwn) {
  const MaskedSize size{"tiled", 70, 20, 90, 33, 2, 1, 0, 0};
  Operands elsewhere(size);
  Operands exact(size);
  for (float& value : exact.weights.data) value = 3 * value + 1;
  for (float& value : exact.x.data) value = 1 - value;
  Floats out(size.keys, size.width, 7.0F);
  test::launch(AttentionMixGradientArgs{.weights = elsewhere.weights.view(),
                                        .exact_weights = exact.weights.view(),
                                        .x = elsewhere.x.view(),
                                        .exact_x = exact.x.view(),
                                        .out = out.view(),
                                        .heads = size.heads,
                                        .first_position = size.before,
                                        .own_position = size.before,
                                        .tile = 32});
  Doubles expected(out.data.size());
  for (std::int64_t at = 0; at < size.queries * size.heads * size.keys; ++at) {
    const std::int64_t s = at % size.keys;
    const std::int64_t h = at / size.keys % size.heads;
    const std::int64_t t = at / size.keys / size.heads;
    const Operands& of = (size.before + t) / 32 == s / 32 ? exact : elsewhere;
    for (std::int64_t i = 0; i < size.width && size.sees(t, s); ++i) {
      expected[static_cast<std::size_t>(s * size.width + i)] +=
          double{of.weights.at(t, h * size.keys + s)} * of.x.at(t, h * size.width + i);
    }
  }
  EXPECT_LE(test::relative_error(wide(out), expected), 1e-6);
}

// Cross entropy.

TEST_F(AttentionGradients, OfTheCrossEntropy) {
  const double factor = 0.03F;
  for (const cases::Shape& shape : cases::shapes()) {
    for (const float amplitude : {4.0F, 30.0F}) {
      if (shape.fill != cases::Fill::ordinary) continue;
      Floats logits = random_floats(shape.rows, shape.columns, 221, amplitude);
      Indices targets(shape.rows, 1);
      for (std::int64_t t = 0; t < shape.rows; ++t) targets.at(t, 0) = static_cast<std::int32_t>(t * 17) - 1;
      Floats found(shape.rows, shape.columns, 7.0F);
      test::launch(CrossEntropyGradientArgs{logits.view(), targets.view(), found.view(), static_cast<float>(factor)});
      Doubles differences;
      Doubles formula;
      for (std::int64_t t = 0; t < shape.rows; ++t) {
        const std::int32_t target = targets.at(t, 0);
        const auto at = static_cast<std::size_t>(std::max(target, 0));
        const auto loss = [&](const Doubles& row) {
          double total = 0;
          for (const double x : row) total += std::exp(x - row[at]);
          return target < 0 ? 0 : factor * std::log(total);
        };
        const Doubles row = wide(logits, t, 0, shape.columns);
        const Doubles slopes = central_differences(row, loss);
        differences.insert(differences.end(), slopes.begin(), slopes.end());
        Doubles p = softmax_row(row, std::vector<bool>(row.size(), true), {});
        p[at] -= 1;
        for (const double value : p) formula.push_back(target < 0 ? 0 : factor * value);
      }
      expect_gradient("cross_entropy_gradient", shape.name, differences, formula, wide(found));
    }
  }
}

}  // namespace
}  // namespace nanscope::kernels
