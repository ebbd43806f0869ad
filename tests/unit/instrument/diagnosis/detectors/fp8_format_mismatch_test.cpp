#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/numbers/codec.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/reference.h"

namespace nanscope {
namespace {

using testing::diagnosis_of;
using testing::DumpGraph;
using testing::noise;
using testing::number;
using testing::root_of;

/// Keys are stored in one format and read back as if in another.
Diagnosis read_as(Format written, Format read) {
  DumpGraph g;
  g.pass();
  const double reach = 0.25 * double{info(written).max_finite};
  const TensorId k = g.source({.channels = 16, .fill = noise(8, reach)});
  const auto made = testing::store(g, k, 4, 16, 0.3F, written);
  g.op("kv_read", OpKind::kv_read, {{"k_cache", made.codes}, {"k_scale", made.scale}},
       {.role = "k_read", .channels = 16, .fill = [&](auto row, auto channel) {
          const std::uint32_t code = encode(written, g.at(made.codes, row, channel), Overflow::saturate);
          return decode(read, code) * 0.3F;
        }});
  return diagnosis_of(g);
}

TEST(Fp8FormatMismatch, CodesOfOneFlavourReadAsAnother) {
  for (const Format as : {Format::e4m3fnuz, Format::e5m2, Format::e5m2fnuz}) {
    const Diagnosis found = read_as(Format::e4m3, as);
    ASSERT_EQ(root_of(found), "fp8-format-mismatch") << name(as);
    EXPECT_EQ(number(found.faults[0], "stated"), "e4m3");
    EXPECT_EQ(number(found.faults[0], "taken_as"), name(as));
    EXPECT_FALSE(found.faults[0].because.has_value());
  }
}

TEST(Fp8FormatMismatch, EveryFlavourReadAsItselfIsClean) {
  for (const Format format : {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz, Format::int8}) {
    EXPECT_EQ(root_of(read_as(format, format)), "clean") << name(format);
  }
}

/// Keys and values of a store, written as e5m2 under the scale that e5m2 allows and kept as e4m3.
TEST(Fp8FormatMismatch, OfKeysAndValuesIsOneFault) {
  DumpGraph g;
  g.pass();
  const TensorId k = g.source({.channels = 16, .fill = noise(8, 4), .format = Format::f16});
  const TensorId v = g.op("v_proj", OpKind::gemm, {}, {.channels = 16, .fill = noise(9, 4), .format = Format::f16});
  const float scale = 4.0F / 57344;
  const auto written = [&](TensorId x) {
    return [&g, x, scale](std::int64_t row, std::int64_t channel) {
      return decode(Format::e4m3, encode(Format::e5m2, g.at(x, row, channel) / scale, Overflow::saturate));
    };
  };
  const TensorId k_scale = g.parameter("k_scale", 1, 1, testing::constant(scale));
  const TensorId v_scale = g.parameter("v_scale", 1, 1, testing::constant(scale));
  g.op("kv_store", OpKind::kv_store, {{"k", k}, {"v", v}, {"k_scale", k_scale}, {"v_scale", v_scale}},
       {.role = "k_codes", .channels = 16, .fill = written(k), .format = Format::e4m3});
  g.output({.role = "v_codes", .channels = 16, .fill = written(v), .format = Format::e4m3});
  const Diagnosis found = diagnosis_of(g);
  ASSERT_THAT(testing::classes(found), ::testing::ElementsAre("fp8-format-mismatch"));
  EXPECT_EQ(number(found.faults[0], "taken_as"), "e5m2");
}

}  // namespace
}  // namespace nanscope
