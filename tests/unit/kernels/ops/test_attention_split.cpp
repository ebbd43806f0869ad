// Attention over blocks of keys: statistics and probabilities against double precision, chains and the order of their
// sum written here, what one block must leave as it is, and where a NaN of one block goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/numbers/codec.h"
#include "kernels/ops/attention_mix.h"
#include "kernels/ops/combine_partials.h"
#include "kernels/ops/softmax_partials.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::bits;
using test::Floats;
using test::Indices;
using test::kInf;
using test::kNan;

/// What a row sees; the last block is ragged where `split` does not divide the keys.
struct Seen {
  MaskMode mode = MaskMode::select;
  NanRule rule = NanRule::propagate;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  std::int64_t window = 0;
  bool zero_guard = false;
  Floats sinks{0, 0};

  bool sees(std::int64_t token, std::int64_t key) const {
    const std::int64_t last = first_position + token;
    return key >= first_key && key <= last && (window == 0 || key > last - window);
  }
};

struct Statistics {
  Floats max, sum;
};

Statistics statistics_of(Floats scores, const Seen& seen, std::int64_t heads, std::int64_t split) {
  const std::int64_t columns = heads * blocks_of(scores.columns / heads, split);
  Statistics out{Floats(scores.rows, columns), Floats(scores.rows, columns)};
  test::launch(SoftmaxPartialsArgs{.scores = scores.view(),
                                   .max = out.max.view(),
                                   .sum = out.sum.view(),
                                   .heads = heads,
                                   .split = split,
                                   .first_position = seen.first_position,
                                   .first_key = seen.first_key,
                                   .window = seen.window,
                                   .mask = seen.mode,
                                   .max_nan = seen.rule});
  return out;
}

/// split 0: the op of one piece.
Floats probabilities(Floats scores, Seen seen, std::int64_t heads, std::int64_t split) {
  Floats out(scores.rows, scores.columns);
  SoftmaxArgs args{.scores = scores.view(),
                   .out = out.view(),
                   .heads = heads,
                   .first_position = seen.first_position,
                   .first_key = seen.first_key,
                   .window = seen.window,
                   .mask = seen.mode,
                   .max_nan = seen.rule,
                   .zero_guard = seen.zero_guard};
  if (!seen.sinks.data.empty()) args.sinks = seen.sinks.view();
  Statistics blocks{{0, 0}, {0, 0}};
  if (split > 0) {
    blocks = statistics_of(scores, seen, heads, split);
    args.split = split;
    args.max = blocks.max.view();
    args.sum = blocks.sum.view();
  }
  test::launch(args);
  return out;
}

bool equal_bits(const Floats& a, const Floats& b) {
  return a.data.size() == b.data.size() && std::memcmp(a.data.data(), b.data.data(), a.data.size() * 4) == 0;
}

constexpr MaskMode kEveryMode[] = {MaskMode::additive, MaskMode::select, MaskMode::multiply};
constexpr NanRule kEveryRule[] = {NanRule::propagate, NanRule::ignore};

/// A difference of scores up to 60 is rounded by half an ulp of 64, 1.9e-6, and so is its exp; 32 lanes add at most
/// 16 terms each and then 5 times, of which a rounding is 6e-8.
TEST(SoftmaxPartials, AgreeWithDoublePrecision) {
  const std::int64_t heads = 3;
  const std::int64_t keys = 333;
  const Floats scores = test::random_floats(5, heads * keys, 201, 30.0F);
  for (const MaskMode mode : kEveryMode) {
    for (const std::int64_t split : {32, 64, 160, 512}) {
      const Seen seen{.mode = mode, .first_position = 300, .first_key = 40, .window = 250};
      const Statistics found = statistics_of(scores, seen, heads, split);
      const std::int64_t blocks = blocks_of(keys, split);
      for (std::int64_t t = 0; t < 5; ++t) {
        for (std::int64_t c = 0; c < heads * blocks; ++c) {
          const std::int64_t begin = c % blocks * split;
          const std::int64_t end = std::min(keys, begin + split);
          float max = -kInf;
          for (std::int64_t s = begin; s < end; ++s) {
            const float score = scores.at(t, c / blocks * keys + s);
            if (mode == MaskMode::multiply || seen.sees(t, s)) max = std::max(max, score);
          }
          double sum = 0;
          for (std::int64_t s = begin; s < end; ++s) {
            if (!seen.sees(t, s)) continue;
            sum += std::exp(double{scores.at(t, c / blocks * keys + s)} - double{max});
          }
          ASSERT_EQ(found.max.at(t, c), max) << split << " " << t << " " << c;
          ASSERT_NEAR(found.sum.at(t, c), sum, sum * 4e-6 + 1e-38) << split << " " << t << " " << c;
          if (max == -kInf) {
            ASSERT_EQ(bits(found.sum.at(t, c)), 0U);
          }
        }
      }
    }
  }
}

/// Two differences of scores are rounded instead of one, of numbers up to 64; blocks add 11 roundings at most.
TEST(SplitSoftmax, AgreesWithDoublePrecisionInEveryMode) {
  const std::int64_t keys = 333;
  const std::int64_t heads = 3;
  const Floats scores = test::random_floats(6, heads * keys, 202, 30.0F);
  Floats sinks = test::random_floats(1, heads, 203, 30.0F);
  for (const MaskMode mode : kEveryMode) {
    for (const bool has_sinks : {false, true}) {
      Seen seen{.mode = mode, .first_position = 320, .first_key = 5};
      if (has_sinks) seen.sinks = sinks;
      for (const std::int64_t split : {32, 96, 512}) {
        const Floats out = probabilities(scores, seen, heads, split);
        for (std::int64_t t = 0; t < 6; ++t) {
          for (std::int64_t h = 0; h < heads; ++h) {
            double total = has_sinks ? std::exp(double{sinks.at(0, h)}) : 0;
            for (std::int64_t s = 0; s < keys; ++s) {
              if (seen.sees(t, s)) total += std::exp(double{scores.at(t, h * keys + s)});
            }
            for (std::int64_t s = 0; s < keys; ++s) {
              const double expected = std::exp(double{scores.at(t, h * keys + s)}) / total;
              const float found = out.at(t, h * keys + s);
              if (seen.sees(t, s)) {
                ASSERT_NEAR(found, expected, expected * 1e-5 + 1e-38) << split << " " << t << " " << s;
              } else {
                ASSERT_EQ(bits(found), 0U) << "masked: exactly +0";
              }
            }
          }
        }
      }
    }
  }
}

/// Of blocks under one maximum each share is its sum: 1 and sixty times half an ulp of it stay 1 from the first on, and
/// are 1 + 30 ulp the other way round, or in lanes.
TEST(SplitSoftmax, BlocksAreAddedInTheirOrder) {
  const std::int64_t blocks = 61;
  const float half = std::ldexp(1.0F, -24);
  for (const bool large_first : {true, false}) {
    Floats scores(1, blocks * 32, 3.0F);
    Floats max(1, blocks, 3.0F);
    Floats sum(1, blocks, half);
    sum.at(0, large_first ? 0 : blocks - 1) = 1.0F;
    Floats out(1, blocks * 32);
    test::launch(SoftmaxArgs{.scores = scores.view(),
                             .out = out.view(),
                             .first_position = blocks * 32,
                             .split = 32,
                             .max = max.view(),
                             .sum = sum.view()});
    float total = 0;
    for (const float one : sum.data) total += one;
    ASSERT_EQ(total, large_first ? 1.0F : 1.0F + 60 * half);
    for (const float p : out.data) ASSERT_EQ(p, 1.0F / total);
  }
}

/// 0 * exp(-Inf) is 0; a NaN that the maximum passed over stands in the sum.
TEST(SplitSoftmax, ABlockWithoutAKeyAddsNothingUnlessItHidANan) {
  Floats scores(1, 96, 0.0F);
  Floats max(1, 3, std::vector<float>{-kInf, 0.0F, -kInf});
  Floats out(1, 96);
  for (const float none : {0.0F, kNan}) {
    Floats sum(1, 3, std::vector<float>{0.0F, 4.0F, none});
    test::launch(SoftmaxArgs{.scores = scores.view(),
                             .out = out.view(),
                             .first_position = 96,
                             .split = 32,
                             .max = max.view(),
                             .sum = sum.view()});
    for (const float p : out.data) EXPECT_EQ(bits(p), std::isnan(none) ? test::kCanonical : bits(0.25F));
  }
}

/// One block is the row: sum * exp(0) is the sum. Specials among the scores, rows without keys and the guard too.
TEST(SplitSoftmax, OneBlockHasTheBitsOfNone) {
  const std::int64_t heads = 2;
  const std::int64_t keys = 90;
  Floats scores = test::random_floats(12, heads * keys, 204, 20.0F);
  const float specials[] = {kNan, kInf, -kInf, 3e38F, -3e38F, 1e-40F};
  for (std::int64_t t = 0; t < 6; ++t) scores.at(t, 7 + 11 * t) = scores.at(t, keys + 85) = specials[t];
  for (std::int64_t c = 0; c < heads * keys; ++c) scores.at(6, c) = -kInf;
  for (std::int64_t c = 0; c < heads * keys; ++c) scores.at(7, c) = kNan;
  for (const MaskMode mode : kEveryMode) {
    for (const NanRule rule : kEveryRule) {
      for (const bool guard : {false, true}) {
        for (const std::int64_t first_key : {0, 9, 85}) {
          for (const std::int64_t window : {0, 20}) {
            const Seen seen{mode, rule, 75, first_key, window, guard, Floats(0, 0)};
            EXPECT_TRUE(equal_bits(probabilities(scores, seen, heads, 96), probabilities(scores, seen, heads, 0)))
                << static_cast<int>(mode) << static_cast<int>(rule) << guard << first_key << window;
          }
        }
      }
    }
  }
}

/// With a sink too where no row's maximum is the sink's: else the sum is made under another maximum than without.
TEST(SplitSoftmax, OneBlockAndASinkBelowItsMaximumHaveTheBitsOfNone) {
  const Floats scores = test::random_floats(4, 2 * 90, 205, 20.0F);
  Seen seen{.first_position = 80, .sinks = Floats(1, 2, -3.0F)};
  EXPECT_TRUE(equal_bits(probabilities(scores, seen, 2, 128), probabilities(scores, seen, 2, 0)));
}

/// What lies behind a row's last key does not reach it, however many blocks it is.
TEST(SplitSoftmax, BlocksBehindARowChangeNoBit) {
  const Floats all = test::random_floats(1, 400, 206, 20.0F);
  const Seen seen{.first_position = 140, .first_key = 3};
  const Floats far = probabilities(all, seen, 1, 32);
  for (const std::int64_t keys : {141, 160, 161, 290}) {
    Floats scores(1, keys);
    std::copy_n(all.data.begin(), keys, scores.data.begin());
    const Floats near = probabilities(scores, seen, 1, 32);
    EXPECT_EQ(std::memcmp(near.data.data(), far.data.data(), static_cast<std::size_t>(keys) * 4), 0) << keys;
  }
}

/// A NaN in one block is in its statistics and fills the row; of blocks that a select mask hides it reaches nothing.
TEST(SplitSoftmax, ANanOfOneBlockFillsTheRow) {
  for (const NanRule rule : kEveryRule) {
    for (const MaskMode mode : kEveryMode) {
      for (const std::int64_t at : {70, 250}) {  // seen, and behind the row's last key
        Floats scores = test::random_floats(2, 300, 207);
        Seen seen{.mode = mode, .rule = rule, .first_position = 200};
        const Floats clean = probabilities(scores, seen, 1, 32);
        scores.at(0, at) = kNan;
        const Statistics blocks = statistics_of(scores, seen, 1, 32);
        const Floats found = probabilities(scores, seen, 1, 32);
        const bool reaches = at <= 200 || mode != MaskMode::select;
        for (std::int64_t b = 0; b < blocks.sum.columns; ++b) {
          EXPECT_EQ(std::isnan(blocks.sum.at(0, b)), reaches && b == at / 32) << b;
          EXPECT_EQ(std::isnan(blocks.max.at(0, b)), reaches && b == at / 32 && rule == NanRule::propagate) << b;
        }
        for (std::int64_t s = 0; s < 300; ++s) {
          EXPECT_EQ(bits(found.at(0, s)), reaches ? test::kCanonical : bits(clean.at(0, s))) << s;
          EXPECT_EQ(bits(found.at(1, s)), bits(clean.at(1, s))) << s;
        }
      }
    }
  }
}

TEST(SplitSoftmax, ARowWithoutAKeyIsNanOrWhatGuardAndSinkMakeOfIt) {
  const Floats scores = test::random_floats(1, 300, 208);
  for (const MaskMode mode : kEveryMode) {
    Seen seen{.mode = mode, .first_position = 20, .first_key = 60};
    for (const float p : probabilities(scores, seen, 1, 32).data) EXPECT_EQ(bits(p), test::kCanonical);
    seen.zero_guard = true;
    for (const float p : probabilities(scores, seen, 1, 32).data) EXPECT_EQ(bits(p), 0U);
    seen.zero_guard = false;
    seen.sinks = Floats(1, 1, 0.5F);
    for (const float p : probabilities(scores, seen, 1, 32).data) EXPECT_EQ(bits(p), 0U);
  }
}

TEST(SplitSoftmax, OutMayBeTheScores) {
  Floats scores = test::random_floats(3, 200, 209, 5.0F);
  const Seen seen{.first_position = 180};
  const Floats expected = probabilities(scores, seen, 1, 64);
  Statistics blocks = statistics_of(scores, seen, 1, 64);
  test::launch(SoftmaxArgs{.scores = scores.view(),
                           .out = scores.view(),
                           .first_position = 180,
                           .mask = MaskMode::select,
                           .split = 64,
                           .max = blocks.max.view(),
                           .sum = blocks.sum.view()});
  EXPECT_TRUE(equal_bits(scores, expected));
}

// Mix.

Floats partials_of(AttentionMixArgs args, std::int64_t split) {
  args.split = split;
  Floats out(args.p.rows, args.v_columns() / args.kv_heads * args.heads * args.blocks());
  args.out = out.view();
  test::launch(args);
  return out;
}

Floats combined(Floats partials, std::int64_t heads, std::int64_t blocks) {
  Floats out(partials.rows, partials.columns / blocks);
  test::launch(CombinePartialsArgs{.partials = partials.view(), .out = out.view(), .heads = heads, .blocks = blocks});
  return out;
}

TEST(SplitMix, IsAnFmaChainABlockAndTheSumOfBlocksInTheirOrder) {
  const std::int64_t heads = 6;
  const std::int64_t kv_heads = 3;
  const std::int64_t queries = 7;
  const std::int64_t keys = 145;
  for (const bool visible_only : {false, true}) {
    for (const std::int64_t width : {24, 32, 65}) {
      for (const std::int64_t split : {32, 64, 160}) {
        Floats p = test::random_floats(queries, heads * keys, 210);
        Floats v = test::random_floats(keys, kv_heads * width, 211);
        const Seen seen{.first_position = 130, .first_key = 4, .window = 60};
        AttentionMixArgs args{.p = p.view(), .v = v.view(), .out = {}, .heads = heads, .kv_heads = kv_heads};
        args.first_position = seen.first_position;
        args.first_key = seen.first_key;
        args.window = seen.window;
        args.visible_only = visible_only;
        const Floats partials = partials_of(args, split);
        const std::int64_t blocks = blocks_of(keys, split);
        const Floats out = combined(partials, heads, blocks);
        for (std::int64_t t = 0; t < queries; ++t) {
          for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t i = 0; i < width; ++i) {
              float sum = 0;
              for (std::int64_t b = 0; b < blocks; ++b) {
                float chain = 0;
                bool any = false;
                for (std::int64_t s = b * split; s < std::min(keys, (b + 1) * split); ++s) {
                  if (visible_only && !seen.sees(t, s)) continue;
                  chain = std::fma(p.at(t, h * keys + s), v.at(s, h / 2 * width + i), chain);
                  any = true;
                }
                if (!any && b > 0) chain = -0.0F;
                ASSERT_EQ(bits(partials.at(t, (h * blocks + b) * width + i)), bits(chain)) << t << " " << h << " " << b;
                sum = b == 0 ? chain : sum + chain;
              }
              ASSERT_EQ(bits(out.at(t, h * width + i)), bits(sum)) << t << " " << h << " " << i;
            }
          }
        }
      }
    }
  }
}

/// Also of -2^-100 x 2^-100, which is below 0 and rounds to -0.
TEST(SplitMix, OneBlockHasTheBitsOfNone) {
  const std::int64_t keys = 50;
  Floats p = test::random_floats(4, 2 * keys, 212);
  Floats v = test::random_floats(keys, 32, 213);
  for (std::int64_t s = 0; s < keys; ++s) {
    p.at(1, s) = std::ldexp(1.0F, -100);
    v.at(s, 3) = -std::ldexp(1.0F, -100);
  }
  v.at(17, 5) = kNan;
  v.at(18, 6) = kInf;
  for (const bool visible_only : {false, true}) {
    for (const std::int64_t first_key : {0, 48}) {
      AttentionMixArgs args{.p = p.view(), .v = v.view(), .out = {}, .heads = 2};
      args.first_position = 45;
      args.first_key = first_key;
      args.visible_only = visible_only;
      Floats whole(4, 64);
      args.out = whole.view();
      test::launch(args);
      EXPECT_TRUE(equal_bits(combined(partials_of(args, 64), 2, 1), whole)) << visible_only << first_key;
      if (first_key == 0) {
        EXPECT_EQ(bits(whole.at(1, 3)), 0x80000000U);
      }
    }
  }
}

/// A first block of -0 stays one when blocks without a key that the row sees follow it.
TEST(SplitMix, BlocksBehindARowChangeNoBit) {
  Floats p(1, 300, std::ldexp(1.0F, -100));
  Floats v(300, 32, -std::ldexp(1.0F, -100));
  for (std::int64_t i = 1; i < 32; ++i) v.at(5, i) = static_cast<float>(i);
  AttentionMixArgs args{.p = p.view(), .v = v.view(), .out = {}};
  args.first_position = 20;
  args.visible_only = true;
  const Floats far = combined(partials_of(args, 32), 1, 10);
  args.p.columns = args.v.rows = 21;
  const Floats near = combined(partials_of(args, 32), 1, 1);
  EXPECT_TRUE(equal_bits(far, near));
  EXPECT_EQ(bits(far.at(0, 0)), 0x80000000U);
}

TEST(SplitMix, ANanValueOfOneBlockReachesItsChannelAndNoOtherBlock) {
  const std::int64_t keys = 200;
  Floats p(1, keys);
  p.at(0, 0) = 1.0F;
  for (const float poison : {kNan, kInf, -kInf}) {
    Floats v(keys, 32, 2.0F);
    v.at(170, 3) = poison;  // masked: the query stands at position 90
    for (const bool visible_only : {false, true}) {
      AttentionMixArgs args{.p = p.view(), .v = v.view(), .out = {}};
      args.first_position = 90;
      args.visible_only = visible_only;
      const Floats partials = partials_of(args, 32);
      const Floats out = combined(partials, 1, 7);
      for (std::int64_t c = 0; c < partials.columns; ++c) {
        EXPECT_EQ(std::isnan(partials.at(0, c)), !visible_only && c == 5 * 32 + 3) << c;
      }
      EXPECT_EQ(out.at(0, 2), 2.0F);
      EXPECT_EQ(bits(out.at(0, 3)), visible_only ? bits(2.0F) : test::kCanonical);
    }
  }
}

/// Codes of e4m3 read by the mix itself, against the same values in f32.
TEST(SplitMix, ReadsCodesToTheBitsOfTheirValues) {
  const std::int64_t keys = 101;
  const std::int64_t channels = 48;
  test::Matrix<std::uint8_t> pool(keys + 3, channels);
  cases::Sequence random(214);
  for (std::uint8_t& code : pool.data) code = static_cast<std::uint8_t>(static_cast<int>(random.next() * 120) & 0x7f);
  Indices slots(keys, 1);
  Floats v(keys, channels);
  for (std::int64_t s = 0; s < keys; ++s) {
    slots.at(s, 0) = static_cast<std::int32_t>((s * 5 + 2) % (keys + 3));
    for (std::int64_t i = 0; i < channels; ++i) v.at(s, i) = decode(Format::e4m3, pool.at(slots.at(s, 0), i)) * 0.25F;
  }
  Floats p = test::random_floats(3, 4 * keys, 215);
  for (const bool visible_only : {false, true}) {
    AttentionMixArgs args{.p = p.view(), .v = v.view(), .out = {}, .heads = 4, .kv_heads = 2};
    args.first_position = 80;
    args.visible_only = visible_only;
    const Floats expected = partials_of(args, 32);
    args.v = {};
    args.cache.pool = pool.view();
    args.cache.slots = slots.view();
    args.cache.scale = 0.25F;
    EXPECT_TRUE(equal_bits(partials_of(args, 32), expected));
  }
}

// Refusals.

template <class Args>
std::string refused_with(const Args& args) {
  const Status status = check(args);
  return status ? "" : status.error().message;
}

TEST(SplitAttention, RefusesWhatIsNoSplit) {
  Floats scores(2, 128);
  Floats out(2, 128);
  Floats two(2, 2);
  Floats one(2, 1);
  SoftmaxPartialsArgs partials{.scores = scores.view(), .max = two.view(), .sum = two.view(), .heads = 1, .split = 64};
  EXPECT_EQ(refused_with(partials), "");
  partials.split = 48;
  EXPECT_NE(refused_with(partials).find("blocks of a multiple of 32 keys"), std::string::npos);
  partials.split = 0;
  EXPECT_NE(refused_with(partials).find("blocks of a multiple of 32 keys"), std::string::npos);
  partials.split = 64;
  partials.sum = one.view();
  EXPECT_NE(refused_with(partials).find("'sum'"), std::string::npos);
  SoftmaxArgs softmax{.scores = scores.view(), .out = out.view(), .split = 64, .max = two.view(), .sum = two.view()};
  EXPECT_EQ(refused_with(softmax), "");
  softmax.max = {};
  EXPECT_NE(refused_with(softmax).find("'max'"), std::string::npos);
  softmax.max = one.view();
  EXPECT_NE(refused_with(softmax).find("'max'"), std::string::npos);
  softmax.split = 33;
  EXPECT_NE(refused_with(softmax).find("blocks of a multiple of 32 keys"), std::string::npos);
  Floats v(128, 8);
  Floats mixed(2, 16);
  AttentionMixArgs mix{.p = scores.view(), .v = v.view(), .out = mixed.view()};
  mix.split = 64;
  EXPECT_EQ(refused_with(mix), "");
  mix.factor = 0.5F;
  EXPECT_NE(refused_with(mix).find("no factor"), std::string::npos);
  mix.factor = 1;
  mix.split = 32;
  EXPECT_NE(refused_with(mix).find("'out'"), std::string::npos);
  mix.split = 65;
  EXPECT_NE(refused_with(mix).find("blocks of a multiple of 32 keys"), std::string::npos);
  CombinePartialsArgs combine{.partials = mixed.view(), .out = two.view(), .heads = 2, .blocks = 8};
  EXPECT_EQ(refused_with(combine), "");
  combine.blocks = 4;
  EXPECT_NE(refused_with(combine).find("'partials'"), std::string::npos);
  combine.blocks = 0;
  EXPECT_NE(refused_with(combine).find("at least one block"), std::string::npos);
}

}  // namespace
}  // namespace nanscope::kernels
