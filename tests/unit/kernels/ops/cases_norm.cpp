#include "kernels/ops/layer_norm.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

struct Form {
  std::string name;
  NormKind kind;
  VarianceForm variance;
  bool contract;
  bool clamp;
  bool reciprocal;
};

void add(std::vector<OpCase>& cases, const Form& form, const std::string& order_name, SumOrder order,
         const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t width = shape.columns;
    LayerNormArgs args;
    args.x = memory.input(Format::f32, shape.rows, width, fill(shape.fill, Format::f32, shape.rows, width, 11),
                          shape.padding);
    args.weight = memory.input(Format::f32, 1, width, fill(Fill::ordinary, Format::f32, 1, width, 12));
    args.bias = memory.input(Format::f32, 1, width, fill(Fill::ordinary, Format::f32, 1, width, 13));
    args.out = memory.output("out", Format::f32, shape.rows, width, shape.padding);
    args.stats = memory.output("stats", Format::f32, shape.rows, 3, 1);
    args.kind = form.kind;
    args.variance = form.variance;
    args.order = order;
    args.contract = form.contract;
    args.clamp = form.clamp;
    args.mean_by_reciprocal = form.reciprocal;
    memory.launch(args);
  };
  cases.push_back({"layer_norm_" + form.name + "_" + order_name + "_" + shape.name, OpId::LayerNorm, build});
}

/// QK norm: several groups a row, narrow formats, no bias.
void add_groups(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t groups = 3;
    const std::int64_t columns = groups * shape.columns;
    LayerNormArgs args;
    args.x =
        memory.input(format, shape.rows, columns, fill(shape.fill, format, shape.rows, columns, 21), shape.padding);
    args.weight = memory.input(format, 1, shape.columns, fill(Fill::ordinary, format, 1, shape.columns, 22));
    args.out = memory.output("out", format, shape.rows, columns, shape.padding);
    args.groups = groups;
    args.kind = NormKind::rms_norm;
    memory.launch(args);
  };
  cases.push_back({"layer_norm_groups_" + std::string(name(format)) + "_" + shape.name, OpId::LayerNorm, build});
}

}  // namespace

void add_norm_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  const auto layer = NormKind::layer_norm;
  const Form forms[] = {
      {"one_pass", layer, VarianceForm::one_pass, false, false, false},
      {"one_pass_contract", layer, VarianceForm::one_pass, true, false, false},
      {"one_pass_clamp", layer, VarianceForm::one_pass, false, true, false},
      {"one_pass_reciprocal", layer, VarianceForm::one_pass, false, false, true},
      {"two_pass", layer, VarianceForm::two_pass, false, false, false},
      {"welford", layer, VarianceForm::welford, false, false, false},
      {"rms", NormKind::rms_norm, VarianceForm::two_pass, false, false, false},
  };
  for (const Form& form : forms) {
    for (const Shape& shape : shapes) {
      add(cases, form, "sequential", SumOrder::sequential, shape);
      add(cases, form, "warp", SumOrder::warp, shape);
      add(cases, form, "pairwise", SumOrder::pairwise, shape);
    }
  }
  for (const Shape& shape : shapes) {
    add_groups(cases, Format::f16, shape);
    add_groups(cases, Format::bf16, shape);
  }
}

}  // namespace nanscope::kernels::cases
