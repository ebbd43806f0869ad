// The product's tiles on executed PTX against the CPU: random shapes around the tiles' edges, in every form of
// operands, aligned or not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/gemm_tensor_core.h"
#include "tests/ptx/against_cpu.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::ptx {
namespace {

using kernels::GemmArgs;
using kernels::cases::CaseMemory;
using kernels::cases::Fill;
using kernels::cases::OpCase;

struct Product {
  std::int64_t rows;
  std::int64_t depth;
  std::int64_t outputs;
  Format x;
  Format weight;
  Format out;
  bool bias;
  Format partial;
  std::int64_t padding;  ///< of the rows of each
};

std::string name_of(const Product& of) {
  return fmt::format("{} x {} x {}, {} by {} to {}{}, sums in {}, {} behind each row", of.rows, of.depth, of.outputs,
                     name(of.x), name(of.weight), name(of.out), of.bias ? " with a bias" : "", name(of.partial),
                     of.padding);
}

OpCase case_of(const Product& of) {
  return {name_of(of), kernels::OpId::Gemm, [=](CaseMemory& memory) {
            const auto input = [&](Format format, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
              return memory.input(format, rows, columns, fill(Fill::zoo, format, rows, columns, seed), of.padding);
            };
            GemmArgs args;
            args.x = input(of.x, of.rows, of.depth, 1);
            args.weight = input(of.weight, of.outputs, of.depth, 2);
            if (of.bias) args.bias = input(of.x, 1, of.outputs, 3);
            args.out = memory.output("out", of.out, of.rows, of.outputs, of.padding);
            args.partial = of.partial;
            memory.launch(args);
          }};
}

/// The weight in panels alone, as an engine has it on a CPU.
OpCase packed_case_of(const Product& of) {
  return {"packed " + name_of(of), kernels::OpId::Gemm, [=](CaseMemory& memory) {
            const std::int64_t rows = (of.outputs + 31) / 32 * of.depth;
            GemmArgs args;
            args.x = memory.input(of.x, of.rows, of.depth, fill(Fill::zoo, of.x, of.rows, of.depth, 1));
            args.packed = memory.input(Format::f32, rows, 32, fill(Fill::zoo, Format::f32, rows, 32, 2));
            args.out = memory.output("out", of.out, of.rows, of.outputs);
            memory.launch(args);
          }};
}

class PtxTiles : public AgainstCpu {};

std::int64_t below(std::mt19937_64& random, std::int64_t end) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
}

/// Half of them with rows that quads fit in.
Product random_product(std::mt19937_64& random, std::int64_t most_rows, std::int64_t most_depth) {
  constexpr std::array kFormats = {Format::f32, Format::f16, Format::bf16};
  Product product{1 + below(random, most_rows),
                  1 + below(random, most_depth),
                  1 + below(random, 140),
                  kFormats[random() % 3],
                  kFormats[random() % 3],
                  kFormats[random() % 3],
                  random() % 2 == 0,
                  random() % 4 == 0 ? Format::f16 : Format::f32,
                  below(random, 4)};
  if (random() % 2 == 0) product.padding = (4 - product.depth % 4) % 4;
  return product;
}

TEST_F(PtxTiles, RandomShapesHaveTheCpusBits) {
  std::mt19937_64 random(20);
  for (int i = 0; i < 60; ++i) {
    const OpCase op_case = case_of(random_product(random, 70, 70));
    expect_the_cpus_bits(op_case, below(random, 3));
  }
}

/// Several stages of k, and parts of one, weights along k, in panels of columns, and element by element.
TEST_F(PtxTiles, FewRowsHaveTheCpusBits) {
  std::mt19937_64 random(23);
  for (int i = 0; i < 30; ++i) {
    Product product = random_product(random, 4, 600);
    product.partial = Format::f32;
    expect_the_cpus_bits(case_of(product), random() % 4 == 0 ? 1 : 0);
  }
  for (const std::int64_t depth : {128, 256, 257, 384, 512}) {
    const Format f32 = Format::f32;
    expect_the_cpus_bits(case_of({3, depth, 64, f32, f32, f32, false, f32, (4 - depth % 4) % 4}), 0);
    expect_the_cpus_bits(packed_case_of({3, depth, 64, f32, f32, f32, false, f32, 0}), 0);
  }
}

/// No rows are no launch, whatever x points to.
TEST_F(PtxTiles, NoRowsAreNothingToDo) {
  const std::uint64_t before = device_->machine().counts().warp_instructions;
  kernels::cases::OpCase none = case_of({1, 64, 32, Format::f32, Format::f32, Format::f32, false, Format::f32, 0});
  none.build = [](CaseMemory& memory) {
    GemmArgs args;
    args.x = memory.input(Format::f32, 1, 64, fill(Fill::zoo, Format::f32, 1, 64, 1));
    args.weight = memory.input(Format::f32, 32, 64, fill(Fill::zoo, Format::f32, 32, 64, 2));
    args.out = memory.output("out", Format::f32, 1, 32);
    args.x.rows = args.out.rows = 0;
    memory.launch(args);
  };
  const auto ran = run_case(none, *device_);
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(device_->machine().counts().warp_instructions, before);
}

/// As many outputs as make the large tiles be taken, whole and ragged, one k and several stages of it.
TEST_F(PtxTiles, LargeTilesHaveTheCpusBits) {
  const Format f32 = Format::f32;
  expect_the_cpus_bits(case_of({929, 1, 460, f32, f32, f32, true, f32, 3}), 0);
  expect_the_cpus_bits(case_of({1024, 20, 512, f32, f32, f32, false, f32, 0}), 0);
  expect_the_cpus_bits(case_of({1000, 19, 500, Format::bf16, Format::f16, f32, true, f32, 0}), 1);
  expect_the_cpus_bits(case_of({900, 36, 512, f32, Format::bf16, Format::bf16, true, f32, 0}), 0);
}

struct Attention {
  std::int64_t tokens;
  std::int64_t keys;
  std::int64_t width;  ///< of a head
  std::int64_t heads;
  std::int64_t kv_heads;
  Format format;  ///< of queries and scores, or of probabilities and outputs
};

OpCase scores_of(const Attention& of) {
  return {fmt::format("scores of {} by {}", of.tokens, of.keys), kernels::OpId::AttentionScores,
          [=](CaseMemory& memory) {
            kernels::AttentionScoresArgs args;
            const std::int64_t queries = of.heads * of.width;
            const std::int64_t channels = of.kv_heads * of.width;
            args.q = memory.input(of.format, of.tokens, queries, fill(Fill::zoo, of.format, of.tokens, queries, 1), 4);
            args.k = memory.input(Format::f32, of.keys, channels, fill(Fill::zoo, Format::f32, of.keys, channels, 2));
            args.out = memory.output("out", of.format, of.tokens, of.heads * of.keys);
            args.heads = of.heads;
            args.kv_heads = of.kv_heads;
            args.factor = 0.3F;
            args.softcap = of.format == Format::f32 ? 0.0F : 30.0F;
            memory.launch(args);
          }};
}

OpCase mix_of(const Attention& of) {
  return {fmt::format("mix of {} by {}", of.tokens, of.keys), kernels::OpId::AttentionMix, [=](CaseMemory& memory) {
            kernels::AttentionMixArgs args;
            const std::int64_t scores = of.heads * of.keys;
            const std::int64_t channels = of.kv_heads * of.width;
            args.p = memory.input(of.format, of.tokens, scores, fill(Fill::zoo, of.format, of.tokens, scores, 3));
            args.v =
                memory.input(Format::f32, of.keys, channels, fill(Fill::zoo, Format::f32, of.keys, channels, 4), 1);
            args.out = memory.output("out", of.format, of.tokens, of.heads * of.width);
            args.heads = of.heads;
            args.kv_heads = of.kv_heads;
            args.factor = 0.7F;
            memory.launch(args);
          }};
}

TEST_F(PtxTiles, LargeTilesOfAttentionHaveTheCpusBits) {
  expect_the_cpus_bits(scores_of({131, 250, 20, 8, 8, Format::f32}), 0);
  expect_the_cpus_bits(scores_of({66, 512, 12, 8, 4, Format::bf16}), 1);
  expect_the_cpus_bits(mix_of({130, 36, 100, 16, 16, Format::f32}), 0);
  expect_the_cpus_bits(mix_of({65, 19, 128, 32, 16, Format::f16}), 3);
}

/// -2^-100 x 2^-100 from +0 on is a number below 0 that rounds to -0, and stays one: what fills a stage is no summand.
class PtxMinusZero : public PtxTiles, public testing::WithParamInterface<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Rows, PtxMinusZero, testing::Values(2, 6));

TEST_P(PtxMinusZero, SumsOfMinusZeroStayMinusZero) {
  const std::int64_t x_rows = GetParam();  // few, which have a kernel of their own, and more
  for (const std::int64_t depth : {1, 3, 4, 16, 17, 130, 132}) {
    const OpCase op_case{"minus_zero", kernels::OpId::Gemm, [=](CaseMemory& memory) {
                           const auto all = [&](std::int64_t rows, float value) {
                             const std::vector<std::uint32_t> codes(static_cast<std::size_t>(rows * depth),
                                                                    std::bit_cast<std::uint32_t>(value));
                             return memory.input(Format::f32, rows, depth, codes);
                           };
                           GemmArgs args;
                           args.x = all(x_rows, -0x1p-100F);
                           args.weight = all(3, 0x1p-100F);
                           args.out = memory.output("out", Format::f32, x_rows, 3);
                           memory.launch(args);
                         }};
    const auto found = run_case(op_case, *device_);
    ASSERT_TRUE(found) << found.error().message;
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(3 * x_rows));
    ASSERT_EQ(found->front().bytes.size(), codes.size() * sizeof(codes[0]));
    std::memcpy(codes.data(), found->front().bytes.data(), found->front().bytes.size());
    for (const std::uint32_t code : codes) EXPECT_EQ(code, 0x80000000U) << depth;
  }
}

/// Tensor cores: operands of any format and alignment, both sizes of tiles, edges in all directions.
OpCase matrix_case_of(const Product& of) {
  return {name_of(of), kernels::OpId::GemmTensorCore, [=](CaseMemory& memory) {
            const auto input = [&](Format format, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
              return memory.input(format, rows, columns, fill(Fill::zoo, format, rows, columns, seed), of.padding);
            };
            kernels::GemmTensorCoreArgs args;
            args.x = input(of.x, of.rows, of.depth, 1);
            args.weight = input(of.weight, of.outputs, of.depth, 2);
            if (of.bias) args.bias = input(of.x, 1, of.outputs, 3);
            args.out = memory.output("out", of.out, of.rows, of.outputs, of.padding);
            memory.launch(args);
          }};
}

TEST_F(PtxTiles, MatrixProductsHaveTheCpusBits) {
  std::mt19937_64 random(22);
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  constexpr std::array kFormats = {Format::f32, Format::f16, Format::bf16};
  for (int i = 0; i < 40; ++i) {
    const Product product{1 + below(70),
                          1 + below(100),
                          1 + below(140),
                          kFormats[random() % 3],
                          kFormats[random() % 3],
                          kFormats[random() % 3],
                          random() % 2 == 0,
                          Format::f32,
                          below(4)};
    expect_the_cpus_bits(matrix_case_of(product), below(4));
  }
  expect_the_cpus_bits(matrix_case_of({1000, 40, 500, Format::bf16, Format::bf16, Format::bf16, true, Format::f32, 0}),
                       0);
  expect_the_cpus_bits(matrix_case_of({1100, 19, 450, Format::f16, Format::f16, Format::f32, false, Format::f32, 1}),
                       1);
}

/// What 64 more of k cost in large tiles of bf16, where everything is aligned; docs/measurements-gpu.md derives what
/// follows.
TEST_F(PtxTiles, MatrixProductsLoadLittleForEachInstruction) {
  const auto counts = [&](std::int64_t depth) {
    device_->machine().forget_counts();
    const Format bf16 = Format::bf16;
    const auto ran = run_case(matrix_case_of({1024, depth, 512, bf16, bf16, bf16, false, Format::f32, 0}), *device_);
    EXPECT_TRUE(ran) << ran.error().message;
    return device_->machine().counts();
  };
  const Counts before = counts(32);
  const Counts after = counts(96);
  const auto mmas = static_cast<double>(after.mmas - before.mmas);
  ASSERT_EQ(after.mmas - before.mmas, std::uint64_t{1024} / 16 * 512 / 8 * 64 / 16);
  const double instructions = static_cast<double>(after.warp_instructions - before.warp_instructions) / mmas;
  const double shared = static_cast<double>(after.shared_elements - before.shared_elements) / mmas;
  const double global = static_cast<double>(after.elements - before.elements) / mmas;
  fmt::print("a matrix product: {:.2f} instructions of the warp, {:.1f} words of shared memory, {:.2f} of global\n",
             instructions, shared, global);
  EXPECT_LE(instructions, 6.5);
  EXPECT_LE(shared, 72);
  EXPECT_LE(global, 24);
}

/// What 32 more of k cost in large tiles, where everything is aligned. A multiprocessor of sm_90 starts four warps'
/// instructions a clock, all of which may be fmas, and moves 128 bytes a clock to or from shared memory; 16 bytes a
/// lane take a warp four clocks at worst. docs/measurements-gpu.md derives what follows of it.
TEST_F(PtxTiles, HalfOfThePeakIsLeftByInstructionsAndSharedMemory) {
  const auto counts = [&](std::int64_t depth) {
    device_->machine().forget_counts();
    const Format f32 = Format::f32;
    const auto ran = run_case(case_of({1024, depth, 512, f32, f32, f32, false, f32, 0}), *device_);
    EXPECT_TRUE(ran) << ran.error().message;
    return device_->machine().counts();
  };
  const Counts before = counts(16);
  const Counts after = counts(48);
  const auto a_fma = [&](std::uint64_t Counts::*what) {
    return static_cast<double>(after.*what - before.*what) / static_cast<double>(after.fmas - before.fmas);
  };
  ASSERT_EQ(after.fmas - before.fmas, std::uint64_t{1024} * 512 * 32);
  const double by_instructions = 1 / a_fma(&Counts::lane_instructions);
  const double by_shared_memory = 1 / (4 * a_fma(&Counts::shared_elements));
  fmt::print(
      "a fma: {:.3f} instructions, {:.4f} elements of shared memory, {:.4f} of global; of the peak {:.2f}, {:.2f}\n",
      a_fma(&Counts::lane_instructions), a_fma(&Counts::shared_elements), a_fma(&Counts::elements), by_instructions,
      by_shared_memory);
  EXPECT_GE(by_instructions, 0.8);
  EXPECT_GE(by_shared_memory, 0.8);
}

}  // namespace
}  // namespace nanscope::ptx
