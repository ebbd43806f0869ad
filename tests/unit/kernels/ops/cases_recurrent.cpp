#include "kernels/ops/causal_conv.h"
#include "kernels/ops/delta_rule.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

void add_conv(std::vector<OpCase>& cases, const std::string& name, Format format, std::int64_t taps, bool resume,
              const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const auto values = [&](Format kind, std::int64_t rows, std::uint64_t seed) {
      return fill(shape.fill, kind, rows, shape.columns, seed);
    };
    CausalConvArgs args;
    args.x = memory.input(format, shape.rows, shape.columns, values(format, shape.rows, 121), shape.padding);
    args.weight = memory.input(Format::f32, taps, shape.columns, values(Format::f32, taps, 122));
    args.out = memory.output("out", format, shape.rows, shape.columns, shape.padding);
    if (taps > 1)
      args.state = memory.in_out("state", Format::f32, taps - 1, shape.columns, values(Format::f32, taps - 1, 123));
    args.resume = resume;
    memory.launch(args);
  };
  cases.push_back({"causal_conv_" + name + "_" + shape.name, OpId::CausalConv, build});
}

/// Two value heads of the shape's columns read one key head of five.
void add_delta(std::vector<OpCase>& cases, const std::string& name, Format format, bool resume, const Shape& shape) {
  constexpr std::int64_t kKeys = 5;
  constexpr std::int64_t kHeads = 2;
  const auto build = [=](CaseMemory& memory) {
    const auto given = [&](Format kind, std::int64_t rows, std::int64_t columns, std::uint64_t seed,
                           std::int64_t padding) {
      return memory.input(kind, rows, columns, fill(shape.fill, kind, rows, columns, seed), padding);
    };
    DeltaRuleArgs args;
    args.q = given(format, shape.rows, kKeys, 131, shape.padding);
    args.k = given(format, shape.rows, kKeys, 132, shape.padding);
    args.v = given(format, shape.rows, kHeads * shape.columns, 133, shape.padding);
    args.a = given(format, shape.rows, kHeads, 134, 0);
    args.b = given(format, shape.rows, kHeads, 135, 0);
    args.a_log = memory.input(Format::f32, 1, kHeads, fill(Fill::ordinary, Format::f32, 1, kHeads, 136, 1.0F));
    args.dt_bias = memory.input(Format::f32, 1, kHeads, fill(Fill::ordinary, Format::f32, 1, kHeads, 137, 1.0F));
    args.state = memory.in_out("state", Format::f32, kHeads * kKeys, shape.columns,
                               fill(shape.fill, Format::f32, kHeads * kKeys, shape.columns, 138));
    args.out = memory.output("out", format, shape.rows, kHeads * shape.columns, shape.padding);
    args.value_heads = kHeads;
    args.resume = resume;
    memory.launch(args);
  };
  cases.push_back({"delta_rule_" + name + "_" + shape.name, OpId::DeltaRule, build});
}

}  // namespace

void add_recurrent_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  for (const Shape& shape : shapes) {
    add_conv(cases, "fresh", Format::f32, 4, false, shape);
    add_conv(cases, "resume", Format::f32, 4, true, shape);
    add_conv(cases, "bf16", Format::bf16, 2, true, shape);
    add_conv(cases, "one_tap", Format::f32, 1, false, shape);
    add_delta(cases, "fresh", Format::f32, false, shape);
    add_delta(cases, "resume", Format::f32, true, shape);
    add_delta(cases, "bf16", Format::bf16, true, shape);
  }
}

}  // namespace nanscope::kernels::cases
