#include <cmath>
#include <tuple>

#include "tests/unit/instrument/recompute/again.h"

/// Quantization in blocks down the columns, against OCP MX 1.0 (6.3: the scale is 2^(floor(log2 amax) - emax), elements
/// are rounded to nearest even) in double precision.
namespace nanscope::testing {
namespace {

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kColumns = 8;
constexpr std::int64_t kBlock = 32;
constexpr int kEmax = 2;  ///< of E2M1

struct Columns {
  std::unique_ptr<DumpGraph> graph = std::make_unique<DumpGraph>();
  TensorId codes = 0;
  TensorId scales = 0;
};

/// E2M1's value nearest to x; of two, that with the even code.
double e2m1(double x) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::size_t best = 0;
  for (std::size_t i = 1; i < std::size(kValues); ++i) {
    const double gap = std::abs(std::abs(x) - kValues[i]);
    const double held = std::abs(std::abs(x) - kValues[best]);
    if (gap < held || (gap == held && i % 2 == 0)) best = i;
  }
  return std::copysign(kValues[best], x);
}

/// `change` edits the codes, then the scales, before they are stored.
Columns quantized(const Change& change_codes = unchanged, const Change& change_scales = unchanged) {
  Columns made;
  DumpGraph& g = *made.graph;
  g.pass({Span{0, 0, 0, kRows, 0, kRows}}, kRows);
  const TensorId x = g.source({.tokens = kRows, .channels = kColumns, .fill = noise(7, 3)});
  Numbers scales(2, kColumns);
  Numbers codes(kRows, kColumns);
  for (std::int64_t c = 0; c < kColumns; ++c) {
    for (std::int64_t block = 0; block < 2; ++block) {
      double amax = 0;
      const std::int64_t end = std::min((block + 1) * kBlock, kRows);
      for (std::int64_t r = block * kBlock; r < end; ++r) amax = std::max(amax, std::abs(double{g.at(x, r, c)}));
      scales.at(block, c) = std::ldexp(1.0, static_cast<int>(std::floor(std::log2(amax))) - kEmax);
      for (std::int64_t r = block * kBlock; r < end; ++r)
        codes.at(r, c) = e2m1(double{g.at(x, r, c)} / scales.at(block, c));
    }
  }
  change_codes(codes);
  change_scales(scales);
  BlockAttributes form;
  form.format = "mxfp4";
  form.block = kBlock;
  made.codes = g.op(
      "v_quantise", OpKind::quantise_columns, {{"x", x}},
      {.role = "codes", .tokens = kRows, .channels = kColumns, .fill = fill_of(codes), .format = Format::e2m1}, form);
  made.scales = g.output({.role = "scales",
                          .tokens = 2,
                          .channels = kColumns,
                          .fill = fill_of(scales),
                          .format = Format::e8m0,
                          .axis = Axis::none});
  return made;
}

TEST(RecomputeColumns, CodesAndScalesComeOutToTheBit) {
  const Columns made = quantized();
  Again again(*made.graph);
  for (const TensorId id : {made.codes, made.scales}) {
    ASSERT_NE(again.result(id), nullptr) << again.why_not(id);
    EXPECT_EQ(again.result(id)->share(), 1.0);
  }
  EXPECT_EQ(again.result(made.scales)->elements, 2 * kColumns);
  // Of exact numbers nothing is left open.
  const Prediction scales = again.expected(made.scales);
  EXPECT_EQ(*std::max_element(scales.bound.begin(), scales.bound.end()), 0.0F);
}

TEST(RecomputeColumns, ACodeThatIsOneStepOffIsSeen) {
  const Columns made = quantized([](Numbers& codes) { codes.at(33, 5) = codes.at(33, 5) == 1 ? 1.5 : 1; });
  Again again(*made.graph);
  ASSERT_NE(again.result(made.codes), nullptr);
  EXPECT_THAT(again.result(made.codes)->bad_rows, ::testing::ElementsAre(33));
  EXPECT_EQ(again.result(made.codes)->worst.channel, 5);
}

TEST(RecomputeColumns, AScaleThatIsNotOfItsBlockIsSeen) {
  const Columns made = quantized(unchanged, [](Numbers& scales) { scales.at(1, 3) *= 2; });
  Again again(*made.graph);
  ASSERT_NE(again.result(made.scales), nullptr);
  EXPECT_THAT(again.result(made.scales)->bad_rows, ::testing::ElementsAre(1));
  // The codes are those of the scale that was to be.
  ASSERT_NE(again.result(made.codes), nullptr);
  EXPECT_LT(again.result(made.codes)->share(), 1.0);
}

}  // namespace
}  // namespace nanscope::testing
