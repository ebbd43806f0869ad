#include "core/numbers/format.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <string>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

TEST(Format, TableHoldsEveryFormatOnceInOrder) {
  ASSERT_EQ(formats().size(), std::size_t{kFormatCount});
  std::set<std::string> names;
  for (std::size_t i = 0; i < formats().size(); ++i) {
    const FormatInfo& row = formats()[i];
    EXPECT_EQ(static_cast<std::size_t>(row.format), i);
    EXPECT_EQ(&info(row.format), &row);
    EXPECT_EQ(name(row.format), row.name);
    names.emplace(row.name);
  }
  EXPECT_EQ(names.size(), formats().size());
}

// Independent of the table: the figures of the specifications.
TEST(Format, LimitsAreThoseOfTheSpecifications) {
  struct Row {
    Format format;
    int bits;
    float max_finite, min_normal, min_subnormal;
  };
  const std::array rows = {
      Row{Format::f32, 32, 3.4028234663852886e38f, 1.1754943508222875e-38f, 1.401298464324817e-45f},
      Row{Format::f16, 16, 65504.0f, 6.103515625e-05f, 5.960464477539063e-08f},
      Row{Format::bf16, 16, 3.3895313892515355e38f, 1.1754943508222875e-38f, 9.183549615799121e-41f},
      Row{Format::e4m3, 8, 448.0f, 0.015625f, 0.001953125f},
      Row{Format::e5m2, 8, 57344.0f, 6.103515625e-05f, 1.52587890625e-05f},
      Row{Format::e4m3fnuz, 8, 240.0f, 0.0078125f, 0.0009765625f},
      Row{Format::e5m2fnuz, 8, 57344.0f, 3.0517578125e-05f, 7.62939453125e-06f},
      Row{Format::e3m2, 6, 28.0f, 0.25f, 0.0625f},
      Row{Format::e2m3, 6, 7.5f, 1.0f, 0.125f},
      Row{Format::e2m1, 4, 6.0f, 1.0f, 0.5f},
      Row{Format::e8m0, 8, 1.7014118346046923e38f, 5.877471754111438e-39f, 0.0f},
      Row{Format::int8, 8, 127.0f, 1.0f, 0.0f},
      Row{Format::i32, 32, 2147483648.0f, 1.0f, 0.0f},
  };
  ASSERT_EQ(rows.size(), formats().size());
  for (const Row& row : rows) {
    const FormatInfo& f = info(row.format);
    EXPECT_EQ(f.bits, row.bits) << f.name;
    EXPECT_EQ(f.max_finite, row.max_finite) << f.name;
    EXPECT_EQ(f.min_normal, row.min_normal) << f.name;
    EXPECT_EQ(f.min_subnormal, row.min_subnormal) << f.name;
    EXPECT_EQ(f.storage_bytes(), static_cast<std::size_t>(row.bits > 16 ? 4 : row.bits > 8 ? 2 : 1)) << f.name;
  }
}

TEST(Format, FieldsFillTheCodeAndNamedCodesDecodeToTheLimits) {
  for (const FormatInfo& f : formats()) {
    EXPECT_EQ(f.bits, f.exponent_bits + f.mantissa_bits + (f.has_sign ? 1 : 0)) << f.name;
    EXPECT_EQ(decode(f.format, f.max_finite_code), f.max_finite) << f.name;
    if (f.canonical_nan_code != 0) {
      EXPECT_TRUE(std::isnan(decode(f.format, f.canonical_nan_code))) << f.name;
    }
    if (f.min_subnormal > 0) {
      EXPECT_EQ(decode(f.format, 1), f.min_subnormal) << f.name;
      EXPECT_EQ(decode(f.format, 1u << f.mantissa_bits), f.min_normal) << f.name;
    }
  }
}

TEST(Format, IsFoundByNameAndByTheSpellingsOfOtherProjects) {
  for (const FormatInfo& f : formats()) EXPECT_EQ(format_from_name(f.name), f.format);
  EXPECT_EQ(format_from_name("torch.float8_e4m3fn"), Format::e4m3);
  EXPECT_EQ(format_from_name("F8_E4M3"), Format::e4m3);
  EXPECT_EQ(format_from_name("fp8"), Format::e4m3);
  EXPECT_EQ(format_from_name("fp8-e5m2"), Format::e5m2);
  EXPECT_EQ(format_from_name("float8_e5m2fnuz"), Format::e5m2fnuz);
  EXPECT_EQ(format_from_name("BF16"), Format::bf16);
  EXPECT_EQ(format_from_name("half"), Format::f16);
  EXPECT_EQ(format_from_name("float8_e8m0fnu"), Format::e8m0);
  EXPECT_EQ(format_from_name("float4_e2m1fn"), Format::e2m1);
  EXPECT_EQ(format_from_name("I32"), Format::i32);
  EXPECT_EQ(format_from_name("e4m4"), std::nullopt);
  EXPECT_EQ(format_from_name(""), std::nullopt);
}

}  // namespace
}  // namespace nanscope
