#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "core/run/tensor_source.h"

namespace nanscope {
namespace {

TensorData of_bytes(Format format, std::int64_t channels, std::initializer_list<int> bytes) {
  TensorData data{format, 1, channels, {}};
  for (const int byte : bytes) data.bytes.push_back(static_cast<std::byte>(byte));
  return data;
}

/// Values from the formats' definitions: OCP OFP8 for e4m3 (bias 7) and e5m2, Graphcore and AMD's for the fnuz forms
/// (bias 8, -0 is NaN).
TEST(TensorData, CodesAreReadAsAnotherFormat) {
  const TensorData codes = of_bytes(Format::e4m3, 4, {0x38, 0xb8, 0x80, 0x7e});
  EXPECT_EQ(codes.values_as(Format::e4m3), (std::vector<float>{1.0F, -1.0F, -0.0F, 448.0F}));
  const std::vector<float> other = codes.values_as(Format::e4m3fnuz);
  EXPECT_EQ(other[0], 0.5F);
  EXPECT_EQ(other[1], -0.5F);
  EXPECT_TRUE(std::isnan(other[2]));
  EXPECT_EQ(other[3], 224.0F);
  EXPECT_EQ(codes.values_as(Format::e5m2)[0], 0.5F);
  EXPECT_EQ(of_bytes(Format::f16, 1, {0x00, 0x3c}).values_as(Format::bf16), std::vector<float>{0x1p-7F});
}

TEST(TensorData, CodesOfAnotherWidthAreReadOneByOne) {
  EXPECT_EQ(of_bytes(Format::int8, 2, {0x07, 0xf9}).values_as(Format::i32), (std::vector<float>{7.0F, 249.0F}));
}

}  // namespace
}  // namespace nanscope
