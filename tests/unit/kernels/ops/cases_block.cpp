#include <vector>

#include "kernels/ops/block_gemm.h"
#include "kernels/ops/block_quantise.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

struct Blocks {
  std::string name;
  Format codes;
  Format scales;
  std::int32_t block;
  ScalePacking packing = ScalePacking::rounded;
  float tensor_scale = 1;
  Overflow overflow = Overflow::saturate;
};

const Blocks kStoredBlocks[] = {
    {"mxfp8", Format::e4m3, Format::e8m0, 32},
    {"mxfp4", Format::e2m1, Format::e8m0, 32},
    {"nvfp4", Format::e2m1, Format::e4m3, 16, ScalePacking::rounded, 1.5e-3F},
    {"narrow", Format::e2m1, Format::e4m3, 16, ScalePacking::rounded, 7e-4F, Overflow::overflow},
    {"wide", Format::e5m2, Format::e8m0, 40},
    {"unmasked", Format::e4m3, Format::e8m0, 32, ScalePacking::unmasked},
};

/// As serving kernels have it: e8m0 scales rounded up.
BlockFormat format_of(const Blocks& blocks) {
  BlockFormat format;
  format.element = blocks.codes;
  format.block.columns = blocks.block;
  format.scale = blocks.scales;
  format.second = SecondScale::multiplier;
  format.rule = blocks.scales == Format::e8m0 ? ScaleRule::rceil : ScaleRule::amax_over_max;
  format.largest = info(blocks.codes).max_finite;
  format.inf = BadBlock::arithmetic;
  return format;
}

/// Columns of a row's scales: whole tiles of 4, and one tile more.
std::int64_t scale_columns(const Blocks& blocks, const Shape& shape) {
  const std::int64_t used = (shape.columns + blocks.block - 1) / blocks.block;
  return (used + 3) / 4 * 4 + 4;
}

void add_quantise(std::vector<OpCase>& cases, const Blocks& blocks, bool zero_padding, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = scale_columns(blocks, shape);
    BlockQuantiseArgs args;
    args.x = memory.input(Format::f32, shape.rows, shape.columns,
                          fill(shape.fill, Format::f32, shape.rows, shape.columns, 71), shape.padding);
    args.codes = memory.output("codes", blocks.codes, shape.rows, shape.columns, shape.padding);
    args.scales = memory.in_out("scales", blocks.scales, shape.rows, columns,
                                fill(Fill::ordinary, blocks.scales, shape.rows, columns, 72));
    args.format = format_of(blocks);
    args.second = blocks.tensor_scale;
    args.packing = blocks.packing;
    args.scale_overflow = blocks.overflow;
    args.zero_padding = zero_padding;
    memory.launch(args);
  };
  cases.push_back({"block_quantise_" + blocks.name + (zero_padding ? "_zeroed_" : "_kept_") + shape.name,
                   OpId::BlockQuantise, build});
}

void add_product(std::vector<OpCase>& cases, const Blocks& blocks, bool read_padding, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t k = shape.columns;
    const std::int64_t panels = (kOutputs + 31) / 32;
    BlockGemmArgs args;
    args.codes =
        memory.input(blocks.codes, shape.rows, k, fill(shape.fill, blocks.codes, shape.rows, k, 73), shape.padding);
    const std::int64_t columns = scale_columns(blocks, shape);
    args.scales = memory.input(blocks.scales, shape.rows, columns,
                               fill(shape.fill, blocks.scales, shape.rows, columns, 74, 2.0F));
    args.packed = memory.input(Format::f32, panels * k, 32, fill(Fill::ordinary, Format::f32, panels * k, 32, 75));
    if (blocks.tensor_scale != 1) {
      args.bias = memory.input(Format::f32, 1, kOutputs, fill(Fill::ordinary, Format::f32, 1, kOutputs, 76));
    }
    args.out = memory.output("out", Format::f32, shape.rows, kOutputs, shape.padding);
    args.format = format_of(blocks);
    args.second = blocks.tensor_scale;
    args.read_padding = read_padding;
    memory.launch(args);
  };
  cases.push_back(
      {"block_gemm_" + blocks.name + (read_padding ? "_padding_" : "_used_") + shape.name, OpId::BlockGemm, build});
}

/// The same with weights that are no panels: bf16 as stored, or codes and scales of what the inputs have.
void add_stored_product(std::vector<OpCase>& cases, const Blocks& blocks, bool scaled, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t k = shape.columns;
    const std::int64_t columns = scale_columns(blocks, shape);
    BlockGemmArgs args;
    args.codes =
        memory.input(blocks.codes, shape.rows, k, fill(shape.fill, blocks.codes, shape.rows, k, 73), shape.padding);
    args.scales = memory.input(blocks.scales, shape.rows, columns,
                               fill(shape.fill, blocks.scales, shape.rows, columns, 74, 2.0F));
    if (scaled) {
      const std::int64_t each = (k + 31) / 32;
      args.scaled.codes = memory.input(Format::e4m3, kOutputs, k, fill(Fill::ordinary, Format::e4m3, kOutputs, k, 77));
      args.scaled.scales =
          memory.input(Format::e8m0, kOutputs, each, fill(Fill::ordinary, Format::e8m0, kOutputs, each, 78, 2.0F));
      args.scaled.block = {1, 32};
    } else {
      args.weight = memory.input(Format::bf16, kOutputs, k, fill(Fill::ordinary, Format::bf16, kOutputs, k, 75));
    }
    args.out = memory.output("out", Format::f32, shape.rows, kOutputs, shape.padding);
    args.format = format_of(blocks);
    args.second = blocks.tensor_scale;
    memory.launch(args);
  };
  cases.push_back(
      {"block_gemm_" + blocks.name + (scaled ? "_scaled_" : "_bf16_") + shape.name, OpId::BlockGemm, build});
}

}  // namespace

void add_block_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  for (const Shape& shape : shapes) {
    for (const bool scaled : {false, true}) {
      add_stored_product(cases, kStoredBlocks[0], scaled, shape);
      add_stored_product(cases, kStoredBlocks[2], scaled, shape);
    }
    for (const Blocks& blocks : kStoredBlocks) {
      add_quantise(cases, blocks, true, shape);
      if (blocks.packing == ScalePacking::rounded) {
        add_quantise(cases, blocks, false, shape);
        add_product(cases, blocks, true, shape);
        add_product(cases, blocks, false, shape);
      }
    }
  }
}

}  // namespace nanscope::kernels::cases
