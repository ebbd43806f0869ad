// Compares casts with their definition. CodecLong walks all 2^32 inputs.
#include <gtest/gtest.h>

#include "core/numbers/codec.h"
#include "tests/unit/core/numbers/codec_walk.h"
#include "tests/unit/core/numbers/definition.h"

namespace nanscope {
namespace {

std::uint32_t oracle_encode(Format format, float value, Overflow overflow) {
  return testing::define_encode(info(format), value, overflow);
}

TEST(CodecCasts, StridedInputsAndAllBoundariesAreCastAsDefined) { testing::expect_strided_casts(oracle_encode); }

TEST(CodecLong, AllFloatsToE4m3) { testing::expect_all_casts<Format::e4m3>(oracle_encode); }
TEST(CodecLong, AllFloatsToE5m2) { testing::expect_all_casts<Format::e5m2>(oracle_encode); }
TEST(CodecLong, AllFloatsToF16) { testing::expect_all_casts<Format::f16>(oracle_encode); }
TEST(CodecLong, AllFloatsToBf16) { testing::expect_all_casts<Format::bf16>(oracle_encode); }

}  // namespace
}  // namespace nanscope
