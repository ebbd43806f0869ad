#include "instrument/diagnosis/casts.h"

#include <gtest/gtest.h>

#include "instrument/recompute/arithmetic.h"
#include "instrument/recompute/recompute.h"
#include "tests/unit/instrument/diagnosis/reference.h"

/// What casts did to their values.
namespace nanscope {
namespace {

using testing::constant;
using testing::DumpGraph;

Cast only_cast(DumpGraph& graph) {
  PlainArithmetic arithmetic;
  Facts facts(graph);
  Recomputer recomputer(facts, arithmetic);
  const std::vector<Cast> casts = casts_of(recomputer.values());
  EXPECT_EQ(casts.size(), 1U);
  return casts.empty() ? Cast{} : casts.front();
}

/// How many of four by four values x are clipped by a cast without a scale of its own.
std::int64_t clipped(float x, Format format) {
  DumpGraph g;
  g.pass();
  testing::store(g, g.source({.fill = constant(x)}), 4, 4, 1, format);
  return only_cast(g).clipped;
}

/// 448 is 1.75 x 2^8 in steps of 2^5: what rounds to it ends at 464. 57344 is 1.75 x 2^15 in steps of 2^13, 61440. 240
/// is 1.875 x 2^7 in steps of 2^4, 248.
TEST(Casts, WhatRoundsToTheLargestCodeIsNotClipped) {
  EXPECT_EQ(clipped(463, Format::e4m3), 0);
  EXPECT_EQ(clipped(466, Format::e4m3), 16);
  EXPECT_EQ(clipped(61000, Format::e5m2), 0);
  EXPECT_EQ(clipped(62000, Format::e5m2), 16);
  EXPECT_EQ(clipped(247, Format::e4m3fnuz), 0);
  EXPECT_EQ(clipped(249, Format::e4m3fnuz), 16);
}

TEST(Casts, OfAPoolOfNobodysTheScalesOfTheStepAreNobodys) {
  DumpGraph g;
  g.pass({}, 5);
  const TensorId k = g.source({.tokens = 5});
  const TensorId scale = g.parameter("k_scale", 5, 1, [](auto row, auto) { return static_cast<float>(1 + row); });
  g.op("kv_store", OpKind::kv_store, {{"k", k}, {"k_scale", scale}},
       {.role = "k_cache", .tokens = 64, .fill = constant(3), .format = Format::e4m3, .axis = Axis::slots});
  EXPECT_FALSE(only_cast(g).grid.has_value());
}

}  // namespace
}  // namespace nanscope
