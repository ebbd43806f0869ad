// Scores, softmax and mix: chains written here with std::fma, softmax in double precision, and the
// exact rules by which a NaN crosses, or does not cross, each kind of mask.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/softmax.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::bits;
using test::Floats;
using test::Indices;
using test::kInf;
using test::kNan;

TEST(AttentionScores, IsOneFmaChainAKeyAndOneMultiply) {
  for (const std::int64_t width : {1, 24, 32, 33, 64}) {
    for (const std::int64_t keys : {1, 31, 32, 70}) {
      const std::int64_t heads = 6;
      const std::int64_t kv_heads = 2;
      const std::int64_t queries = 5;
      Floats q = test::random_floats(queries, heads * width, 21, 3.0F);
      Floats k = test::random_floats(keys, kv_heads * width, 22, 3.0F);
      Floats out(queries, heads * keys);
      AttentionScoresArgs args;
      args.q = q.view();
      args.k = k.view();
      args.out = out.view();
      args.heads = heads;
      args.kv_heads = kv_heads;
      args.factor = 0.3F;
      test::launch(args);
      for (std::int64_t t = 0; t < queries; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t s = 0; s < keys; ++s) {
            float chain = 0;
            for (std::int64_t i = 0; i < width; ++i) {
              chain = std::fma(q.at(t, h * width + i), k.at(s, h / 3 * width + i), chain);
            }
            ASSERT_EQ(out.at(t, h * keys + s), chain * 0.3F)
                << width << " " << keys << " " << t << " " << h << " " << s;
          }
        }
      }
    }
  }
}

TEST(AttentionScores, ANanQueryIsARowAndANanKeyIsAColumn) {
  const std::int64_t width = 16;
  const std::int64_t keys = 40;
  Floats q = test::random_floats(4, width, 23);
  Floats k = test::random_floats(keys, width, 24);
  q.at(2, 5) = kNan;
  k.at(37, 0) = kNan;
  Floats out(4, keys);
  AttentionScoresArgs args;
  args.q = q.view();
  args.k = k.view();
  args.out = out.view();
  test::launch(args);
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t s = 0; s < keys; ++s) EXPECT_EQ(std::isnan(out.at(t, s)), t == 2 || s == 37) << t << " " << s;
  }
}

TEST(AttentionMix, IsOneFmaChainOverKeys) {
  for (const bool visible_only : {false, true}) {
    for (const std::int64_t width : {24, 32, 65}) {
      const std::int64_t heads = 6;
      const std::int64_t kv_heads = 3;
      const std::int64_t queries = 7;
      const std::int64_t keys = 45;
      Floats p = test::random_floats(queries, heads * keys, 25);
      Floats v = test::random_floats(keys, kv_heads * width, 26);
      Floats out(queries, heads * width);
      AttentionMixArgs args;
      args.p = p.view();
      args.v = v.view();
      args.out = out.view();
      args.heads = heads;
      args.kv_heads = kv_heads;
      args.first_position = 30;
      args.first_key = 4;
      args.visible_only = visible_only;
      test::launch(args);
      for (std::int64_t t = 0; t < queries; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t i = 0; i < width; ++i) {
            float chain = 0;
            for (std::int64_t s = visible_only ? 4 : 0; s <= (visible_only ? 30 + t : keys - 1); ++s) {
              chain = std::fma(p.at(t, h * keys + s), v.at(s, h / 2 * width + i), chain);
            }
            ASSERT_EQ(out.at(t, h * width + i), chain) << t << " " << h << " " << i;
          }
        }
      }
    }
  }
}

TEST(AttentionMix, ZeroTimesNanIsNanUnlessTheKeyIsSkipped) {
  const std::int64_t keys = 8;
  Floats p(1, keys);
  p.at(0, 0) = 1.0F;
  for (const float poison : {kNan, kInf, -kInf}) {
    Floats v(keys, 32, 2.0F);
    v.at(7, 3) = poison;  // masked: the query stands at position 4
    for (const bool visible_only : {false, true}) {
      Floats out(1, 32);
      AttentionMixArgs args;
      args.p = p.view();
      args.v = v.view();
      args.out = out.view();
      args.first_position = 4;
      args.visible_only = visible_only;
      test::launch(args);
      EXPECT_EQ(out.at(0, 2), 2.0F);
      if (visible_only) {
        EXPECT_EQ(out.at(0, 3), 2.0F);
      } else {
        EXPECT_EQ(bits(out.at(0, 3)), test::kCanonical);
      }
    }
  }
}

// Softmax.

struct Mask {
  MaskMode mode = MaskMode::additive;
  NanRule rule = NanRule::propagate;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  bool zero_guard = false;
};

Floats softmax(Floats scores, const Mask& mask, std::int64_t heads = 1) {
  Floats out(scores.rows, scores.columns);
  SoftmaxArgs args;
  args.scores = scores.view();
  args.out = out.view();
  args.heads = heads;
  args.first_position = mask.first_position;
  args.first_key = mask.first_key;
  args.mask = mask.mode;
  args.max_nan = mask.rule;
  args.zero_guard = mask.zero_guard;
  test::launch(args);
  return out;
}

bool all_canonical_nan(const Floats& m) {
  for (const float v : m.data) {
    if (bits(v) != test::kCanonical) return false;
  }
  return true;
}

constexpr MaskMode kModes[] = {MaskMode::additive, MaskMode::select, MaskMode::multiply};
constexpr NanRule kRules[] = {NanRule::propagate, NanRule::ignore};

TEST(Softmax, AgreesWithDoublePrecisionInEveryMode) {
  const std::int64_t keys = 77;
  const std::int64_t heads = 3;
  const Floats scores = test::random_floats(6, heads * keys, 27, 30.0F);
  for (const MaskMode mode : kModes) {
    for (const NanRule rule : kRules) {
      const Floats out = softmax(scores, {mode, rule, 60, 5}, heads);
      for (std::int64_t t = 0; t < 6; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          double total = 0;
          for (std::int64_t s = 5; s <= 60 + t; ++s) total += std::exp(static_cast<double>(scores.at(t, h * keys + s)));
          for (std::int64_t s = 0; s < keys; ++s) {
            const bool visible = s >= 5 && s <= 60 + t;
            const double expected = std::exp(static_cast<double>(scores.at(t, h * keys + s))) / total;
            const float found = out.at(t, h * keys + s);
            if (visible) {
              // s - max is rounded at up to 64: half an ulp there is 1.9e-6 in the exponent, for the
              // element and for the sum.
              EXPECT_NEAR(found, expected, expected * 5e-6 + 1e-38);
            } else {
              EXPECT_EQ(bits(found), 0U) << "masked: exactly +0";
            }
          }
        }
      }
    }
  }
}

TEST(Softmax, EqualScoresShareEqually) {
  const Floats out = softmax(Floats(1, 64, 1e30F), {.first_position = 63});
  for (const float v : out.data) EXPECT_EQ(v, 1.0F / 64.0F);
}

TEST(Softmax, ShiftedScoresGiveTheSameBits) {
  Floats scores = test::random_floats(1, 50, 28, 4.0F);
  for (float& v : scores.data) v = std::round(v * 64.0F) / 64.0F;  // so that the shift is exact
  Floats shifted = scores;
  for (float& v : shifted.data) v += 1024.0F;
  EXPECT_EQ(softmax(scores, {.first_position = 49}).data, softmax(shifted, {.first_position = 49}).data);
}

TEST(Softmax, AVisibleNanFillsTheRowInEveryMode) {
  for (const MaskMode mode : kModes) {
    for (const NanRule rule : kRules) {
      Floats scores = test::random_floats(1, 40, 29);
      scores.at(0, 3) = test::from_bits(0xffc00000U);
      EXPECT_TRUE(all_canonical_nan(softmax(scores, {mode, rule, 39}))) << static_cast<int>(mode);
    }
  }
}

TEST(Softmax, AGuardAgainstEmptyRowsMakesZerosOfNan) {
  for (const MaskMode mode : kModes) {
    for (const NanRule rule : kRules) {
      Floats scores = test::random_floats(1, 40, 29);
      const Floats healthy = softmax(scores, {mode, rule, 39});
      EXPECT_EQ(softmax(scores, {mode, rule, 39, 0, true}).data, healthy.data);
      const Floats empty = softmax(scores, {mode, rule, 3, 10, true});
      for (const float v : empty.data) EXPECT_EQ(bits(v), 0U) << "no key to see";
      scores.at(0, 3) = kNan;
      const Floats found = softmax(scores, {mode, rule, 39, 0, true});
      for (const float v : found.data) EXPECT_EQ(bits(v), 0U) << static_cast<int>(mode);
    }
  }
}

TEST(Softmax, AMaskedNanCrossesAdditiveAndMultiplyButNotSelect) {
  for (const NanRule rule : kRules) {
    Floats scores = test::random_floats(1, 40, 30);
    const Floats clean = softmax(scores, {MaskMode::select, rule, 20});
    scores.at(0, 37) = kNan;  // beyond position 20
    EXPECT_TRUE(all_canonical_nan(softmax(scores, {MaskMode::additive, rule, 20})));
    EXPECT_TRUE(all_canonical_nan(softmax(scores, {MaskMode::multiply, rule, 20})));
    EXPECT_EQ(softmax(scores, {MaskMode::select, rule, 20}).data, clean.data);
  }
}

TEST(Softmax, AMaskedPositiveInfinityIsNanUnderAdditive) {
  Floats scores = test::random_floats(1, 40, 31);
  scores.at(0, 37) = kInf;  // +Inf + -Inf
  EXPECT_TRUE(all_canonical_nan(softmax(scores, {MaskMode::additive, NanRule::propagate, 20})));
  EXPECT_EQ(softmax(scores, {MaskMode::select, NanRule::propagate, 20}).at(0, 37), 0.0F);
  scores.at(0, 37) = -kInf;
  EXPECT_EQ(softmax(scores, {MaskMode::additive, NanRule::propagate, 20}).at(0, 37), 0.0F);
}

TEST(Softmax, ARowWithNothingToSeeIsNan) {
  for (const MaskMode mode : kModes) {
    for (const NanRule rule : kRules) {
      EXPECT_TRUE(all_canonical_nan(softmax(test::random_floats(1, 40, 32), {mode, rule, 20, 30})));
    }
  }
}

TEST(Softmax, MultiplyTakesTheMaximumOverMaskedKeysToo) {
  Floats scores(1, 4, 0.0F);
  scores.at(0, 3) = 200.0F;  // masked, but exp(0 - 200) underflows to 0 and the row is 0/0
  EXPECT_TRUE(all_canonical_nan(softmax(scores, {MaskMode::multiply, NanRule::propagate, 2})));
  EXPECT_EQ(softmax(scores, {MaskMode::select, NanRule::propagate, 2}).at(0, 0), 1.0F / 3.0F);
}

/// A pool of random codes whose slots stand in random order, read by attention itself and by kv_read before it.
struct Pool {
  test::Matrix<std::uint8_t> codes;
  Floats scales;
  Floats zeros;
  Indices slots;
  Indices blocks;  ///< of one slot each
  KvOperand cache;

  Pool(cases::Sequence& random, Format format, std::int64_t keys, std::int64_t channels, std::int64_t group,
       bool shifted)
      : codes(keys + 9, channels),
        scales(keys + 9, group_count(channels, group)),
        zeros(keys + 9, group_count(channels, group)),
        slots(keys, 1),
        blocks(keys, 1) {
    codes.format = format;
    for (std::uint8_t& code : codes.data)
      code = static_cast<std::uint8_t>(static_cast<int>(random.next() * 128) & 0xff);
    for (float& scale : scales.data) scale = random.next() * 0.1F;
    for (float& zero : zeros.data) zero = random.next();
    for (std::int64_t i = 0; i < keys; ++i)
      slots.at(i, 0) = blocks.at(i, 0) = static_cast<std::int32_t>((i * 5 + 2) % (keys + 9));
    slots.at(keys - 1, 0) = blocks.at(keys - 1, 0) = -1;
    cache.pool = codes.view();
    cache.slots = slots.view();
    cache.slot_scales = scales.view();
    cache.scale_group = group;
    if (!shifted) return;
    cache.slot_zeros = zeros.view();
    cache.zero_group = group;
    cache.zero = random.next() > 0 ? ZeroPoint::code : ZeroPoint::value;
  }

  Floats read() {
    Floats out(slots.rows, codes.columns);
    KvReadArgs args;
    args.pool = cache.pool;
    args.blocks = blocks.view();
    args.block_size = 1;
    args.slot_scales = cache.slot_scales;
    args.slot_zeros = cache.slot_zeros;
    args.scale_use = cache.scale_use;
    args.scale_group = cache.scale_group;
    args.zero_group = cache.zero_group;
    args.zero = cache.zero;
    args.out = out.view();
    test::launch(args);
    return out;
  }
};

template <class Args>
Floats result_of(Args args, std::int64_t rows, std::int64_t columns) {
  Floats out(rows, columns);
  args.out = out.view();
  test::launch(args);
  return out;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.data.size() == b.data.size() && std::memcmp(a.data.data(), b.data.data(), a.data.size() * 4) == 0;
}

TEST(Attention, ReadsCodesToTheBitsOfKvReadBefore) {
  cases::Sequence random(77);
  for (const Format format : {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::int8}) {
    for (const std::int64_t width : {24, 64}) {
      for (const std::int64_t group : {std::int64_t{0}, std::int64_t{1}, width, std::int64_t{2} * width}) {
        for (const std::int64_t queries : {1, 3, 11}) {
          const std::int64_t keys = 33 + queries * 7;
          Pool pool(random, format, keys, 2 * width, group, queries != 3);
          pool.cache.scale_use = queries == 11 ? ScaleUse::twice : ScaleUse::once;
          Floats read = pool.read();
          Floats q = test::random_floats(queries, 4 * width, 78);
          Floats p = test::random_floats(queries, 4 * keys, 79);
          AttentionScoresArgs scores{
              .q = q.view(), .k = read.view(), .out = {}, .heads = 4, .kv_heads = 2, .factor = 0.3F};
          AttentionMixArgs mix{.p = p.view(), .v = read.view(), .out = {}, .heads = 4, .kv_heads = 2};
          const Floats scores_before = result_of(scores, queries, 4 * keys);
          const Floats mix_before = result_of(mix, queries, 4 * width);
          scores.k = mix.v = {};
          scores.cache = mix.cache = pool.cache;
          EXPECT_TRUE(same_bits(result_of(scores, queries, 4 * keys), scores_before)) << width << ' ' << group;
          EXPECT_TRUE(same_bits(result_of(mix, queries, 4 * width), mix_before)) << width << ' ' << group;
        }
      }
    }
  }
}

TEST(Attention, RefusesGroupsThatPartAHeadsLanes) {
  cases::Sequence random(80);
  Pool pool(random, Format::e4m3, 12, 128, 16, false);
  Floats q = test::random_floats(1, 128, 81);
  Floats out(1, 24);
  const AttentionScoresArgs scores{
      .q = q.view(), .k = {}, .out = out.view(), .heads = 2, .kv_heads = 2, .cache = pool.cache};
  const Status status = check(scores);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("groups of channels"), std::string::npos) << status.error().message;
}

TEST(Softmax, OutMayBeTheScores) {
  Floats scores = test::random_floats(3, 77, 33, 5.0F);
  const Floats expected = softmax(scores, {.first_position = 60});
  SoftmaxArgs args;
  args.scores = scores.view();
  args.out = scores.view();
  args.first_position = 60;
  test::launch(args);
  EXPECT_EQ(scores.data, expected.data);
}

}  // namespace
}  // namespace nanscope::kernels
