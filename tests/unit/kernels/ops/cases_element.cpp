#include <array>
#include <bit>

#include "kernels/ops/activation.h"
#include "kernels/ops/all_reduce.h"
#include "kernels/ops/cast.h"
#include "kernels/ops/expert_mix.h"
#include "kernels/ops/gated_add.h"
#include "kernels/ops/recurrent_scan.h"
#include "kernels/ops/residual_add.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/route.h"
#include "kernels/ops/softcap.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

TensorView result(CaseMemory& memory, Format format, const Shape& shape) {
  return memory.output("out", format, shape.rows, shape.columns, shape.padding);
}

void add_residual(std::vector<OpCase>& cases, Format format, const Shape& shape, float factor = 1) {
  const auto build = [=](CaseMemory& memory) {
    ResidualAddArgs args;
    args.a = data_input(memory, format, shape, 31);
    args.b = memory.input(Format::f32, shape.rows, shape.columns,
                          fill(Fill::ordinary, Format::f32, shape.rows, shape.columns, 32, 3e4F));
    args.out = result(memory, format, shape);
    args.factor = factor;
    memory.launch(args);
  };
  const std::string scaled = factor != 1 ? "scaled_" : "";
  cases.push_back({"residual_add_" + scaled + std::string(name(format)) + "_" + shape.name, OpId::ResidualAdd, build});
}

void add_activation(std::vector<OpCase>& cases, const std::string& kind_name, ActivationKind kind, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    ActivationArgs args;
    args.x = data_input(memory, Format::f32, shape, 33);
    if (is_gated(kind)) args.up = data_input(memory, Format::bf16, shape, 34);
    args.out = result(memory, Format::f32, shape);
    args.kind = kind;
    memory.launch(args);
  };
  cases.push_back({"activation_" + kind_name + "_" + shape.name, OpId::Activation, build});
}

void add_softcap(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    SoftcapArgs args;
    args.x = data_input(memory, format, shape, 51);
    args.out = result(memory, format, shape);
    args.cap = 3.0F;
    memory.launch(args);
  };
  cases.push_back({"softcap_" + std::string(name(format)) + "_" + shape.name, OpId::Softcap, build});
}

void add_gated_add(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    GatedAddArgs args;
    args.a = data_input(memory, Format::f32, shape, 52);
    args.b = data_input(memory, format, shape, 53);
    args.gate = memory.input(format, shape.rows, 1, fill(shape.fill, format, shape.rows, 1, 54), shape.padding);
    args.out = result(memory, format, shape);
    memory.launch(args);
  };
  cases.push_back({"gated_add_" + std::string(name(format)) + "_" + shape.name, OpId::GatedAdd, build});
}

/// Gates by the softmax of the chosen logits.
void add_chosen_route(std::vector<OpCase>& cases, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    RouteArgs args;
    args.logits = data_input(memory, Format::bf16, shape, 58);
    const std::int64_t chosen = std::min<std::int64_t>(shape.columns, 4);
    args.weights = memory.output("weights", Format::f32, shape.rows, chosen, shape.padding);
    args.ids = memory.output("ids", Format::i32, shape.rows, chosen, shape.padding);
    args.score = RouterScore::softmax_of_chosen;
    memory.launch(args);
  };
  cases.push_back({"route_softmax_of_chosen_" + shape.name, OpId::Route, build});
}

/// Gates by softmax, as they are and so that the chosen ones add up to 1.
void add_softmax_route(std::vector<OpCase>& cases, bool normalise, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    RouteArgs args;
    args.logits = data_input(memory, Format::f32, shape, 55);
    const std::int64_t chosen = std::min<std::int64_t>(shape.columns, 4);
    args.weights = memory.output("weights", Format::f32, shape.rows, chosen, shape.padding);
    args.ids = memory.output("ids", Format::i32, shape.rows, chosen, shape.padding);
    args.score = RouterScore::softmax;
    args.normalise = normalise;
    memory.launch(args);
  };
  cases.push_back({std::string("route_softmax_") + (normalise ? "normalised_" : "") + shape.name, OpId::Route, build});
}

void add_route(std::vector<OpCase>& cases, Format format, RouterValue value, bool bias, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    RouteArgs args;
    args.logits = data_input(memory, format, shape, 37);
    if (bias) {
      args.bias =
          memory.input(Format::f32, 1, shape.columns, fill(Fill::ordinary, Format::f32, 1, shape.columns, 38, 20.0F));
    }
    const std::int64_t chosen = std::min<std::int64_t>(shape.columns, 5);
    args.weights = memory.output("weights", Format::f32, shape.rows, chosen, shape.padding);
    args.ids = memory.output("ids", Format::i32, shape.rows, chosen, shape.padding);
    args.value = value;
    memory.launch(args);
  };
  const std::string label = value == RouterValue::gate ? "gate_" : "choice_minus_bias_";
  cases.push_back(
      {"route_" + std::string(name(format)) + "_" + label + (bias ? "bias_" : "") + shape.name, OpId::Route, build});
}

/// The first `kGroups` equal groups of a shape's experts, which is narrower where these do not divide it.
void add_grouped_route(std::vector<OpCase>& cases, GroupScore score, const Shape& shape) {
  constexpr std::int64_t kGroups = 4;
  const std::int64_t experts = shape.columns / kGroups * kGroups;
  if (experts == 0) return;
  const auto build = [=](CaseMemory& memory) {
    RouteArgs args;
    args.logits = memory.input(Format::f32, shape.rows, experts, fill(shape.fill, Format::f32, shape.rows, experts, 97),
                               shape.padding);
    args.bias = memory.input(Format::f32, 1, experts, fill(Fill::ordinary, Format::f32, 1, experts, 98));
    const std::int64_t chosen = std::min<std::int64_t>(experts / 2, 5);
    args.weights = memory.output("weights", Format::f32, shape.rows, chosen, shape.padding);
    args.ids = memory.output("ids", Format::i32, shape.rows, chosen, shape.padding);
    args.groups = kGroups;
    args.top_groups = 2;
    args.group_score = score;
    memory.launch(args);
  };
  const std::string label = score == GroupScore::top_two ? "top_two_" : "best_";
  cases.push_back({"route_groups_" + label + shape.name, OpId::Route, build});
}

void add_expert_mix(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    constexpr std::int64_t kExperts = 5;
    constexpr std::int64_t kChosen = 3;
    const std::int64_t rows = kExperts * shape.rows;
    ExpertMixArgs args;
    args.experts = memory.input(format, rows, shape.columns, fill(shape.fill, format, rows, shape.columns, 39));
    args.weights =
        memory.input(Format::f32, shape.rows, kChosen, fill(Fill::ordinary, Format::f32, shape.rows, kChosen, 40));
    std::vector<std::uint32_t> ids;
    for (std::int64_t i = 0; i < shape.rows * kChosen; ++i) ids.push_back(static_cast<std::uint32_t>(i * 7 % 6));
    args.ids = memory.input(Format::i32, shape.rows, kChosen, ids);  // 5 names no expert
    args.out = result(memory, format, shape);
    memory.launch(args);
  };
  cases.push_back({"expert_mix_" + std::string(name(format)) + "_" + shape.name, OpId::ExpertMix, build});
}

void add_all_reduce(std::vector<OpCase>& cases, Format format, std::int64_t ranks, AllReduceOrder order,
                    const std::string& label, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t rows = ranks * shape.rows;
    AllReduceArgs args;
    args.parts = memory.input(format, rows, shape.columns, fill(shape.fill, format, rows, shape.columns, 58));
    args.out = result(memory, format, shape);
    args.ranks = ranks;
    args.order = order;
    memory.launch(args);
  };
  cases.push_back({"all_reduce_" + label + "_" + std::string(name(format)) + "_" + shape.name, OpId::AllReduce, build});
}

void add_cast(std::vector<OpCase>& cases, Format from, Format to, bool dequantise, Overflow overflow,
              const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    CastArgs args;
    args.x = data_input(memory, from, shape, 35);
    args.out = result(memory, to, shape);
    args.scale = 0.0123F;
    args.dequantise = dequantise;
    args.overflow = overflow;
    memory.launch(args);
  };
  const std::string mode = overflow == Overflow::saturate ? "saturate" : "overflow";
  const std::string way = dequantise ? "dequantise" : mode;
  cases.push_back({"cast_" + std::string(name(from)) + "_" + std::string(name(to)) + "_" + way + "_" + shape.name,
                   OpId::Cast, build});
}

void add_rope(std::vector<OpCase>& cases, std::int64_t width, std::int64_t position, const std::string& label,
              const Shape& shape, double stretch = 1.0) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t heads = 3;
    const std::int64_t columns = heads * width;
    RopeArgs args;
    args.x = memory.input(Format::f32, shape.rows, columns, fill(shape.fill, Format::f32, shape.rows, columns, 36),
                          shape.padding);
    args.out = memory.output("out", Format::f32, shape.rows, columns, shape.padding);
    args.heads = heads;
    args.first_position = position;
    args.stretch = stretch;
    memory.launch(args);
  };
  cases.push_back({"rope_" + label + "_" + shape.name, OpId::Rope, build});
}

/// The first `rotated` of a head's channels turn, by frequencies that are given.
void add_rope_table(std::vector<OpCase>& cases, std::int64_t width, std::int64_t rotated, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t heads = 2;
    const std::int64_t columns = heads * width;
    RopeArgs args;
    args.x = memory.input(Format::bf16, shape.rows, columns, fill(shape.fill, Format::bf16, shape.rows, columns, 56),
                          shape.padding);
    args.frequencies =
        memory.input(Format::f32, 1, rotated / 2, fill(Fill::ordinary, Format::f32, 1, rotated / 2, 57, 2.0F));
    args.out = memory.output("out", Format::bf16, shape.rows, columns, shape.padding);
    args.heads = heads;
    args.first_position = 1000;
    args.amplitude = 1.19F;
    memory.launch(args);
  };
  cases.push_back({"rope_table_d" + std::to_string(width) + "_" + shape.name, OpId::Rope, build});
}

/// `rotated` channels of a head from `first` on turn, in pairs of neighbours: by frequencies, or all by the base.
void add_rope_neighbours(std::vector<OpCase>& cases, std::int64_t width, std::int64_t first, std::int64_t rotated,
                         const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t heads = 2;
    const std::int64_t columns = heads * width;
    RopeArgs args;
    args.x = memory.input(Format::f32, shape.rows, columns, fill(shape.fill, Format::f32, shape.rows, columns, 99),
                          shape.padding);
    if (rotated < width) {
      args.frequencies =
          memory.input(Format::f32, 1, rotated / 2, fill(Fill::ordinary, Format::f32, 1, rotated / 2, 100, 2.0F));
    }
    args.out = memory.output("out", Format::f32, shape.rows, columns, shape.padding);
    args.heads = heads;
    args.first_position = 77;
    args.first_channel = first;
    args.neighbours = true;
    memory.launch(args);
  };
  cases.push_back({"rope_neighbours_d" + std::to_string(width) + "_" + shape.name, OpId::Rope, build});
}

void add_scan(std::vector<OpCase>& cases, bool resume, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    auto decay = fill(Fill::ordinary, Format::f32, 1, shape.columns, 37, 1.0F);
    for (auto& code : decay) code &= 0x7fffffffU;
    RecurrentScanArgs args;
    args.x = data_input(memory, Format::f32, shape, 38);
    args.decay = memory.input(Format::f32, 1, shape.columns, decay);
    args.state =
        memory.in_out("state", Format::f32, 1, shape.columns, fill(shape.fill, Format::f32, 1, shape.columns, 39));
    args.out = result(memory, Format::f32, shape);
    args.resume = resume;
    memory.launch(args);
  };
  cases.push_back(
      {std::string("recurrent_scan_") + (resume ? "resume_" : "fresh_") + shape.name, OpId::RecurrentScan, build});
}

}  // namespace

void add_element_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  for (const Shape& shape : shapes) {
    for (const Format format : {Format::f32, Format::f16, Format::bf16}) add_residual(cases, format, shape);
    add_residual(cases, Format::f32, shape, 0.22F);
    add_activation(cases, "silu", ActivationKind::silu, shape);
    add_activation(cases, "gelu", ActivationKind::gelu, shape);
    add_activation(cases, "gelu_tanh", ActivationKind::gelu_tanh, shape);
    add_activation(cases, "relu_squared", ActivationKind::relu_squared, shape);
    add_activation(cases, "glu", ActivationKind::glu, shape);
    add_activation(cases, "swiglu", ActivationKind::swiglu, shape);
    add_activation(cases, "geglu_tanh", ActivationKind::geglu_tanh, shape);
    add_activation(cases, "swiglu_clamped", ActivationKind::swiglu_clamped, shape);
    for (const Format format : {Format::f32, Format::f16}) add_softcap(cases, format, shape);
    for (const Format format : {Format::f32, Format::bf16}) add_gated_add(cases, format, shape);
    for (const FormatInfo& format : formats()) {
      add_cast(cases, Format::f32, format.format, false, Overflow::saturate, shape);
      add_cast(cases, Format::f32, format.format, false, Overflow::overflow, shape);
      add_cast(cases, format.format, Format::f32, true, Overflow::overflow, shape);
    }
    add_cast(cases, Format::e4m3, Format::e4m3fnuz, false, Overflow::overflow, shape);
    add_rope(cases, 64, 0, "d64", shape);
    add_rope(cases, 10, 123456, "d10_far", shape);
    add_rope(cases, 64, 300, "d64_stretched", shape, 3.25);
    add_rope(cases, 10, 4, "d10_negative_stretch", shape, -0.5);
    add_rope_table(cases, 64, 64, shape);
    add_rope_table(cases, 100, 70, shape);
    add_rope_neighbours(cases, 10, 0, 10, shape);
    add_rope_neighbours(cases, 96, 33, 50, shape);
    add_scan(cases, false, shape);
    add_scan(cases, true, shape);
    add_route(cases, Format::f32, RouterValue::gate, true, shape);
    add_route(cases, Format::f32, RouterValue::choice_minus_bias, true, shape);
    add_route(cases, Format::bf16, RouterValue::gate, false, shape);
    add_softmax_route(cases, true, shape);
    add_softmax_route(cases, false, shape);
    add_chosen_route(cases, shape);
    add_grouped_route(cases, GroupScore::top_two, shape);
    add_grouped_route(cases, GroupScore::best, shape);
    add_expert_mix(cases, Format::f32, shape);
    add_expert_mix(cases, Format::f16, shape);
    add_all_reduce(cases, Format::bf16, 4, AllReduceOrder::rank, "rank4", shape);
    add_all_reduce(cases, Format::f32, 3, AllReduceOrder::ring, "ring3", shape);
    add_all_reduce(cases, Format::bf16, 4, AllReduceOrder::ring, "ring4", shape);
    add_all_reduce(cases, Format::f16, 6, AllReduceOrder::tree, "tree6", shape);
    add_all_reduce(cases, Format::f32, 8, AllReduceOrder::tree, "tree8", shape);
  }
}

}  // namespace nanscope::kernels::cases
