#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/numbers/codec.h"
#include "kernels/ops/dot_products.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/gemm_tensor_core.h"
#include "kernels/ops/patch_embedding.h"
#include "kernels/tensor_core_bound.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

void add_gemm(std::vector<OpCase>& cases, Format x, Format weight, bool bias, const Shape& shape,
              Format partial = Format::f32, std::int64_t outputs = kOutputs) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t k = shape.columns;
    GemmArgs args;
    args.x = memory.input(x, shape.rows, k, fill(shape.fill, x, shape.rows, k, 61), shape.padding);
    args.weight = memory.input(weight, outputs, k, fill(Fill::ordinary, weight, outputs, k, 62));
    if (bias) args.bias = memory.input(Format::f32, 1, outputs, fill(Fill::ordinary, Format::f32, 1, outputs, 63));
    args.out = memory.output("out", x, shape.rows, outputs, shape.padding);
    args.partial = partial;
    memory.launch(args);
  };
  const std::string sums = partial == Format::f32 ? "" : "halves_";
  cases.push_back(
      {"gemm_" + sums + std::string(name(x)) + "_" + std::string(name(weight)) + (bias ? "_bias_" : "_") + shape.name,
       OpId::Gemm, build});
}

/// Operands of tensor cores as values that they read.
struct MmaValues {
  Format operand;
  std::int64_t depth;
  std::vector<float> x, weight;

  static std::vector<float> of(Format operand, Format format, const std::vector<std::uint32_t>& codes) {
    std::vector<float> values;
    for (const std::uint32_t code : codes) {
      const float value = decode(format, code);
      values.push_back(decode(operand, encode(operand, value, Overflow::overflow)));
    }
    return values;
  }
  double magnitude(std::int64_t row, std::int64_t column) const {
    const auto width = static_cast<std::size_t>(depth);
    return tensor_core_magnitude(operand, std::span(x).subspan(static_cast<std::size_t>(row) * width, width),
                                 std::span(weight).subspan(static_cast<std::size_t>(column) * width, width));
  }
};

void add_tensor_core(std::vector<OpCase>& cases, Format x, Format weight, bool bias, const Shape& shape,
                     std::int64_t outputs = kOutputs) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t k = shape.columns;
    const auto x_codes = fill(shape.fill, x, shape.rows, k, 71);
    const auto weight_codes = fill(Fill::ordinary, weight, outputs, k, 72);
    GemmTensorCoreArgs args;
    args.x = memory.input(x, shape.rows, k, x_codes, shape.padding);
    args.weight = memory.input(weight, outputs, k, weight_codes);
    if (bias) args.bias = memory.input(Format::f32, 1, outputs, fill(Fill::ordinary, Format::f32, 1, outputs, 73));
    args.out = memory.output("out", x, shape.rows, outputs, shape.padding);
    const Format operand = tensor_core_operand(x, weight);
    memory.by_tensor_cores("out", k,
                           [values = MmaValues{operand, k, MmaValues::of(operand, x, x_codes),
                                               MmaValues::of(operand, weight, weight_codes)}](
                               std::int64_t row, std::int64_t column) { return values.magnitude(row, column); });
    memory.launch(args);
  };
  cases.push_back({"gemm_tensor_core_" + std::string(name(x)) + "_" + std::string(name(weight)) +
                       (bias ? "_bias_" : "_") + shape.name,
                   OpId::GemmTensorCore, build});
}

/// The same product from packed panels: the digest must be that of the unpacked case.
void add_packed(std::vector<OpCase>& cases, const Shape& shape, std::int64_t outputs = kOutputs) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t k = shape.columns;
    const auto codes = fill(Fill::ordinary, Format::f32, outputs, k, 62);
    const std::int64_t panels = (outputs + 31) / 32;
    std::vector<std::uint32_t> packed(static_cast<std::size_t>(panels * k * 32), 0U);
    for (std::int64_t n = 0; n < outputs; ++n) {
      for (std::int64_t i = 0; i < k; ++i) {
        packed[static_cast<std::size_t>((n / 32 * k + i) * 32 + n % 32)] = codes[static_cast<std::size_t>(n * k + i)];
      }
    }
    GemmArgs args;
    args.x = memory.input(Format::f32, shape.rows, k, fill(shape.fill, Format::f32, shape.rows, k, 61), shape.padding);
    args.weight = memory.input(Format::f32, outputs, k, codes);
    args.packed = memory.input(Format::f32, panels * k, 32, packed);
    args.bias = memory.input(Format::f32, 1, outputs, fill(Fill::ordinary, Format::f32, 1, outputs, 63));
    args.out = memory.output("out", Format::f32, shape.rows, outputs, shape.padding);
    memory.launch(args);
  };
  cases.push_back({"gemm_packed_" + shape.name, OpId::Gemm, build});
}

/// How a weight of codes and scales is stored.
struct Stored {
  std::string name;
  Format codes;
  Format scales;
  BlockShape block;
  SecondScale second = SecondScale::none;
};

constexpr std::int32_t kWhole = 1 << 30;
const Stored kStored[] = {
    {"e4m3_row", Format::e4m3, Format::bf16, {1, kWhole}},
    {"e4m3_block", Format::e4m3, Format::f32, {32, 32}},
    {"e5m2", Format::e5m2, Format::f32, {kWhole, kWhole}},
    {"int8", Format::int8, Format::f32, {1, kWhole}},
    {"mxfp8", Format::e4m3, Format::e8m0, {1, 32}},
    {"mxfp4", Format::e2m1, Format::e8m0, {1, 32}},
    {"nvfp4", Format::e2m1, Format::e4m3, {1, 16}, SecondScale::divisor},
};

void add_scaled(std::vector<OpCase>& cases, const Stored& stored, const Shape& shape, Format partial = Format::f32) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t k = shape.columns;
    const std::int64_t block_rows = (kOutputs + stored.block.rows - 1) / stored.block.rows;
    const std::int64_t blocks = (k + stored.block.columns - 1) / stored.block.columns;
    GemmArgs args;
    args.x = memory.input(Format::f32, shape.rows, k, fill(shape.fill, Format::f32, shape.rows, k, 61), shape.padding);
    ScaledWeight& weight = args.scaled;
    if (stored.codes == Format::e2m1) {  // two of them are any byte
      const std::int64_t bytes = (k + 1) / 2;
      weight.codes = memory.input(Format::int8, kOutputs, bytes, fill(shape.fill, Format::int8, kOutputs, bytes, 91));
      weight.codes.format = Format::e2m1;
      weight.codes.columns = k;
      weight.codes.stride = 2 * bytes;
    } else {
      weight.codes = memory.input(stored.codes, kOutputs, k, fill(shape.fill, stored.codes, kOutputs, k, 91));
    }
    weight.scales = memory.input(stored.scales, block_rows, blocks,
                                 fill(Fill::ordinary, stored.scales, block_rows, blocks, 92, 2.0F));
    weight.block = stored.block;
    weight.second = stored.second;
    weight.second_scale = 0.3F;
    args.out = memory.output("out", Format::f32, shape.rows, kOutputs, shape.padding);
    args.partial = partial;
    memory.launch(args);
  };
  const std::string sums = partial == Format::f32 ? "" : "halves_";
  cases.push_back({"gemm_" + sums + "scaled_" + stored.name + "_" + shape.name, OpId::Gemm, build});
}

void add_dots(std::vector<OpCase>& cases, Format weight, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t k = shape.columns;
    DotProductsArgs args;
    args.x = memory.input(Format::f32, shape.rows, k, fill(shape.fill, Format::f32, shape.rows, k, 67), shape.padding);
    args.weight = memory.input(weight, kOutputs, k, fill(shape.fill, weight, kOutputs, k, 68), shape.padding);
    args.out = memory.output("out", Format::f32, shape.rows, kOutputs, shape.padding);
    args.squares = memory.output("squares", Format::f32, 1, kOutputs, 0);
    memory.launch(args);
  };
  cases.push_back(
      {"dot_products_" + std::string(name(weight)) + "_" + std::string(shape.name), OpId::DotProducts, build});
}

void add_patches(std::vector<OpCase>& cases, const Shape& shape, Format weight = Format::bf16,
                 std::int64_t outputs = kOutputs) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t k = shape.columns;
    PatchEmbeddingArgs args;
    args.patches =
        memory.input(Format::f32, shape.rows, k, fill(shape.fill, Format::f32, shape.rows, k, 64), shape.padding);
    args.weight = memory.input(weight, outputs, k, fill(Fill::ordinary, weight, outputs, k, 65));
    args.bias = memory.input(Format::f32, 1, outputs, fill(Fill::ordinary, Format::f32, 1, outputs, 66));
    args.out = memory.output("out", Format::f32, shape.rows, outputs, shape.padding);
    memory.launch(args);
  };
  cases.push_back({"patch_embedding_" + shape.name, OpId::PatchEmbedding, build});
}

void add_embedding(std::vector<OpCase>& cases, Format table, bool positions, bool patches, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t width = shape.columns;
    const std::int64_t vocabulary = shape.rows + 4;
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint32_t> patch_rows;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const bool image = patches && row % 2 == 1;
      tokens.push_back(image ? 0xffffffffU : static_cast<std::uint32_t>(row * 3 % vocabulary));
      patch_rows.push_back(image ? static_cast<std::uint32_t>(row / 2 % 2) : 0xffffffffU);
    }
    EmbeddingArgs args;
    args.tokens = memory.input(Format::i32, shape.rows, 1, tokens);
    if (patches) {
      args.patch_rows = memory.input(Format::i32, shape.rows, 1, patch_rows);
      args.patches = memory.input(Format::f32, 2, width, fill(Fill::ordinary, Format::f32, 2, width, 67));
    }
    args.table = memory.input(table, vocabulary, width, fill(shape.fill, table, vocabulary, width, 68), shape.padding);
    if (positions) {
      args.positions = memory.input(Format::f32, 40, width, fill(Fill::ordinary, Format::f32, 40, width, 69));
    }
    args.out = memory.output("out", Format::f32, shape.rows, width, shape.padding);
    args.first_position = 2;
    memory.launch(args);
  };
  cases.push_back({"embedding_" + std::string(name(table)) + (positions ? "_positions" : "") +
                       (patches ? "_patches_" : "_") + shape.name,
                   OpId::Embedding, build});
}

}  // namespace

void add_product_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  for (const Shape& shape : shapes) {
    add_gemm(cases, Format::f32, Format::f32, true, shape);
    add_gemm(cases, Format::f32, Format::f32, false, shape);
    add_gemm(cases, Format::f32, Format::bf16, true, shape);
    add_gemm(cases, Format::f16, Format::f16, true, shape);
    add_gemm(cases, Format::bf16, Format::bf16, false, shape);
    add_gemm(cases, Format::f32, Format::f32, true, shape, Format::f16);
    add_gemm(cases, Format::f16, Format::bf16, false, shape, Format::f16);
    add_tensor_core(cases, Format::f32, Format::f32, true, shape);
    add_tensor_core(cases, Format::f32, Format::bf16, false, shape);
    add_tensor_core(cases, Format::bf16, Format::bf16, true, shape);
    add_tensor_core(cases, Format::f16, Format::f16, false, shape);
    add_tensor_core(cases, Format::f16, Format::bf16, true, shape);
    add_packed(cases, shape);
    for (const Stored& stored : kStored) add_scaled(cases, stored, shape);
    add_scaled(cases, kStored[0], shape, Format::f16);
    for (const Format format : {Format::f32, Format::f16, Format::bf16}) add_dots(cases, format, shape);
    add_patches(cases, shape);
    add_embedding(cases, Format::f32, false, false, shape);
    add_embedding(cases, Format::f32, true, true, shape);
    add_embedding(cases, Format::bf16, true, false, shape);
  }
  // Enough of them for a GPU's large tiles.
  const Shape tall{"tall", Fill::ordinary, 1000, 32, 0};
  add_gemm(cases, Format::f32, Format::f32, true, tall, Format::f32, 512);
  add_tensor_core(cases, Format::bf16, Format::bf16, true, tall, 512);
  add_patches(cases, {"tall", Fill::ordinary, 1000, 12, 0}, Format::f32, 512);
  // Few of them, whose weight a GPU reads in whole vectors, two stages of k and a part of a third.
  const Shape few{"few", Fill::zoo, 3, 300, 0};
  add_gemm(cases, Format::f32, Format::f32, true, few, Format::f32, 72);
  add_gemm(cases, Format::bf16, Format::bf16, false, few, Format::f32, 72);
  add_packed(cases, few, 72);
  add_patches(cases, few, Format::f32, 72);
}

}  // namespace nanscope::kernels::cases
