#include <fmt/format.h>

#include <algorithm>

#include "kernels/ops/activation_gradient.h"
#include "kernels/ops/column_sum.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/cross_entropy_gradient.h"
#include "kernels/ops/embedding_gradient.h"
#include "kernels/ops/expert_mix_gradient.h"
#include "kernels/ops/gated_add_gradient.h"
#include "kernels/ops/layer_norm_gradient.h"
#include "kernels/ops/layer_norm_weight_gradient.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/route.h"
#include "kernels/ops/route_gradient.h"
#include "kernels/ops/softcap_gradient.h"
#include "kernels/ops/sum_of_squares.h"
#include "kernels/ops/transpose.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

/// A tensor of the shape's rows and so many columns.
TensorView given(CaseMemory& memory, Format format, const Shape& shape, std::int64_t columns, std::uint64_t seed) {
  return memory.input(format, shape.rows, columns, fill(shape.fill, format, shape.rows, columns, seed), shape.padding);
}

TensorView wanted(CaseMemory& memory, const std::string& label, Format format, const Shape& shape,
                  std::int64_t columns) {
  return memory.output(label, format, shape.rows, columns, shape.padding);
}

/// Rows of a table of `rows`: some more than once, one below it and one beyond.
TensorView row_numbers(CaseMemory& memory, const Shape& shape, std::int64_t rows, std::int64_t step) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(shape.rows));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::uint32_t>(static_cast<std::int64_t>(i) * step % rows);
  }
  if (numbers.size() > 2) numbers[1] = 0xffffffffU;
  if (numbers.size() > 3) numbers[2] = static_cast<std::uint32_t>(rows);
  return memory.input(Format::i32, shape.rows, 1, numbers, shape.padding);
}

std::string two_formats(Format from, Format to) {
  return std::string(name(from)) + (from == to ? "" : "_" + std::string(name(to)));
}

void add_transpose(std::vector<OpCase>& cases, Format from, Format to, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    TransposeArgs args;
    args.x = given(memory, from, shape, shape.columns, 61);
    args.out = memory.output("out", to, shape.columns, shape.rows, shape.padding);
    memory.launch(args);
  };
  cases.push_back({"transpose_" + two_formats(from, to) + "_" + shape.name, OpId::Transpose, build});
}

void add_column_sum(std::vector<OpCase>& cases, Format from, Format to, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    ColumnSumArgs args;
    args.x = given(memory, from, shape, shape.columns, 62);
    args.out = memory.output("out", to, 1, shape.columns);
    memory.launch(args);
  };
  cases.push_back({"column_sum_" + two_formats(from, to) + "_" + shape.name, OpId::ColumnSum, build});
}

void add_embedding_gradient(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t rows = 7;
    EmbeddingGradientArgs args;
    args.tokens = row_numbers(memory, shape, rows, 3);
    args.dout = given(memory, format, shape, shape.columns, 63);
    args.out = memory.output("out", Format::f32, rows, shape.columns, shape.padding);
    args.scale = format == Format::f32 ? 1.0F : 6.7F;
    memory.launch(args);
  };
  cases.push_back(
      {"embedding_gradient_" + std::string(name(format)) + "_" + shape.name, OpId::EmbeddingGradient, build});
}

/// How a norm's gradient is taken: one group in f32 with a weight, or three in a narrow format without.
struct NormCase {
  const char* name;
  NormKind kind;
  Format format;
  std::int64_t groups;
};
constexpr NormCase kNormCases[] = {
    {"layer", NormKind::layer_norm, Format::f32, 1},
    {"rms", NormKind::rms_norm, Format::f32, 1},
    {"layer_groups", NormKind::layer_norm, Format::bf16, 3},
    {"rms_groups", NormKind::rms_norm, Format::f16, 3},
};

void add_norm_gradient(std::vector<OpCase>& cases, const NormCase& form, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = form.groups * shape.columns;
    LayerNormGradientArgs args;
    args.x = given(memory, form.format, shape, columns, 64);
    if (form.groups == 1) {
      args.weight = memory.input(Format::bf16, 1, columns, fill(Fill::ordinary, Format::bf16, 1, columns, 65));
    }
    args.stats = given(memory, Format::f32, shape, form.groups * 3, 66);
    args.dout = given(memory, Format::f32, shape, columns, 67);
    args.out = wanted(memory, "out", form.format, shape, columns);
    args.groups = form.groups;
    args.kind = form.kind;
    memory.launch(args);
  };
  cases.push_back({fmt::format("layer_norm_gradient_{}_{}", form.name, shape.name), OpId::LayerNormGradient, build});
}

void add_norm_weight_gradient(std::vector<OpCase>& cases, const NormCase& form, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = form.groups * shape.columns;
    LayerNormWeightGradientArgs args;
    args.x = given(memory, form.format, shape, columns, 64);
    args.stats = given(memory, Format::f32, shape, form.groups * 3, 66);
    args.dout = given(memory, Format::f32, shape, columns, 67);
    args.weight_out = memory.output("weight", Format::f32, 1, shape.columns);
    if (form.kind == NormKind::layer_norm) args.bias_out = memory.output("bias", form.format, 1, shape.columns);
    args.groups = form.groups;
    args.kind = form.kind;
    memory.launch(args);
  };
  cases.push_back(
      {fmt::format("layer_norm_weight_gradient_{}_{}", form.name, shape.name), OpId::LayerNormWeightGradient, build});
}

struct NamedKind {
  const char* name;
  ActivationKind kind;
};
constexpr NamedKind kActivationKinds[] = {
    {"silu", ActivationKind::silu},
    {"gelu", ActivationKind::gelu},
    {"gelu_tanh", ActivationKind::gelu_tanh},
    {"relu_squared", ActivationKind::relu_squared},
    {"glu", ActivationKind::glu},
    {"swiglu", ActivationKind::swiglu},
    {"geglu_tanh", ActivationKind::geglu_tanh},
    {"swiglu_clamped", ActivationKind::swiglu_clamped},
};

void add_activation_gradient(std::vector<OpCase>& cases, const NamedKind& kind, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    ActivationGradientArgs args;
    args.x = given(memory, format, shape, shape.columns, 68);
    args.dout = given(memory, Format::f32, shape, shape.columns, 69);
    args.out = wanted(memory, "out", format, shape, shape.columns);
    if (is_gated(kind.kind)) {
      args.up = given(memory, Format::bf16, shape, shape.columns, 70);
      args.up_out = wanted(memory, "up", format, shape, shape.columns);
    }
    args.kind = kind.kind;
    args.limit = 3.0F;
    memory.launch(args);
  };
  cases.push_back({fmt::format("activation_gradient_{}_{}_{}", kind.name, name(format), shape.name),
                   OpId::ActivationGradient, build});
}

void add_softcap_gradient(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    SoftcapGradientArgs args;
    args.y = given(memory, format, shape, shape.columns, 71);
    args.dout = given(memory, Format::f32, shape, shape.columns, 72);
    args.out = wanted(memory, "out", format, shape, shape.columns);
    args.cap = 5.0F;
    memory.launch(args);
  };
  cases.push_back({"softcap_gradient_" + std::string(name(format)) + "_" + shape.name, OpId::SoftcapGradient, build});
}

void add_gated_add_gradient(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    GatedAddGradientArgs args;
    args.b = given(memory, format, shape, shape.columns, 76);
    args.gate = given(memory, format, shape, 1, 77);
    args.dout = given(memory, Format::f32, shape, shape.columns, 78);
    args.b_out = wanted(memory, "b", format, shape, shape.columns);
    args.gate_out = wanted(memory, "gate", Format::f32, shape, 1);
    memory.launch(args);
  };
  cases.push_back(
      {"gated_add_gradient_" + std::string(name(format)) + "_" + shape.name, OpId::GatedAddGradient, build});
}

void add_expert_mix_gradient(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    constexpr std::int64_t kExperts = 5;
    constexpr std::int64_t kChosen = 3;
    const std::int64_t rows = kExperts * shape.rows;
    ExpertMixGradientArgs args;
    args.experts = memory.input(format, rows, shape.columns, fill(shape.fill, format, rows, shape.columns, 79));
    args.weights = memory.input(Format::f32, shape.rows, kChosen,
                                fill(shape.fill, Format::f32, shape.rows, kChosen, 80), shape.padding);
    std::vector<std::uint32_t> ids;
    for (std::int64_t i = 0; i < shape.rows * kChosen; ++i) ids.push_back(static_cast<std::uint32_t>(i * 7 % 6));
    args.ids = memory.input(Format::i32, shape.rows, kChosen, ids, shape.padding);  // 5 names no expert
    args.dout = given(memory, Format::f32, shape, shape.columns, 81);
    args.weights_out = wanted(memory, "weights", format, shape, kChosen);
    args.experts_out = memory.output("experts", format, rows, shape.columns, shape.padding);
    memory.launch(args);
  };
  cases.push_back(
      {"expert_mix_gradient_" + std::string(name(format)) + "_" + shape.name, OpId::ExpertMixGradient, build});
}

/// How a router weighs, and how its gradient is taken.
struct RouteCase {
  const char* name;
  RouterScore score;
  RouterValue value;
  bool normalise;
  float eps;
  Format format;
};
constexpr RouteCase kRouteCases[] = {
    {"sigmoid", RouterScore::sigmoid, RouterValue::gate, true, 0.0F, Format::f32},
    {"sigmoid_minus_bias", RouterScore::sigmoid, RouterValue::choice_minus_bias, true, 1e-20F, Format::bf16},
    {"sigmoid_as_is", RouterScore::sigmoid, RouterValue::gate, false, 0.0F, Format::f16},
    {"softmax", RouterScore::softmax, RouterValue::gate, true, 0.0F, Format::f32},
    {"softmax_eps", RouterScore::softmax, RouterValue::gate, true, 0.1F, Format::f32},
    {"softmax_as_is", RouterScore::softmax, RouterValue::gate, false, 0.0F, Format::f32},
    {"of_chosen", RouterScore::softmax_of_chosen, RouterValue::gate, true, 0.0F, Format::bf16},
};

void add_route_gradient(std::vector<OpCase>& cases, const RouteCase& form, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t chosen = std::min<std::int64_t>(shape.columns, 5);
    RouteArgs route;
    route.logits = given(memory, form.format, shape, shape.columns, 94);
    if (form.value == RouterValue::choice_minus_bias) {
      route.bias =
          memory.input(Format::f32, 1, shape.columns, fill(Fill::ordinary, Format::f32, 1, shape.columns, 95, 20.0F));
    }
    route.weights = wanted(memory, "weights", Format::f32, shape, chosen);
    route.ids = wanted(memory, "ids", Format::i32, shape, chosen);
    route.score = form.score;
    route.value = form.value;
    route.normalise = form.normalise;
    route.eps = form.eps;
    memory.launch(route);
    RouteGradientArgs args;
    args.logits = route.logits;
    args.bias = route.bias;
    args.ids = route.ids;
    args.dweights = memory.input(Format::f32, shape.rows, chosen,
                                 fill(Fill::ordinary, Format::f32, shape.rows, chosen, 96), shape.padding);
    args.out = wanted(memory, "out", form.format, shape, shape.columns);
    args.score = form.score;
    args.value = form.value;
    args.normalise = form.normalise;
    args.eps = form.eps;
    memory.launch(args);
  };
  cases.push_back({fmt::format("route_gradient_{}_{}", form.name, shape.name), OpId::RouteGradient, build});
}

void add_cross_entropy(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    CrossEntropyArgs args;
    args.logits = given(memory, format, shape, shape.columns, 73);
    args.targets = row_numbers(memory, shape, shape.columns, 37);
    args.loss = wanted(memory, "loss", Format::f32, shape, 1);
    memory.launch(args);
  };
  cases.push_back({"cross_entropy_" + std::string(name(format)) + "_" + shape.name, OpId::CrossEntropy, build});
}

void add_cross_entropy_gradient(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    CrossEntropyGradientArgs args;
    args.logits = given(memory, format, shape, shape.columns, 73);
    args.targets = row_numbers(memory, shape, shape.columns, 37);
    args.out = wanted(memory, "out", format, shape, shape.columns);
    args.factor = 0.03F;
    memory.launch(args);
  };
  cases.push_back(
      {"cross_entropy_gradient_" + std::string(name(format)) + "_" + shape.name, OpId::CrossEntropyGradient, build});
}

void add_sum_of_squares(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    SumOfSquaresArgs args;
    args.x = given(memory, format, shape, shape.columns, 74);
    args.out = wanted(memory, "out", Format::f32, shape, 1);
    memory.launch(args);
  };
  cases.push_back({"sum_of_squares_" + std::string(name(format)) + "_" + shape.name, OpId::SumOfSquares, build});
}

void add_inverse_rope(std::vector<OpCase>& cases, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    RopeArgs args;
    args.x = given(memory, Format::f32, shape, 3 * 10, 75);
    args.out = wanted(memory, "out", Format::f32, shape, 3 * 10);
    args.heads = 3;
    args.first_position = 50;
    args.amplitude = 1.19F;
    args.inverse = true;
    memory.launch(args);
  };
  cases.push_back({"rope_inverse_d10_" + shape.name, OpId::Rope, build});
}

}  // namespace

void add_gradient_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  for (const Shape& shape : shapes) {
    add_transpose(cases, Format::f32, Format::f32, shape);
    add_transpose(cases, Format::bf16, Format::bf16, shape);
    add_transpose(cases, Format::f32, Format::f16, shape);
    add_column_sum(cases, Format::f32, Format::f32, shape);
    add_column_sum(cases, Format::f16, Format::bf16, shape);
    for (const NormCase& form : kNormCases) {
      add_norm_gradient(cases, form, shape);
      add_norm_weight_gradient(cases, form, shape);
    }
    for (const NamedKind& kind : kActivationKinds) {
      add_activation_gradient(cases, kind, Format::f32, shape);
      add_activation_gradient(cases, kind, Format::f16, shape);
    }
    for (const Format format : {Format::f32, Format::bf16}) {
      add_embedding_gradient(cases, format, shape);
      add_softcap_gradient(cases, format, shape);
      add_gated_add_gradient(cases, format, shape);
      add_expert_mix_gradient(cases, format, shape);
      add_cross_entropy(cases, format, shape);
      add_cross_entropy_gradient(cases, format, shape);
      add_sum_of_squares(cases, format, shape);
    }
    for (const RouteCase& form : kRouteCases) add_route_gradient(cases, form, shape);
    add_inverse_rope(cases, shape);
  }
}

}  // namespace nanscope::kernels::cases
