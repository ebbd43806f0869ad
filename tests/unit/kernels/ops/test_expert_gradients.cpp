// Gradients of a mixture of experts: see gradient_test.h.
#include <algorithm>
#include <optional>

#include "kernels/ops/expert_mix_gradient.h"
#include "kernels/ops/gated_add_gradient.h"
#include "kernels/ops/route.h"
#include "kernels/ops/route_gradient.h"
#include "tests/unit/kernels/ops/gradient_test.h"

namespace nanscope::kernels {
namespace {

using test::central_differences;
using test::Doubles;
using test::every;
using test::Floats;
using test::Indices;
using test::logistic;
using test::random_floats;
using test::step_for;
using test::wide;

class ExpertGradients : public test::GradientTest {};

TEST_F(ExpertGradients, OfTheGatedSum) {
  for (const cases::Shape& shape : cases::shapes()) {
    if (shape.fill != cases::Fill::ordinary) continue;
    Floats b = random_floats(shape.rows, shape.columns, 301);
    // As far as 30, where 1 - sigmoid has nothing left.
    Floats gate = random_floats(shape.rows, 1, 302, 30.0F);
    Floats dout = random_floats(shape.rows, shape.columns, 303);
    Floats db(shape.rows, shape.columns);
    Floats dgate(shape.rows, 1);
    test::launch(GatedAddGradientArgs{
        .b = b.view(), .gate = gate.view(), .dout = dout.view(), .b_out = db.view(), .gate_out = dgate.view()});
    Doubles differences[2];
    Doubles formula[2];
    for (std::int64_t t = 0; t < shape.rows; ++t) {
      const double g = gate.at(t, 0);
      double along = 0;
      for (std::int64_t i = 0; i < shape.columns; ++i) {
        const double d = dout.at(t, i);
        const auto of_b = [&](const Doubles& v) { return d * logistic(g) * v[0]; };
        differences[0].push_back(central_differences({double{b.at(t, i)}}, of_b)[0]);
        formula[0].push_back(d * logistic(g));
        along += d * b.at(t, i);
      }
      const auto of_gate = [&](const Doubles& v) { return along * logistic(v[0]); };
      differences[1].push_back(central_differences({g}, of_gate)[0]);
      formula[1].push_back(along * logistic(g) * logistic(-g));
    }
    expect_gradient("gated_add_gradient", shape.name, differences[0], formula[0], wide(db));
    expect_gradient("gated_add_gradient, gate", shape.name, differences[1], formula[1], wide(dgate));
  }
}

struct MixSize {
  const char* name;
  std::int64_t tokens, width, experts, chosen;
};
constexpr MixSize kMixSizes[] = {
    {"one", 1, 1, 2, 1},    {"ordinary", 4, 64, 8, 2}, {"ragged", 7, 77, 5, 3},
    {"wide", 2, 300, 3, 3}, {"many", 3, 20, 90, 32},
};

/// Distinct experts of each token.
Indices chosen_experts(const MixSize& size) {
  Indices ids(size.tokens, size.chosen);
  for (std::int64_t t = 0; t < size.tokens; ++t) {
    for (std::int64_t j = 0; j < size.chosen; ++j) {
      ids.at(t, j) = static_cast<std::int32_t>((5 * t + j) % size.experts);
    }
  }
  return ids;
}

TEST_F(ExpertGradients, OfTheWeighedSum) {
  for (const MixSize& size : kMixSizes) {
    Floats experts = random_floats(size.experts * size.tokens, size.width, 311, 4.0F);
    Floats weights = random_floats(size.tokens, size.chosen, 312);
    Floats dout = random_floats(size.tokens, size.width, 313);
    Indices ids = chosen_experts(size);
    Floats dweights(size.tokens, size.chosen, 7.0F);
    Floats dexperts(size.experts * size.tokens, size.width, 7.0F);
    test::launch(ExpertMixGradientArgs{.experts = experts.view(),
                                       .weights = weights.view(),
                                       .ids = ids.view(),
                                       .dout = dout.view(),
                                       .weights_out = dweights.view(),
                                       .experts_out = dexperts.view()});
    const auto width = static_cast<std::size_t>(size.width);
    Doubles formula[2] = {Doubles(weights.data.size()), Doubles(experts.data.size())};
    /// The forward op in double; with `slopes` its gradients too.
    const auto loss = [&](const Doubles& by, const Doubles& from, bool slopes = false) {
      double total = 0;
      for (std::size_t at = 0; at < by.size(); ++at) {
        const std::size_t token = at / static_cast<std::size_t>(size.chosen);
        const auto expert = static_cast<std::size_t>(ids.data[at]);
        const std::size_t row = (expert * static_cast<std::size_t>(size.tokens) + token) * width;
        for (std::size_t i = 0; i < width; ++i) {
          const double d = dout.data[token * width + i];
          total += d * by[at] * from[row + i];
          if (!slopes) continue;
          formula[0][at] += d * from[row + i];
          formula[1][row + i] += d * by[at];
        }
      }
      return total;
    };
    const Doubles by = wide(weights);
    const Doubles from = wide(experts);
    loss(by, from, true);
    const std::size_t step = step_for(static_cast<std::int64_t>(from.size()), size.tokens * size.chosen * size.width);
    const auto of_weights = central_differences(by, [&](const Doubles& v) { return loss(v, from); });
    const auto of_experts = central_differences(
        from, [&](const Doubles& v) { return loss(by, v); }, step);
    expect_gradient("expert_mix_gradient, weights", size.name, of_weights, formula[0], wide(dweights));
    expect_gradient("expert_mix_gradient", size.name, of_experts, every(formula[1], step), every(dexperts.data, step));
  }
}

/// An expert that is named twice has both weights.
TEST_F(ExpertGradients, OfAnExpertThatIsNamedTwice) {
  Floats experts = random_floats(2, 3, 314);
  Floats weights(1, 3, {0.5F, 0.25F, 4.0F});
  Floats dout(1, 3, {1.0F, 2.0F, -3.0F});
  Indices ids(1, 3, {1, 1, 7});
  Floats dweights(1, 3, 7.0F);
  Floats dexperts(2, 3, 7.0F);
  test::launch(ExpertMixGradientArgs{.experts = experts.view(),
                                     .weights = weights.view(),
                                     .ids = ids.view(),
                                     .dout = dout.view(),
                                     .weights_out = dweights.view(),
                                     .experts_out = dexperts.view()});
  EXPECT_EQ(dexperts.data, (std::vector<float>{0, 0, 0, 0.75F, 1.5F, -2.25F}));
  EXPECT_EQ(dweights.at(0, 0), dweights.at(0, 1));
  EXPECT_EQ(dweights.at(0, 2), 0.0F) << "it names no expert";
}

struct RouterForm {
  const char* name;
  RouterScore score;
  RouterValue value;
  bool normalise;
  float eps;
};
constexpr RouterForm kRouterForms[] = {
    {"sigmoid", RouterScore::sigmoid, RouterValue::gate, true, 0.0F},
    {"sigmoid, eps", RouterScore::sigmoid, RouterValue::gate, true, 0.25F},
    {"sigmoid, bias", RouterScore::sigmoid, RouterValue::choice_minus_bias, true, 0.0F},
    {"sigmoid as it is", RouterScore::sigmoid, RouterValue::gate, false, 0.0F},
    {"softmax", RouterScore::softmax, RouterValue::gate, true, 0.0F},
    {"softmax, eps", RouterScore::softmax, RouterValue::gate, true, 0.25F},
    {"softmax as it is", RouterScore::softmax, RouterValue::gate, false, 0.0F},
    {"softmax of chosen", RouterScore::softmax_of_chosen, RouterValue::gate, true, 0.0F},
    {"softmax of chosen, eps", RouterScore::softmax_of_chosen, RouterValue::gate, true, 0.25F},
    {"softmax of chosen as it is", RouterScore::softmax_of_chosen, RouterValue::gate, false, 0.0F},
};

/// The weights of the experts `ids`, which were chosen before: the forward op as route.h defines it.
Doubles routed(const RouterForm& form, const Doubles& logits, const std::vector<std::size_t>& ids) {
  double normaliser = 0;
  const double max = *std::max_element(logits.begin(), logits.end());
  for (const double logit : logits) normaliser += std::exp(logit - max);
  Doubles values;
  double total = 0;
  for (const std::size_t id : ids) {
    double value = logistic(logits[id]);
    if (form.score == RouterScore::softmax) value = std::exp(logits[id] - max) / normaliser;
    if (form.score == RouterScore::softmax_of_chosen) value = std::exp(logits[id] - logits[ids[0]]);
    values.push_back(value);
    total += value;
  }
  for (double& value : values) value = form.normalise ? value / (total + double{form.eps}) : value;
  return values;
}

/// The Jacobian of a row, times dweights: by the formulas of route_gradient.h, but for pairs and what is left of 1.
Doubles route_slopes(const RouterForm& form, const Doubles& logits, const std::vector<std::size_t>& ids,
                     const Doubles& dw) {
  RouterForm plain = form;
  plain.normalise = false;
  const Doubles values = routed(plain, logits, ids);
  double divisor = double{form.eps};
  double along = 0;
  for (std::size_t j = 0; j < ids.size(); ++j) {
    divisor += values[j];
    along += values[j] * dw[j];
  }
  Doubles dvalues = dw;
  for (std::size_t j = 0; form.normalise && j < ids.size(); ++j) {
    dvalues[j] = dw[j] / divisor - along / (divisor * divisor);
  }
  double mean = 0;
  for (std::size_t j = 0; j < ids.size(); ++j) mean += values[j] * dvalues[j];
  Doubles slopes(logits.size());
  if (form.score == RouterScore::softmax) {
    const Doubles gates = routed({"", RouterScore::softmax, RouterValue::gate, false, 0}, logits, [&] {
      std::vector<std::size_t> all(logits.size());
      for (std::size_t e = 0; e < all.size(); ++e) all[e] = e;
      return all;
    }());
    for (std::size_t e = 0; e < gates.size(); ++e) slopes[e] = -gates[e] * mean;
    for (std::size_t j = 0; j < ids.size(); ++j) slopes[ids[j]] += values[j] * dvalues[j];
    return slopes;
  }
  for (std::size_t j = 0; j < ids.size(); ++j) {
    const double own = form.score == RouterScore::sigmoid ? logistic(-logits[ids[j]]) : 1;
    slopes[ids[j]] = values[j] * own * dvalues[j];
  }
  if (form.score == RouterScore::softmax_of_chosen) slopes[ids[0]] -= mean;
  return slopes;
}

TEST_F(ExpertGradients, OfTheRouter) {
  for (const RouterForm& form : kRouterForms) {
    for (const MixSize& size : kMixSizes) {
      for (const float amplitude : {1.0F, 6.0F}) {
        Floats logits = random_floats(size.tokens, size.experts, 321, amplitude);
        Floats bias = random_floats(1, size.experts, 322, 0.25F);
        Floats dweights = random_floats(size.tokens, size.chosen, 323);
        Floats weights(size.tokens, size.chosen);
        Indices ids(size.tokens, size.chosen);
        Floats found(size.tokens, size.experts, 7.0F);
        const bool biased = form.value == RouterValue::choice_minus_bias;
        // What a bias takes off a small gate is not the gradient's to know.
        if (biased && amplitude > 1) continue;
        const TensorView choice = biased ? bias.view() : TensorView{};
        test::launch(RouteArgs{.logits = logits.view(),
                               .bias = choice,
                               .weights = weights.view(),
                               .ids = ids.view(),
                               .score = form.score,
                               .value = form.value,
                               .normalise = form.normalise,
                               .eps = form.eps});
        test::launch(RouteGradientArgs{.logits = logits.view(),
                                       .bias = choice,
                                       .ids = ids.view(),
                                       .dweights = dweights.view(),
                                       .out = found.view(),
                                       .score = form.score,
                                       .value = form.value,
                                       .normalise = form.normalise,
                                       .eps = form.eps});
        if (size.chosen == 1 && form.normalise && form.eps == 0) {
          for (const float value : found.data) EXPECT_EQ(test::bits(value), 0U) << form.name << ": the weight is 1";
          continue;
        }
        Doubles differences;
        Doubles formula;
        for (std::int64_t t = 0; t < size.tokens; ++t) {
          const Doubles row = wide(logits, t, 0, size.experts);
          const Doubles dw = wide(dweights, t, 0, size.chosen);
          std::vector<std::size_t> own;
          for (std::int64_t j = 0; j < size.chosen; ++j) own.push_back(static_cast<std::size_t>(ids.at(t, j)));
          const auto loss = [&](const Doubles& v) {
            const Doubles w = routed(form, v, own);
            double total = 0;
            for (std::size_t j = 0; j < w.size(); ++j) total += w[j] * dw[j];
            return total;
          };
          const Doubles slopes = central_differences(row, loss);
          const Doubles by_formula = route_slopes(form, row, own, dw);
          differences.insert(differences.end(), slopes.begin(), slopes.end());
          formula.insert(formula.end(), by_formula.begin(), by_formula.end());
        }
        expect_gradient(std::string("route_gradient ") + form.name, fmt::format("{} {}", size.name, amplitude),
                        differences, formula, wide(found));
      }
    }
  }
}

}  // namespace
}  // namespace nanscope::kernels
