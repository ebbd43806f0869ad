#include "core/dump/diff_dumps.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/core/dump/memory_dump.h"

/// Which tensors of two dumps are the same, but for rounding.
namespace nanscope {
namespace {

using testing::MemoryDump;

DumpDiff diff_of(MemoryDump& a, MemoryDump& b) {
  const Result<DumpDiff> diff = diff_dumps(a.dump(), a, b.dump(), b);
  EXPECT_TRUE(diff.has_value());
  return diff.value_or(DumpDiff{});
}

/// Opened without sums: a half of a millionth is no rounding, a quarter beside a million is.
TEST(DiffDumps, DifferencesAreRelativeWithoutSums) {
  for (const double size : {1e-6, 1e6}) {
    MemoryDump a;
    MemoryDump b;
    std::vector<double> values(8, size);
    for (MemoryDump* dump : {&a, &b}) {
      dump->add("model.layers.0.mlp.output", "f32", {1, 8}, values);
      dump->last().health.sum_sq = std::numeric_limits<double>::quiet_NaN();
      values[3] = size == 1e6 ? size + 0.25 : size * 1.5;
    }
    EXPECT_EQ(diff_of(a, b).rounding, size == 1e6 ? 1U : 0U) << size;
  }
}

/// Of another folder, and of the same module: the codes of one are not the values of the other.
TEST(DiffDumps, FormsLayersAndExpertsAreApart) {
  MemoryDump a;
  MemoryDump b;
  a.add("old/layer_1/k", "f32", {1, 8}, std::vector<double>(8, 1));
  b.add("new/layer_2/k", "f32", {1, 8}, std::vector<double>(8, 2));
  b.add("new/layer_1/k_codes", "f32", {1, 8}, std::vector<double>(8, 3));
  b.add("new/layer_1/k", "f32", {1, 8}, std::vector<double>(8, 1));
  const DumpDiff diff = diff_of(a, b);
  EXPECT_EQ(diff.equal, 1U);
  EXPECT_EQ(diff.unmatched, 2U);
}

TEST(DiffDumps, StatisticsAreComparedAsFarAsTheyGo) {
  for (const double peak : {5.0, 9.0}) {
    MemoryDump a;
    MemoryDump b;
    for (MemoryDump* dump : {&a, &b}) {
      dump->add("model.layers.0.mlp.output", "f32", {1, 2}, {1, dump == &a ? 5.0 : peak});
      dump->last().stated = true;
      dump->add("model.layers.1.mlp.output", "f32", {1, 2}, {1, 2});
    }
    const DumpDiff diff = diff_of(a, b);
    EXPECT_EQ(diff.compared, 2U);
    EXPECT_EQ(diff.beyond, peak == 5.0 ? 0U : 1U);
  }
}

}  // namespace
}  // namespace nanscope
