// The sum over ranks in each order, written out by hand from NCCL's sources, with its own rounding to bf16.
#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "kernels/ops/all_reduce.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::Floats;

float to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
}

std::uint16_t bf16_code(float x) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16); }

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kColumns = 70;

/// Parts of all ranks in bf16; `expected` is asked for what becomes of one element's.
void expect_sums(std::int64_t ranks, AllReduceOrder order,
                 const std::function<float(std::int64_t index, const std::vector<float>& x)>& expected) {
  Floats parts = test::random_floats(ranks * kRows, kColumns, 17);
  std::vector<std::uint16_t> codes;
  for (float& one : parts.data) codes.push_back(bf16_code(one = to_bf16(one)));
  std::vector<std::uint16_t> out(kRows * kColumns);
  test::launch(AllReduceArgs{.parts = {codes.data(), Format::bf16, ranks * kRows, kColumns, kColumns},
                             .out = {out.data(), Format::bf16, kRows, kColumns, kColumns},
                             .ranks = ranks,
                             .order = order});
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    std::vector<float> x;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      x.push_back(parts.data[static_cast<std::size_t>(rank * kRows * kColumns + i)]);
    ASSERT_EQ(out[static_cast<std::size_t>(i)], bf16_code(expected(i, x))) << ranks << " ranks, element " << i;
  }
}

float add(float a, float b) { return to_bf16(a + b); }

TEST(AllReduce, ByRankRoundsOnce) {
  expect_sums(4, AllReduceOrder::rank, [](std::int64_t, const auto& x) { return to_bf16(x[0] + x[1] + x[2] + x[3]); });
  expect_sums(1, AllReduceOrder::rank, [](std::int64_t, const auto& x) { return x[0]; });
}

/// 210 elements, 52.5 a rank, in whole 16 bytes 56: chunk c begins at rank c + 1 and ends at rank c.
TEST(AllReduce, ARingBeginsBehindTheChunksOwner) {
  expect_sums(4, AllReduceOrder::ring, [](std::int64_t index, const auto& x) {
    if (index < 56) return add(x[0], add(x[3], add(x[2], x[1])));
    if (index < 112) return add(x[1], add(x[0], add(x[3], x[2])));
    if (index < 168) return add(x[2], add(x[1], add(x[0], x[3])));
    return add(x[3], add(x[2], add(x[1], x[0])));
  });
}

/// 0 has the child 2 of 4, which has 1 and 3; of 6 it is 4, which has 2 and, 6 not being there, 5; of 3 it is 2 with 1.
TEST(AllReduce, ATreeAddsItsChildren) {
  expect_sums(2, AllReduceOrder::tree, [](std::int64_t, const auto& x) { return add(x[0], x[1]); });
  expect_sums(3, AllReduceOrder::tree, [](std::int64_t, const auto& x) { return add(x[0], add(x[2], x[1])); });
  expect_sums(4, AllReduceOrder::tree,
              [](std::int64_t, const auto& x) { return add(x[0], add(add(x[2], x[1]), x[3])); });
  expect_sums(6, AllReduceOrder::tree,
              [](std::int64_t, const auto& x) { return add(x[0], add(add(x[4], add(add(x[2], x[1]), x[3])), x[5])); });
}

/// 40000 + 40000 - 40000: in range, but not on the way.
TEST(AllReduce, HalvesOverflowBetweenRanks) {
  std::vector<std::uint16_t> parts = {0x78e2, 0x78e2, 0xf8e2};
  std::uint16_t out = 0;
  AllReduceArgs args{.parts = {parts.data(), Format::f16, 3, 1, 1}, .out = {&out, Format::f16, 1, 1, 1}, .ranks = 3};
  test::launch(args);
  EXPECT_EQ(out, 0x78e2);
  args.order = AllReduceOrder::ring;
  std::swap(parts[0], parts[2]);  // the only chunk with an element begins at rank 1
  test::launch(args);
  EXPECT_EQ(out, 0x7c00);
}

TEST(AllReduce, RefusesWhatFitsNoRanks) {
  std::vector<float> data(8);
  const AllReduceArgs args{
      .parts = {data.data(), Format::f32, 3, 2, 2}, .out = {data.data(), Format::f32, 1, 2, 2}, .ranks = 2};
  EXPECT_FALSE(check(args));
}

}  // namespace
}  // namespace nanscope::kernels
