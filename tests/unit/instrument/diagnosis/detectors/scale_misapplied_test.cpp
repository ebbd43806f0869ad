#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/numbers/codec.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/one_step.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using testing::DumpGraph;
using ::testing::HasSubstr;
using testing::noise;
using testing::number;
using testing::root_of;

/// Keys are stored under `scale` and read back times `factor`.
Diagnosis read_back(double scale, double factor, double written = 0) {
  DumpGraph g;
  g.pass();
  const TensorId k = g.source({.channels = 16, .fill = noise(8, 100)});
  const auto made = testing::store(g, k, 4, 16, scale, Format::e4m3, true, written);
  g.op("kv_read", OpKind::kv_read, {{"k_cache", made.codes}, {"k_scale", made.scale}},
       {.role = "k_read", .channels = 16, .fill = [&](auto row, auto channel) {
          return static_cast<float>(double{g.at(made.codes, row, channel)} * factor);
        }});
  return diagnosis_of(g);
}

TEST(ScaleMisapplied, LeftOutTwiceOrInvertedWhereCodesAreRead) {
  for (const auto& [factor, text] :
       std::vector<std::pair<double, std::string>>{{1, "left out"}, {0.0625, "applied twice"}, {4, "inverted"}}) {
    const Diagnosis found = read_back(0.25, factor);
    ASSERT_EQ(root_of(found), "scale-misapplied") << text;
    EXPECT_THAT(found.faults[0].summary, HasSubstr(text));
    EXPECT_EQ(found.faults[0].tensor, "p1.kv_read.k_read");
    EXPECT_FALSE(found.faults[0].because.has_value());
  }
}

TEST(ScaleMisapplied, OnceIsClean) { EXPECT_EQ(root_of(read_back(0.25, 0.25)), "clean"); }

TEST(ScaleMisapplied, AScaleOfOneCannotBeMisapplied) { EXPECT_EQ(root_of(read_back(1, 1)), "clean"); }

TEST(ScaleMisapplied, SomeOtherFactorIsNoKnownMisuse) { EXPECT_NE(root_of(read_back(0.25, 0.4)), "scale-misapplied"); }

/// Multiplying by a scale of 1/128 instead of dividing puts every code below the normal numbers of e4m3.
TEST(ScaleMisapplied, InvertedWhereItIsWrittenThoughAllCodesAreTiny) {
  DumpGraph g;
  g.pass();
  const TensorId k = g.source({.channels = 64, .fill = noise(8, 2)});
  testing::store(g, k, 4, 64, 1.0 / 128, Format::e4m3, true, 128);
  const Diagnosis found = diagnosis_of(g);
  ASSERT_EQ(root_of(found), "scale-misapplied");
  EXPECT_THAT(found.faults[0].summary, HasSubstr("inverted"));
}

/// Weights of fp8 with one scale a row of 48, over `layers` layers; the first one's product is off by `wrong`.
struct Weights {
  DumpGraph g;
  explicit Weights(int power) {
    g.pass();
    const TensorId x = g.source({.channels = 32, .fill = noise(1)});
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      g.layer = layer;
      const auto seed = static_cast<std::uint32_t>(layer);
      const TensorId weight = g.op("up_proj.weight", OpKind::parameter, {},
                                   {.role = "weight",
                                    .tokens = 48,
                                    .channels = 32,
                                    .fill = noise(20 + seed, 440),
                                    .format = Format::e4m3,
                                    .axis = Axis::none});
      const auto scale_of = [=](std::int64_t row) { return 0.001F * static_cast<float>(1 + (row + layer) % 7); };
      const TensorId scale =
          g.parameter("up_proj.weight_scale", 48, 1, [=](std::int64_t row, std::int64_t) { return scale_of(row); });
      testing::Numbers right =
          testing::product(testing::stored_numbers(g, x, 4, 32), testing::stored_numbers(g, weight, 48, 32));
      for (std::int64_t t = 0; t < 4; ++t) {
        for (std::int64_t n = 0; n < 48; ++n) right.at(t, n) *= std::pow(double{scale_of(n)}, layer == 0 ? power : 1);
      }
      g.op("up_proj", OpKind::gemm, {{"x", x}, {"weight", weight}, {"weight_scale", scale}},
           {.channels = 48, .fill = testing::fill_of(right)});
    }
  }
};

TEST(ScaleMisapplied, OfOneLayersWeight) {
  for (const auto& [power, text] : std::vector<std::pair<int, std::string>>{{0, "left out"}, {2, "twice"}}) {
    Weights made(power);
    const Diagnosis found = diagnosis_of(made.g);
    ASSERT_EQ(root_of(found), "scale-misapplied") << text;
    EXPECT_THAT(found.faults[0].summary, HasSubstr(text));
    EXPECT_EQ(found.faults[0].where.layer, 0);
  }
  Weights healthy(1);
  EXPECT_EQ(root_of(diagnosis_of(healthy.g)), "clean");
}

}  // namespace
}  // namespace nanscope
