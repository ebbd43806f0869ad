#include "kernels/ops/adamw.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

struct Step {
  std::string name;
  Format gradient;
  Format state;
  Format out;
  bool stochastic;
};

const Step kSteps[] = {
    {"f32", Format::f32, Format::f32, Format::f32, false},
    {"bf16", Format::f32, Format::bf16, Format::bf16, false},
    {"f16", Format::f16, Format::f16, Format::f16, false},
    {"stochastic_bf16", Format::bf16, Format::f32, Format::bf16, true},
    {"stochastic_f16", Format::f32, Format::bf16, Format::f16, true},
};

void add_adamw(std::vector<OpCase>& cases, const Step& step, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const auto values = [&](Format format, std::uint64_t seed, float amplitude) {
      return fill(shape.fill, format, shape.rows, shape.columns, seed, amplitude);
    };
    auto second = values(step.state, 93, 4.0F);
    if (shape.fill == Fill::ordinary) {
      for (auto& code : second) code &= step.state == Format::f32 ? 0x7fffffffU : 0x7fffU;
    }
    AdamWArgs args;
    args.gradient =
        memory.input(step.gradient, shape.rows, shape.columns, values(step.gradient, 90, 4.0F), shape.padding);
    args.weight =
        memory.in_out("weight", Format::f32, shape.rows, shape.columns, values(Format::f32, 91, 1.0F), shape.padding);
    args.m = memory.in_out("m", step.state, shape.rows, shape.columns, values(step.state, 92, 1.0F), shape.padding);
    args.v = memory.in_out("v", step.state, shape.rows, shape.columns, second, shape.padding);
    if (step.out != Format::f32) {
      args.out = memory.output("out", step.out, shape.rows, shape.columns, shape.padding);
    }
    args.learning_rate = 0.01F;
    args.gradient_scale = 0.5F;
    args.correction1 = 0.271F;
    args.correction2 = 0.002997F;
    args.stochastic = step.stochastic;
    args.seed = 17;
    memory.launch(args);
  };
  cases.push_back({"adamw_" + step.name + "_" + shape.name, OpId::AdamW, build});
}

}  // namespace

void add_optimizer_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  // Two chunks of a row, of which the second is ragged.
  const Shape long_row{"long", Fill::ordinary, 1, 1030, 0};
  for (const Step& step : kSteps) {
    for (const Shape& shape : shapes) add_adamw(cases, step, shape);
    add_adamw(cases, step, long_row);
  }
}

}  // namespace nanscope::kernels::cases
