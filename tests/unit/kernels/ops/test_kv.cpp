// The quantised cache: the published arithmetic of a locked scale, slots and blocks, stale slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/numbers/codec.h"
#include "kernels/ops/kv_read.h"
#include "kernels/ops/kv_store.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::bits;
using test::Floats;
using test::Indices;
using Codes = test::Matrix<std::uint8_t>;

/// Stores x into slots 0, 1, ... of an e4m3 pool and reads it back.
Floats round_trip(Floats x, float scale, Overflow overflow = Overflow::saturate) {
  Codes pool(32, x.columns, std::uint8_t{0xa5});
  Indices slots(x.rows, 1);
  for (std::int64_t row = 0; row < x.rows; ++row) slots.at(row, 0) = static_cast<std::int32_t>(row);
  Floats scales(1, 1, scale);
  KvStoreArgs store;
  store.x = x.view();
  store.pool = pool.view();
  store.slots = slots.view();
  store.scales = scales.view();
  store.overflow = overflow;
  test::launch(store);
  Indices blocks(2, 1, {0, 1});
  Floats out(x.rows, x.columns);
  KvReadArgs read;
  read.pool = pool.view();
  read.blocks = blocks.view();
  read.out = out.view();
  read.scale = scale;
  test::launch(read);
  return out;
}

TEST(KvStore, ALockedScaleClipsTheLaterRangeToOneValue) {
  EXPECT_EQ(448.0F * 0.025F, 11.2F);
  const Floats x(1, 8, {11.2F, 12.5F, 15.0F, 18.75F, 20.0F, 25.3F, 44.0F, 77.6F});
  const Floats found = round_trip(x, 0.025F);
  for (const float v : found.data) EXPECT_EQ(v, 11.2F);
}

TEST(KvStore, RoundsToTheNearestE4m3ValueTiesToEven) {
  const Floats x(1, 4, {5.0F, 10.8F, 11.0F, -5.0F});
  const Floats found = round_trip(x, 0.025F);
  EXPECT_EQ(found.at(0, 0), 192.0F * 0.025F) << "200 lies between 192 and 208: tie to the even code";
  EXPECT_EQ(found.at(0, 1), 448.0F * 0.025F);
  EXPECT_EQ(found.at(0, 2), 11.2F);
  EXPECT_EQ(found.at(0, 3), -192.0F * 0.025F);
}

TEST(KvStore, WithoutSaturationTheLaterRangeBecomesNan) {
  const Floats found = round_trip(Floats(1, 3, {11.2F, 12.5F, test::kInf}), 0.025F, Overflow::overflow);
  EXPECT_EQ(found.at(0, 0), 11.2F);
  EXPECT_EQ(bits(found.at(0, 1)), test::kCanonical);
  EXPECT_EQ(bits(found.at(0, 2)), test::kCanonical);
}

TEST(KvStore, EveryNanPayloadIsStoredAsTheOneNan) {
  for (const std::uint32_t payload : {0x7fc00000U, 0xffc00000U, 0x7fffffffU, 0x7f800001U, 0xff800001U, 0x7fc00123U}) {
    const Floats found = round_trip(Floats(1, 1, test::from_bits(payload)), 0.025F);
    EXPECT_EQ(bits(found.at(0, 0)), test::kCanonical);
  }
}

TEST(KvStore, AZeroScaleTurnsZerosIntoNanAndTheRestIntoTheLargest) {
  const Floats found = round_trip(Floats(1, 2, {0.0F, 1.0F}), 0.0F);
  EXPECT_TRUE(std::isnan(found.at(0, 0))) << "0/0";
  EXPECT_EQ(found.at(0, 1), 0.0F) << "1/0 saturates to 448, times 0";
}

TEST(KvStore, AClampThatPassesOverNanStoresTheLargestNumber) {
  Floats x(1, 6, {test::kNan, -test::kNan, test::kInf, -test::kInf, 500.0F, 1.0F});
  Codes pool(1, 6);
  Indices slots(1, 1, {0});
  KvStoreArgs args;
  args.x = x.view();
  args.pool = pool.view();
  args.slots = slots.view();
  args.overflow = Overflow::overflow;
  test::launch(args);
  for (const int i : {0, 1, 4}) EXPECT_EQ(pool.at(0, i) & 0x7f, 0x7f) << "without it a NaN is stored";
  args.clamp = 448.0F;
  test::launch(args);
  EXPECT_EQ(pool.data, (std::vector<std::uint8_t>{0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x38}));
}

struct Store {
  Codes pool{24, 40, std::uint8_t{0x11}};
  Floats slot_scales{24, 1, -1.0F};
  Codes codes{3, 40, std::uint8_t{0x22}};
};

Store store_scattered() {
  Store result;
  Floats x = test::random_floats(3, 40, 41, 10.0F);
  Indices slots(3, 1, {17, -1, 5});
  Floats scales(3, 1, {0.5F, 0.25F, 0.125F});
  KvStoreArgs args;
  args.x = x.view();
  args.pool = result.pool.view();
  args.slots = slots.view();
  args.scales = scales.view();
  args.slot_scales = result.slot_scales.view();
  args.codes = result.codes.view();
  test::launch(args);
  for (const std::int64_t row : {0, 2}) {
    for (std::int64_t i = 0; i < 40; ++i) {
      const float scale = scales.at(row, 0);
      EXPECT_EQ(result.pool.at(slots.at(row, 0), i), encode(Format::e4m3, x.at(row, i) / scale, Overflow::saturate));
      EXPECT_EQ(result.codes.at(row, i), result.pool.at(slots.at(row, 0), i));
    }
  }
  return result;
}

TEST(KvStore, WritesTheNamedSlotsWithTheirOwnScaleAndNoOthers) {
  const Store found = store_scattered();
  for (std::int64_t slot = 0; slot < 24; ++slot) {
    const bool written = slot == 17 || slot == 5;
    EXPECT_EQ(found.slot_scales.at(slot, 0), slot == 17 ? 0.5F : slot == 5 ? 0.125F : -1.0F);
    if (written) continue;
    for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(found.pool.at(slot, i), 0x11);
  }
}

TEST(KvRead, FollowsTheBlockTableAndTheSlotsScales) {
  Codes pool(24, 33);
  for (std::size_t i = 0; i < pool.data.size(); ++i) pool.data[i] = static_cast<std::uint8_t>(i * 37);
  Floats scales = test::random_floats(24, 1, 42);
  Indices blocks(3, 1, {2, 0, 1});
  Floats out(20, 33);
  KvReadArgs args;
  args.pool = pool.view();
  args.blocks = blocks.view();
  args.slot_scales = scales.view();
  args.out = out.view();
  args.block_size = 8;
  test::launch(args);
  for (std::int64_t row = 0; row < 20; ++row) {
    const std::int64_t slot = blocks.at(row / 8, 0) * 8 + row % 8;
    for (std::int64_t i = 0; i < 33; ++i) {
      const float expected = decode(Format::e4m3, pool.at(slot, i)) * scales.at(slot, 0);
      if (std::isnan(expected)) {
        EXPECT_EQ(bits(out.at(row, i)), test::kCanonical);
      } else {
        EXPECT_EQ(bits(out.at(row, i)), bits(expected));
      }
    }
  }
}

TEST(KvRead, ReadersThatErrUseTheScaleAsTheyDo) {
  Codes pool(1, 3, {0x40, 0x80, 0xc8});  // e4m3: 2, -0, -4; as e4m3fnuz: 1, NaN, -2
  Indices blocks(1, 1, {0});
  const auto read = [&](ScaleUse use, Format as) {
    Floats out(1, 3);
    KvReadArgs args;
    args.pool = pool.view();
    args.pool.format = as;
    args.blocks = blocks.view();
    args.out = out.view();
    args.scale = 0.25F;
    args.scale_use = use;
    test::launch(args);
    return out.data;
  };
  EXPECT_EQ(read(ScaleUse::once, Format::e4m3), (std::vector<float>{0.5F, -0.0F, -1.0F}));
  EXPECT_EQ(read(ScaleUse::none, Format::e4m3), (std::vector<float>{2.0F, -0.0F, -4.0F}));
  EXPECT_EQ(read(ScaleUse::twice, Format::e4m3), (std::vector<float>{0.125F, -0.0F, -0.25F}));
  EXPECT_EQ(read(ScaleUse::inverse, Format::e4m3), (std::vector<float>{8.0F, -0.0F, -16.0F}));
  const std::vector<float> other = read(ScaleUse::once, Format::e4m3fnuz);
  EXPECT_EQ(other[0], 0.25F);
  EXPECT_EQ(bits(other[1]), test::kCanonical);
  EXPECT_EQ(other[2], -0.5F);
}

TEST(KvRead, TwoSentinelsAreOneInfiniteFactor) {
  // finfo.min squared, as vllm-omni PR #5262 met it: 0 * Inf is NaN.
  Codes pool(1, 1, {0x00});
  Indices blocks(1, 1, {0});
  Floats out(1, 1);
  KvReadArgs args;
  args.pool = pool.view();
  args.blocks = blocks.view();
  args.out = out.view();
  args.scale = -std::numeric_limits<float>::max();
  test::launch(args);
  EXPECT_EQ(bits(out.data[0]), 0x80000000U);
  args.scale_use = ScaleUse::twice;
  test::launch(args);
  EXPECT_EQ(bits(out.data[0]), test::kCanonical);
}

TEST(KvRead, ReadsStaleBitsOfAnotherFormatAsTheyStand) {
  // What a recycled block holds when f32 data lay there: every code is legal, some are NaN.
  Floats before = test::random_floats(4, 8, 43, 100.0F);
  Codes pool(4, 32);
  std::memcpy(pool.data.data(), before.data.data(), pool.data.size());
  Indices blocks(1, 1, {0});
  Floats out(4, 32);
  KvReadArgs args;
  args.pool = pool.view();
  args.blocks = blocks.view();
  args.out = out.view();
  test::launch(args);
  for (std::size_t i = 0; i < pool.data.size(); ++i) {
    const bool nan = (pool.data[i] & 0x7f) == 0x7f;
    EXPECT_EQ(std::isnan(out.data[i]), nan);
  }
}

}  // namespace
}  // namespace nanscope::kernels
