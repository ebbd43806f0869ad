// Gradients of ops that work row by row, element by element or are linear: see gradient_test.h.
#include <utility>

#include "kernels/ops/activation_gradient.h"
#include "kernels/ops/column_sum.h"
#include "kernels/ops/embedding_gradient.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/hadamard.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/layer_norm_gradient.h"
#include "kernels/ops/layer_norm_weight_gradient.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/softcap.h"
#include "kernels/ops/softcap_gradient.h"
#include "kernels/ops/transpose.h"
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

class Gradients : public test::GradientTest {};

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kRootTwoByPi = 0.79788456080286535588;
constexpr double kRootByTwoPi = 0.39894228040143267794;

std::vector<cases::Shape> ordinary_shapes() {
  std::vector<cases::Shape> ordinary;
  for (const cases::Shape& shape : cases::shapes()) {
    if (shape.fill == cases::Fill::ordinary) ordinary.push_back(shape);
  }
  return ordinary;
}

// ---- Activations ----

struct Kind {
  const char* name;
  ActivationKind kind;
};
constexpr Kind kKinds[] = {
    {"silu", ActivationKind::silu},
    {"gelu", ActivationKind::gelu},
    {"gelu_tanh", ActivationKind::gelu_tanh},
    {"relu_squared", ActivationKind::relu_squared},
    {"glu", ActivationKind::glu},
    {"swiglu", ActivationKind::swiglu},
    {"geglu_tanh", ActivationKind::geglu_tanh},
    {"swiglu_clamped", ActivationKind::swiglu_clamped},
};
constexpr double kAlpha = 1.702F;
constexpr double kLimit = 3;

/// The forward op as activation.h defines it.
double activation(ActivationKind kind, double x, double up) {
  const double tanh_form = 0.5 * x * (1 + std::tanh(kRootTwoByPi * (x + 0.044715 * x * x * x)));
  switch (kind) {
    case ActivationKind::silu:
      return x * logistic(x);
    case ActivationKind::gelu:
      return 0.5 * x * (1 + std::erf(x * kRootHalf));
    case ActivationKind::gelu_tanh:
      return tanh_form;
    case ActivationKind::relu_squared:
      return x > 0 ? x * x : 0;
    case ActivationKind::glu:
      return logistic(x) * up;
    case ActivationKind::swiglu:
      return x * logistic(x) * up;
    case ActivationKind::geglu_tanh:
      return tanh_form * up;
    case ActivationKind::swiglu_clamped:
      break;
  }
  const double g = std::min(x, kLimit);
  return (std::clamp(up, -kLimit, kLimit) + 1) * g * logistic(kAlpha * g);
}

/// d/dx and d/dup by the formulas of activation_gradient.h.
std::pair<double, double> activation_slopes(ActivationKind kind, double x, double up) {
  const double s = logistic(x);
  const double silu = s * (1 + x * (1 - s));
  const double t = std::tanh(kRootTwoByPi * (x + 0.044715 * x * x * x));
  const double gelu_tanh = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRootTwoByPi * (1 + 3 * 0.044715 * x * x);
  switch (kind) {
    case ActivationKind::silu:
      return {silu, 0};
    case ActivationKind::gelu:
      return {0.5 * (1 + std::erf(x * kRootHalf)) + x * std::exp(-x * x / 2) * kRootByTwoPi, 0};
    case ActivationKind::gelu_tanh:
      return {gelu_tanh, 0};
    case ActivationKind::relu_squared:
      return {x > 0 ? 2 * x : 0, 0};
    case ActivationKind::glu:
      return {up * s * (1 - s), s};
    case ActivationKind::swiglu:
      return {up * silu, x * s};
    case ActivationKind::geglu_tanh:
      return {up * gelu_tanh, 0.5 * x * (1 + t)};
    case ActivationKind::swiglu_clamped:
      break;
  }
  const double g = std::min(x, kLimit);
  const double sg = logistic(kAlpha * g);
  const double dx = x > kLimit ? 0 : (std::clamp(up, -kLimit, kLimit) + 1) * sg * (1 + kAlpha * g * (1 - sg));
  return {dx, std::abs(up) > kLimit ? 0 : g * sg};
}

TEST_F(Gradients, OfActivations) {
  for (const Kind& kind : kKinds) {
    for (const cases::Shape& shape : ordinary_shapes()) {
      Floats x = random_floats(shape.rows, shape.columns, 101, 4.0F);
      Floats up = random_floats(shape.rows, shape.columns, 102, 4.0F);
      Floats dout = random_floats(shape.rows, shape.columns, 103);
      Floats dx(shape.rows, shape.columns);
      Floats dup(shape.rows, shape.columns);
      ActivationGradientArgs args{.x = x.view(), .dout = dout.view(), .out = dx.view(), .kind = kind.kind};
      args.limit = static_cast<float>(kLimit);
      if (is_gated(kind.kind)) {
        args.up = up.view();
        args.up_out = dup.view();
      }
      test::launch(args);
      Doubles differences[2];
      Doubles formula[2];
      for (std::size_t i = 0; i < x.data.size(); ++i) {
        const double at = x.data[i];
        const double by = up.data[i];
        const double d = dout.data[i];
        const auto of_x = [&](const Doubles& v) { return activation(kind.kind, v[0], by); };
        const auto of_up = [&](const Doubles& v) { return activation(kind.kind, at, v[0]); };
        differences[0].push_back(d * central_differences({at}, of_x)[0]);
        differences[1].push_back(d * central_differences({by}, of_up)[0]);
        const auto slopes = activation_slopes(kind.kind, at, by);
        formula[0].push_back(d * slopes.first);
        formula[1].push_back(d * slopes.second);
      }
      const std::string op = std::string("activation_gradient ") + kind.name;
      expect_gradient(op, shape.name, differences[0], formula[0], wide(dx));
      if (is_gated(kind.kind)) expect_gradient(op + ", up", shape.name, differences[1], formula[1], wide(dup));
    }
  }
}

TEST_F(Gradients, OfSoftcap) {
  for (const cases::Shape& shape : ordinary_shapes()) {
    const double cap = 3;
    Floats x = random_floats(shape.rows, shape.columns, 104, 4.0F);
    Floats dout = random_floats(shape.rows, shape.columns, 105);
    Floats y(shape.rows, shape.columns);
    Floats dx(shape.rows, shape.columns);
    test::launch(SoftcapArgs{.x = x.view(), .out = y.view(), .cap = 3.0F});
    test::launch(SoftcapGradientArgs{.y = y.view(), .dout = dout.view(), .out = dx.view(), .cap = 3.0F});
    Doubles differences;
    Doubles formula;
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      const double d = dout.data[i];
      const auto capped = [&](const Doubles& v) { return cap * std::tanh(v[0] / cap); };
      differences.push_back(d * central_differences({double{x.data[i]}}, capped)[0]);
      const double r = std::tanh(x.data[i] / cap);
      formula.push_back(d * (1 - r * r));
    }
    expect_gradient("softcap_gradient", shape.name, differences, formula, wide(dx));
  }
}

// ---- Norms ----

struct NormForm {
  const char* name;
  NormKind kind;
  VarianceForm variance;
  bool contract;
  bool clamp;
  bool reciprocal;
};
constexpr NormForm kNormForms[] = {
    {"one_pass", NormKind::layer_norm, VarianceForm::one_pass, false, false, false},
    {"one_pass_contract", NormKind::layer_norm, VarianceForm::one_pass, true, false, false},
    {"one_pass_clamp", NormKind::layer_norm, VarianceForm::one_pass, false, true, false},
    {"one_pass_reciprocal", NormKind::layer_norm, VarianceForm::one_pass, false, false, true},
    {"two_pass", NormKind::layer_norm, VarianceForm::two_pass, false, false, false},
    {"welford", NormKind::layer_norm, VarianceForm::welford, false, false, false},
    {"rms", NormKind::rms_norm, VarianceForm::two_pass, false, false, false},
};
constexpr double kEps = 1e-5F;

/// (x - mean) / sqrt(variance + eps), the forward op of one group, and the inverse root.
std::pair<Doubles, double> normalised(NormKind kind, Doubles x) {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  double variance = 0;
  if (kind == NormKind::layer_norm) {
    for (const double value : x) mean += value / n;
  }
  for (const double value : x) variance += (value - mean) * (value - mean) / n;
  const double inverse = 1 / std::sqrt(variance + kEps);
  for (double& value : x) value = (value - mean) * inverse;
  return {x, inverse};
}

struct NormRun {
  NormForm form;
  SumOrder order;
  std::int64_t groups;
  Floats x, weight, bias, dout;
  Floats stats, dx, dweight, dbias;

  NormRun(const NormForm& of, SumOrder sums, std::int64_t rows, std::int64_t count, std::int64_t width)
      : form(of),
        order(sums),
        groups(count),
        x(random_floats(rows, count * width, 111, 4.0F)),
        weight(random_floats(1, width, 112, 4.0F)),
        bias(random_floats(1, width, 113, 4.0F)),
        dout(random_floats(rows, count * width, 114)),
        stats(rows, count * 3),
        dx(rows, count * width),
        dweight(1, width),
        dbias(1, width) {
    Floats y(rows, count * width);
    test::launch(LayerNormArgs{.x = x.view(),
                               .weight = weight.view(),
                               .bias = bias.view(),
                               .out = y.view(),
                               .stats = stats.view(),
                               .groups = groups,
                               .kind = form.kind,
                               .variance = form.variance,
                               .order = order,
                               .contract = form.contract,
                               .clamp = form.clamp,
                               .mean_by_reciprocal = form.reciprocal});
    test::launch(LayerNormGradientArgs{.x = x.view(),
                                       .weight = weight.view(),
                                       .stats = stats.view(),
                                       .dout = dout.view(),
                                       .out = dx.view(),
                                       .groups = groups,
                                       .kind = form.kind});
    test::launch(LayerNormWeightGradientArgs{.x = x.view(),
                                             .stats = stats.view(),
                                             .dout = dout.view(),
                                             .weight_out = dweight.view(),
                                             .bias_out = dbias.view(),
                                             .groups = groups,
                                             .kind = form.kind});
  }
};

/// dx of one group by the formula of layer_norm_gradient.h.
Doubles norm_formula(NormKind kind, const Doubles& x, const Doubles& g) {
  const auto [h, inverse] = normalised(kind, x);
  const auto n = static_cast<double>(x.size());
  double plain = 0;
  double along = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    plain += kind == NormKind::layer_norm ? g[i] / n : 0;
    along += g[i] * h[i] / n;
  }
  Doubles dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) dx[i] = inverse * (g[i] - plain - h[i] * along);
  return dx;
}

struct NormSums {
  Doubles input_differences, input_formula, weight, bias;
};

NormSums norm_reference(const NormRun& run) {
  const std::int64_t width = run.weight.columns;
  NormSums sums{{}, {}, Doubles(run.weight.data.size()), Doubles(run.weight.data.size())};
  for (std::int64_t at = 0; at < run.x.rows * run.groups; ++at) {
    const std::int64_t row = at / run.groups;
    const std::int64_t first = at % run.groups * width;
    const Doubles x = wide(run.x, row, first, width);
    Doubles g = wide(run.dout, row, first, width);
    const Doubles h = normalised(run.form.kind, x).first;
    for (std::size_t i = 0; i < g.size(); ++i) {
      sums.weight[i] += g[i] * h[i];
      sums.bias[i] += g[i];
      g[i] *= run.weight.data[i];
    }
    const auto loss = [&](const Doubles& v) {
      const Doubles y = normalised(run.form.kind, v).first;
      double total = 0;
      for (std::size_t i = 0; i < y.size(); ++i) total += g[i] * y[i];
      return total;
    };
    const Doubles differences = central_differences(x, loss);
    const Doubles formula = norm_formula(run.form.kind, x, g);
    sums.input_differences.insert(sums.input_differences.end(), differences.begin(), differences.end());
    sums.input_formula.insert(sums.input_formula.end(), formula.begin(), formula.end());
  }
  return sums;
}

/// Of weight and bias: the output is linear in both.
std::pair<Doubles, Doubles> norm_weight_differences(const NormRun& run) {
  const std::int64_t width = run.weight.columns;
  std::vector<Doubles> h;
  for (std::int64_t at = 0; at < run.x.rows * run.groups; ++at) {
    h.push_back(normalised(run.form.kind, wide(run.x, at / run.groups, at % run.groups * width, width)).first);
  }
  const auto loss = [&](const Doubles& weight, const Doubles& bias) {
    double total = 0;
    for (std::size_t at = 0; at < h.size(); ++at) {
      for (std::size_t i = 0; i < weight.size(); ++i) {
        total += double{run.dout.data[at * weight.size() + i]} * (h[at][i] * weight[i] + bias[i]);
      }
    }
    return total;
  };
  const Doubles weight = wide(run.weight);
  const Doubles bias = wide(run.bias);
  return {central_differences(weight, [&](const Doubles& v) { return loss(v, bias); }),
          central_differences(bias, [&](const Doubles& v) { return loss(weight, v); })};
}

void expect_norm(const NormRun& run, const std::string& label,
                 const std::function<void(const std::string&, const std::string&, const Doubles&, const Doubles&,
                                          const Doubles&)>& expect) {
  const NormSums reference = norm_reference(run);
  const auto [weight, bias] = norm_weight_differences(run);
  expect("layer_norm_gradient", label, reference.input_differences, reference.input_formula, wide(run.dx));
  expect("layer_norm_weight_gradient", label, weight, reference.weight, wide(run.dweight));
  expect("layer_norm_weight_gradient, bias", label, bias, reference.bias, wide(run.dbias));
}

TEST_F(Gradients, OfNorms) {
  for (const NormForm& form : kNormForms) {
    for (const SumOrder order : {SumOrder::sequential, SumOrder::warp, SumOrder::pairwise}) {
      for (const cases::Shape& shape : ordinary_shapes()) {
        expect_norm(NormRun(form, order, shape.rows, 1, shape.columns),
                    fmt::format("{} {} {}", form.name, static_cast<int>(order), shape.name), expect_gradient);
      }
    }
    expect_norm(NormRun(form, SumOrder::warp, 3, 3, 77), std::string(form.name) + " groups", expect_gradient);
  }
}

// ---- Linear ops ----

TEST_F(Gradients, OfALinearLayer) {
  const std::int64_t rows = 37;
  const std::int64_t in = 33;
  const std::int64_t out = 70;
  Floats x = random_floats(rows, in, 121);
  Floats weight = random_floats(out, in, 122);
  Floats dy = random_floats(rows, out, 123);
  Floats x_t(in, rows);
  Floats weight_t(in, out);
  Floats dy_t(out, rows);
  for (const auto& [from, to] : {std::pair{&x, &x_t}, {&weight, &weight_t}, {&dy, &dy_t}}) {
    test::launch(TransposeArgs{from->view(), to->view()});
  }
  Floats dx(rows, in);
  Floats dweight(out, in);
  Floats dbias(1, out);
  test::launch(GemmArgs{.x = dy.view(), .weight = weight_t.view(), .packed = {}, .bias = {}, .out = dx.view()});
  test::launch(GemmArgs{.x = dy_t.view(), .weight = x_t.view(), .packed = {}, .bias = {}, .out = dweight.view()});
  test::launch(ColumnSumArgs{dy.view(), dbias.view()});
  Doubles formula[3] = {Doubles(dx.data.size()), Doubles(dweight.data.size()), Doubles(dbias.data.size())};
  const auto loss = [&](const Doubles& xs, const Doubles& weights, const Doubles& biases, bool slopes = false) {
    double total = 0;
    for (std::size_t t = 0; t < static_cast<std::size_t>(rows); ++t) {
      for (std::size_t n = 0; n < static_cast<std::size_t>(out); ++n) {
        const double d = dy.data[t * static_cast<std::size_t>(out) + n];
        double y = biases[n];
        for (std::size_t k = 0; k < static_cast<std::size_t>(in); ++k) {
          const std::size_t at_x = t * static_cast<std::size_t>(in) + k;
          const std::size_t at_weight = n * static_cast<std::size_t>(in) + k;
          y += xs[at_x] * weights[at_weight];
          if (!slopes) continue;
          formula[0][at_x] += d * weights[at_weight];
          formula[1][at_weight] += d * xs[at_x];
        }
        if (slopes) formula[2][n] += d;
        total += d * y;
      }
    }
    return total;
  };
  const Doubles biases(static_cast<std::size_t>(out), 0.5);
  const Doubles xs = wide(x);
  const Doubles weights = wide(weight);
  loss(xs, weights, biases, true);
  const std::size_t step = step_for(in * out, rows * in * out);
  const auto of_x = [&](const Doubles& v) { return loss(v, weights, biases); };
  const auto of_weight = [&](const Doubles& v) { return loss(xs, v, biases); };
  const auto of_bias = [&](const Doubles& v) { return loss(xs, weights, v); };
  expect_gradient("gemm of transposes, x", "", central_differences(xs, of_x, step), every(formula[0], step),
                  every(dx.data, step));
  expect_gradient("gemm of transposes, weight", "", central_differences(weights, of_weight, step),
                  every(formula[1], step), every(dweight.data, step));
  expect_gradient("column_sum", "", central_differences(biases, of_bias), formula[2], wide(dbias));
}

TEST_F(Gradients, OfALookup) {
  const std::int64_t rows = 70;
  const std::int64_t vocabulary = 9;
  const std::int64_t width = 37;
  Indices tokens(rows, 1);
  for (std::int64_t i = 0; i < rows; ++i) tokens.at(i, 0) = static_cast<std::int32_t>(i * 5 % 11) - 1;  // -1 to 9
  Floats dout = random_floats(rows, width, 131);
  const Doubles table = wide(random_floats(vocabulary, width, 132));
  Floats found(vocabulary, width, 7.0F);
  test::launch(EmbeddingGradientArgs{tokens.view(), dout.view(), found.view(), 1.5F});
  const auto known = [&](std::int32_t token) { return token >= 0 && token < vocabulary; };
  const auto loss = [&](const Doubles& values) {
    double total = 0;
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t i = 0; i < width && known(tokens.at(t, 0)); ++i) {
        total += double{dout.at(t, i)} * 1.5 * values[static_cast<std::size_t>(tokens.at(t, 0) * width + i)];
      }
    }
    return total;
  };
  Doubles formula(table.size());
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t i = 0; i < width && known(tokens.at(t, 0)); ++i) {
      formula[static_cast<std::size_t>(tokens.at(t, 0) * width + i)] += 1.5 * dout.at(t, i);
    }
  }
  expect_gradient("embedding_gradient", "", central_differences(table, loss), formula, wide(found));
}

struct Turn {
  const char* name;
  std::int64_t width;
  std::int64_t rotated;  ///< channels that frequencies are given for; 0: none are given
  std::int64_t position;
  double stretch;
};

/// The rotation of one row as rope.h defines it, in a direction.
Doubles rotated(const Turn& turn, const Floats& frequencies, const Doubles& x, std::int64_t position, double sign) {
  const auto width = static_cast<std::size_t>(turn.width);
  const std::size_t half = turn.rotated > 0 ? frequencies.data.size() : width / 2;
  const double d = static_cast<double>(turn.width);
  const double base = 10000.0 * std::pow(turn.stretch, d / (d - 2));
  Doubles y = x;
  for (std::size_t head = 0; head < x.size(); head += width) {
    for (std::size_t i = 0; i < half; ++i) {
      const double frequency = turn.rotated > 0 ? frequencies.data[i] : std::pow(base, -2 * static_cast<double>(i) / d);
      const double angle = static_cast<double>(position) * frequency;
      const double cosine = std::cos(angle) * double{1.19F};
      const double sine = sign * std::sin(angle) * double{1.19F};
      y[head + i] = x[head + i] * cosine - x[head + i + half] * sine;
      y[head + i + half] = x[head + i + half] * cosine + x[head + i] * sine;
    }
  }
  return y;
}

TEST_F(Gradients, OfRope) {
  const Turn turns[] = {{"d64", 64, 0, 0, 1},
                        {"d10_far", 10, 0, 123456, 1},
                        {"d64_stretched", 64, 0, 300, 3.25},
                        {"table", 64, 64, 1000, 1},
                        {"table_partial", 100, 70, 1000, 1}};
  for (const Turn& turn : turns) {
    Floats dout = random_floats(4, 3 * turn.width, 141);
    Floats dx(4, 3 * turn.width);
    Floats frequencies = random_floats(1, std::max<std::int64_t>(turn.rotated / 2, 1), 142, 2.0F);
    RopeArgs args{.x = dout.view(),
                  .out = dx.view(),
                  .frequencies = {},
                  .heads = 3,
                  .first_position = turn.position,
                  .stretch = turn.stretch};
    if (turn.rotated > 0) args.frequencies = frequencies.view();
    args.amplitude = 1.19F;
    args.inverse = true;
    test::launch(args);
    Doubles differences;
    Doubles formula;
    for (std::int64_t row = 0; row < 4; ++row) {
      const Doubles d = wide(dout, row, 0, dout.columns);
      const auto loss = [&](const Doubles& x) {
        const Doubles y = rotated(turn, frequencies, x, turn.position + row, 1);
        double total = 0;
        for (std::size_t i = 0; i < y.size(); ++i) total += d[i] * y[i];
        return total;
      };
      const Doubles slopes = central_differences(Doubles(d.size(), 0.25), loss);
      const Doubles back = rotated(turn, frequencies, d, turn.position + row, -1);
      differences.insert(differences.end(), slopes.begin(), slopes.end());
      formula.insert(formula.end(), back.begin(), back.end());
    }
    expect_gradient("rope, inverse", turn.name, differences, formula, wide(dx));
  }
}

TEST_F(Gradients, OfHadamard) {
  const std::int64_t width = 32;
  Floats dout = random_floats(3, 2 * width, 151);
  Floats dx(3, 2 * width);
  test::launch(HadamardArgs{.x = dout.view(), .out = dx.view(), .heads = 2});
  const auto entry = [](std::size_t i, std::size_t j) { return __builtin_parityll(i & j) != 0 ? -1.0 : 1.0; };
  Doubles differences;
  Doubles formula;
  for (std::int64_t at = 0; at < 6; ++at) {
    const Doubles d = wide(dout, at / 2, at % 2 * width, width);
    const auto loss = [&](const Doubles& x) {
      double total = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        for (std::size_t j = 0; j < x.size(); ++j) total += d[i] * entry(i, j) * x[j] / std::sqrt(32.0);
      }
      return total;
    };
    const Doubles slopes = central_differences(Doubles(d.size(), 0.25), loss);
    differences.insert(differences.end(), slopes.begin(), slopes.end());
    for (std::size_t j = 0; j < d.size(); ++j) {
      double total = 0;
      for (std::size_t i = 0; i < d.size(); ++i) total += d[i] * entry(i, j) / std::sqrt(32.0);
      formula.push_back(total);
    }
  }
  expect_gradient("hadamard", "", differences, formula, wide(dx));
}

}  // namespace
}  // namespace nanscope::kernels
