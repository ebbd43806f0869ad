// The quantised cache: the published arithmetic of a locked scale, slots and blocks, stale slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "core/numbers/codec.h"
#include "kernels/ops/hadamard.h"
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
  Indices slots(1, 1, 0);
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
  Indices blocks(1, 1, 0);
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
  Codes pool(1, 1, 0x00);
  Indices blocks(1, 1, 0);
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
  Indices blocks(1, 1, 0);
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

/// One row of integers through a pool of one slot, its scales and zero points kept with it.
struct Integers {
  std::vector<int> codes;
  std::vector<float> read;
};

Integers through_integers(std::vector<float> x, const KvStoreArgs& how, std::vector<float> scales,
                          std::vector<float> zeros = {}) {
  const auto columns = static_cast<std::int64_t>(x.size());
  Floats row(1, columns, std::move(x));
  Codes pool(1, columns);
  pool.format = Format::int8;
  Indices slots(1, 1, 0);
  Indices blocks(1, 1, 0);
  const auto groups = static_cast<std::int64_t>(scales.size());
  const auto zero_groups = static_cast<std::int64_t>(zeros.size());
  Floats scale(1, groups, std::move(scales));
  Floats zero(1, zero_groups, std::move(zeros));
  Floats slot_scales(1, groups);
  Floats slot_zeros(1, zero_groups);
  KvStoreArgs store = how;
  store.x = row.view();
  store.pool = pool.view();
  store.slots = slots.view();
  store.scales = scale.view();
  store.slot_scales = slot_scales.view();
  Floats out(1, columns);
  KvReadArgs read;
  if (zero_groups > 0) {
    store.zeros = zero.view();
    store.slot_zeros = slot_zeros.view();
    read.slot_zeros = slot_zeros.view();
  }
  test::launch(store);
  read.pool = pool.view();
  read.blocks = blocks.view();
  read.slot_scales = slot_scales.view();
  read.out = out.view();
  read.block_size = 1;
  read.scale_group = store.scale_group;
  read.zero_group = store.zero_group;
  read.zero = store.zero;
  test::launch(read);
  Integers result;
  for (const std::uint8_t code : pool.data) result.codes.push_back(static_cast<std::int8_t>(code));
  result.read = out.data;
  return result;
}

KvStoreArgs integers(std::int32_t low, std::int32_t high, IntRounding rounding = IntRounding::even) {
  KvStoreArgs args;
  args.low = low;
  args.high = high;
  args.rounding = rounding;
  return args;
}

TEST(KvStoreIntegers, TiesGoWhereTheRoundingSays) {
  const std::vector<float> ties = {0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 0.49999997F, 200, -200, test::kNan};
  EXPECT_EQ(through_integers(ties, integers(-127, 127), {1}).codes,
            (std::vector<int>{0, 2, 2, 0, -2, -2, 0, 127, -127, 0}));
  EXPECT_EQ(through_integers(ties, integers(-127, 127, IntRounding::away), {1}).codes,
            (std::vector<int>{1, 2, 3, -1, -2, -3, 0, 127, -127, 0}));
  EXPECT_EQ(
      through_integers({0.5F, -0.5F, -1.5F, 7.5F, -8, -9, test::kInf}, integers(-8, 7, IntRounding::up), {1}).codes,
      (std::vector<int>{1, 0, -1, 7, -8, -8, 7}));
}

TEST(KvStoreIntegers, TheWholeRangeOfAByteIsMade) {
  EXPECT_EQ(through_integers({-300, -128, 127, 300}, integers(-128, 127), {1}).codes,
            (std::vector<int>{-128, -128, 127, 127}));
}

TEST(KvStoreIntegers, EveryGroupHasItsScale) {
  KvStoreArgs how = integers(-127, 127);
  how.scale_group = 2;
  const Integers found = through_integers({1, 2, 10, 20, 100}, how, {0.5F, 2, 50});
  EXPECT_EQ(found.codes, (std::vector<int>{2, 4, 5, 10, 2}));
  EXPECT_EQ(found.read, (std::vector<float>{1, 2, 10, 20, 100})) << "the last group is ragged";
}

TEST(KvStoreIntegers, ZeroPointsAreOfCodesOrOfValues) {
  KvStoreArgs how = integers(0, 15);
  how.zero = ZeroPoint::code;
  EXPECT_EQ(through_integers({-2, 0, 5.5F}, how, {0.5F}, {4}).codes, (std::vector<int>{0, 4, 15}));
  EXPECT_EQ(through_integers({-2, 0, 5.5F}, how, {0.5F}, {4}).read, (std::vector<float>{-2, 0, 5.5F}));
  how.zero = ZeroPoint::value;
  EXPECT_EQ(through_integers({-2, 0, 5.5F}, how, {0.5F}, {-2}).codes, (std::vector<int>{0, 4, 15}));
  EXPECT_EQ(through_integers({-2, 0, 5.5F}, how, {0.5F}, {-2}).read, (std::vector<float>{-2, 0, 5.5F}));
}

TEST(KvStoreIntegers, AConstantRowWithoutAnEpsilonIsNanOrItself) {
  KvStoreArgs how = integers(0, 15);
  how.zero = ZeroPoint::code;
  const Integers lmdeploy = through_integers({3, 3, 3}, how, {0}, {-test::kInf});
  for (const float value : lmdeploy.read) EXPECT_TRUE(std::isnan(value)) << "(0 + Inf) x 0";
  how.zero = ZeroPoint::value;
  EXPECT_EQ(through_integers({3, 3, 3}, how, {0}, {3}).read, (std::vector<float>{3, 3, 3})) << "0 x 0 + 3";
}

TEST(KvStoreIntegers, SlotsMayKeepAnotherScaleThanRowsAreMultipliedBy) {
  KvStoreArgs how = integers(-127, 127);
  how.multiply = true;
  Floats kept(1, 1, 0.75F);
  how.kept = kept.view();
  const Integers found = through_integers({1, -2}, how, {2});
  EXPECT_EQ(found.codes, (std::vector<int>{2, -4}));
  EXPECT_EQ(found.read, (std::vector<float>{1.5F, -3}));
}

TEST(KvRead, KeptRowsAndOutliersComeFromThePoolInHighPrecision) {
  Codes pool(4, 2, std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6, 7, 8});
  pool.format = Format::int8;
  Floats kept(4, 2, {0.25F, 0.5F, 1.25F, 100, 20.5F, 30.5F, 70, 80});
  Floats scales(4, 1, std::vector<float>{1, 1, 1, 1});
  Indices blocks(2, 1, {1, 0});
  Floats out(4, 2);
  KvReadArgs args;
  args.pool = pool.view();
  args.kept_rows = kept.view();
  args.slot_scales = scales.view();
  args.blocks = blocks.view();
  args.out = out.view();
  args.block_size = 2;
  args.coded_from = 1;
  args.coded_end = 4;
  args.outliers_beyond = 15;
  test::launch(args);
  EXPECT_EQ(out.data, (std::vector<float>{20.5F, 30.5F, 70, 80, 1, 2, 3, 100}));
}

TEST(Hadamard, IsTheMatrixOfSignsAndItsOwnInverse) {
  Floats x = test::random_floats(2, 3 * 64, 71, 3.0F);
  Floats once(2, 3 * 64);
  Floats twice(2, 3 * 64);
  test::launch(HadamardArgs{.x = x.view(), .out = once.view(), .heads = 3});
  test::launch(HadamardArgs{.x = once.view(), .out = twice.view(), .heads = 3});
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t i = 0; i < 3 * 64; ++i) {
      double sum = 0;
      for (int j = 0; j < 64; ++j) {
        const int odd = std::popcount(static_cast<unsigned>(i % 64) & static_cast<unsigned>(j)) % 2;
        sum += (odd == 1 ? -1.0 : 1.0) * double{x.at(row, i / 64 * 64 + j)};
      }
      EXPECT_NEAR(double{once.at(row, i)}, sum / 8, 1e-5);
      EXPECT_NEAR(twice.at(row, i), x.at(row, i), 1e-5F);
    }
  }
}

}  // namespace
}  // namespace nanscope::kernels
