// Attention over tiles on MXFP4 operands against tiles_oracle.py, and what must be equal in bits: rows before a change
// where nothing leaks, a prefill and the decode of its last token, one tile and the plain softmax.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/ops/attention_scores.h"
#include "kernels/ops/block_dequantise.h"
#include "kernels/ops/block_quantise.h"
#include "kernels/ops/quantise_columns.h"
#include "kernels/ops/softmax.h"
#include "kernels/ops/tile_mix.h"
#include "kernels/ops/tile_softmax.h"
#include "tests/unit/kernels/ops/op_test.h"
#include "tests/unit/kernels/ops/tiles_oracle.h"

namespace nanscope::kernels {
namespace {

using test::bits;
using test::Floats;
using test::kNan;

constexpr std::int64_t kTokens = 128;
constexpr std::int64_t kWidth = 64;

BlockFormat mxfp4(BlockShape shape) {
  BlockFormat format;
  format.block = shape;
  return format;
}

Floats in_blocks(Floats x, BlockShape shape) {
  const BlockFormat format = mxfp4(shape);
  const std::int64_t rows = (x.rows + shape.rows - 1) / shape.rows;
  const std::int64_t columns = (x.columns + shape.columns - 1) / shape.columns;
  test::Matrix<std::uint8_t> codes(x.rows, x.columns);
  codes.format = Format::e2m1;
  test::Matrix<std::uint8_t> scales(rows, columns);
  scales.format = Format::e8m0;
  if (shape.columns == 1) {
    test::launch(QuantiseColumnsArgs{.x = x.view(), .codes = codes.view(), .scales = scales.view(), .format = format});
  } else {
    test::launch(BlockQuantiseArgs{.x = x.view(), .codes = codes.view(), .scales = scales.view(), .format = format});
  }
  Floats out(x.rows, x.columns);
  test::launch(
      BlockDequantiseArgs{.codes = codes.view(), .scales = scales.view(), .out = out.view(), .format = format});
  return out;
}

struct Head {
  Floats q, k, v;
};

/// Q, K and V as the oracle draws them.
Head draw(unsigned seed) {
  cases::Sequence sequence(seed);
  const auto matrix = [&](float gain) {
    Floats x(kTokens, kWidth);
    for (float& value : x.data) value = sequence.next() * gain;
    return x;
  };
  Floats q = matrix(2);
  Floats k = matrix(2);
  return {std::move(q), std::move(k), matrix(1)};
}

struct Form {
  Diagonal diagonal = Diagonal::quantized;
  bool online = true;
  bool quantized = true;
};

/// The last `queries` rows, of a head of which the first `keys` tokens are there.
Floats attend(const Head& head, const Form& form, std::int64_t queries = kTokens, std::int64_t keys = kTokens) {
  const auto rows = [](const Floats& x, std::int64_t first, std::int64_t count) {
    return Floats(count, x.columns,
                  std::vector<float>(x.data.begin() + first * x.columns, x.data.begin() + (first + count) * x.columns));
  };
  const Floats own_q = rows(head.q, keys - queries, queries);
  const Floats own_k = rows(head.k, 0, keys);
  Floats exact_v = rows(head.v, 0, keys);
  Floats q = form.quantized ? in_blocks(own_q, {1, 32}) : own_q;
  Floats k = form.quantized ? in_blocks(own_k, {1, 32}) : own_k;
  Floats v = form.quantized ? in_blocks(exact_v, {32, 1}) : exact_v;
  Floats scores(queries, keys);
  test::launch(AttentionScoresArgs{.q = q.view(), .k = k.view(), .out = scores.view(), .factor = 0.125F});
  const std::int64_t tiles = (keys + 31) / 32;
  Floats exact_p(queries, tiles * 32);
  Floats max(queries, tiles);
  Floats sum(queries, tiles);
  test::launch(TileSoftmaxArgs{.scores = scores.view(),
                               .out = exact_p.view(),
                               .max = max.view(),
                               .sum = sum.view(),
                               .first_position = keys - queries,
                               .own_position = keys - queries,
                               .whole = !form.online});
  Floats p = form.quantized ? in_blocks(exact_p, {1, 32}) : exact_p;
  Floats out(queries, kWidth);
  test::launch(TileMixArgs{.p = p.view(),
                           .exact_p = exact_p.view(),
                           .v = v.view(),
                           .exact_v = exact_v.view(),
                           .max = max.view(),
                           .sum = sum.view(),
                           .out = out.view(),
                           .first_position = keys - queries,
                           .own_position = keys - queries,
                           .diagonal = form.diagonal,
                           .format = mxfp4({32, 1})});
  return out;
}

/// The largest difference of rows [first, end).
double difference(const Floats& a, const Floats& b, std::int64_t first, std::int64_t end) {
  double largest = 0;
  for (std::int64_t row = first; row < end; ++row) {
    for (std::int64_t c = 0; c < a.columns; ++c) {
      largest = std::max(largest, std::abs(double{a.at(row, c)} - double{b.at(row, c)}));
    }
  }
  return largest;
}

std::int64_t rows_changed(const Floats& a, const Floats& b, std::int64_t first, std::int64_t end) {
  std::int64_t changed = 0;
  for (std::int64_t row = first; row < end; ++row) {
    const auto at = static_cast<std::size_t>(row * a.columns);
    changed += std::memcmp(&a.data[at], &b.data[at], static_cast<std::size_t>(a.columns) * sizeof(float)) != 0 ? 1 : 0;
  }
  return changed;
}

void scale_row(Floats& x, std::int64_t row, float factor) {
  for (std::int64_t c = 0; c < x.columns; ++c) x.at(row, c) *= factor;
}

Head with_token_40_changed(Head head) {
  scale_row(head.v, 40, 8);
  for (std::int64_t c = 0; c < kWidth; ++c) head.k.at(40, c) += 1;
  return head;
}

double rms_error(const Floats& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) sum += std::pow(double{a.data[i]} - double{b.data[i]}, 2);
  return std::sqrt(sum / static_cast<double>(a.data.size()));
}

TEST(Tiles, LeakAsTheOracleSays) {
  for (const tiles_oracle::Expected& expected : tiles_oracle::kExpected) {
    const Head head = draw(expected.seed);
    const Form leaky{Diagonal::quantized, expected.online};
    const Floats base = attend(head, leaky);
    const Floats changed = attend(with_token_40_changed(head), leaky);
    EXPECT_NEAR(difference(base, changed, 32, 40), expected.changed, 1e-6);
    EXPECT_EQ(rows_changed(base, changed, 32, 40), 8);
    EXPECT_EQ(rows_changed(base, changed, 0, 32), 0);
    constexpr std::array kFactors = {1.5F, 2.0F, 4.0F, 16.0F};
    for (std::size_t i = 0; i < kFactors.size(); ++i) {
      Head scaled = head;
      scale_row(scaled.v, 63, kFactors[i]);
      EXPECT_NEAR(difference(base, attend(scaled, leaky), 32, 63), expected.last_scaled[i], 1e-6) << kFactors[i];
    }
    Head negated = head;  // a scale is of magnitudes: the sign does not leak
    scale_row(negated.v, 63, -1);
    EXPECT_EQ(rows_changed(base, attend(negated, leaky), 0, 63), 0);
  }
}

TEST(Tiles, ErrAsTheOracleSays) {
  for (const tiles_oracle::Expected& expected : tiles_oracle::kExpected) {
    const Head head = draw(expected.seed);
    const Floats exact = attend(head, {Diagonal::quantized, expected.online, false});
    EXPECT_NEAR(rms_error(exact, Floats(kTokens, kWidth)), expected.rms, 1e-6);
    EXPECT_NEAR(rms_error(attend(head, {Diagonal::quantized, expected.online}), exact), expected.quantized, 1e-6);
    EXPECT_NEAR(rms_error(attend(head, {Diagonal::exact, expected.online}), exact), expected.exact, 1e-6);
    EXPECT_NEAR(rms_error(attend(head, {Diagonal::past, expected.online}), exact), expected.past, 1e-6);
  }
}

TEST(Tiles, KeepRowsBeforeAChangeInBitsWhereTheDiagonalDoesNotLeak) {
  for (const Diagonal diagonal : {Diagonal::exact, Diagonal::past}) {
    for (const bool online : {true, false}) {
      const Head head = draw(11);
      const Form form{diagonal, online};
      const Floats base = attend(head, form);
      EXPECT_EQ(rows_changed(base, attend(with_token_40_changed(head), form), 0, 40), 0);
      Head poisoned = head;
      poisoned.v.at(63, 5) = kNan;
      EXPECT_EQ(rows_changed(base, attend(poisoned, form), 0, 63), 0);
    }
  }
}

TEST(Tiles, OfAPrefillAreThoseOfADecode) {
  const Head head = draw(12);
  for (const Diagonal diagonal : {Diagonal::quantized, Diagonal::exact, Diagonal::past}) {
    const Floats prefill = attend(head, {diagonal});
    std::int64_t differing = 0;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      const Floats alone = attend(head, {diagonal}, 1, token + 1);
      differing += std::memcmp(alone.data.data(), &prefill.data[static_cast<std::size_t>(token * kWidth)],
                               kWidth * sizeof(float)) != 0
                       ? 1
                       : 0;
    }
    const tiles_oracle::Expected& expected = tiles_oracle::kExpected[2];
    ASSERT_TRUE(expected.seed == 12 && expected.online);
    EXPECT_EQ(differing, diagonal == Diagonal::quantized ? expected.decoded : 0);
  }
}

TEST(Tiles, DividedFirstAreTheBitsOfThePlainSoftmax) {
  Floats scores = test::random_floats(40, 2 * 64, 33, 12.0F);
  Floats plain(40, 2 * 64);
  test::launch(SoftmaxArgs{.scores = scores.view(), .out = plain.view(), .heads = 2, .mask = MaskMode::select});
  Floats tiled(40, 2 * 64);
  Floats max(40, 4);
  Floats sum(40, 4);
  test::launch(TileSoftmaxArgs{
      .scores = scores.view(), .out = tiled.view(), .max = max.view(), .sum = sum.view(), .heads = 2, .whole = true});
  EXPECT_EQ(rows_changed(plain, tiled, 0, 40), 0);
}

// Earlier elements of a block whose last grows: the second underflows, then all of them do.
TEST(Tiles, ALaterValueDecidesWhatIsLeftOfEarlierOnes) {
  const auto block = [](float last) {
    Floats x(32, 1);
    const std::array values = {1.0F, 0.3F, -0.5F, 0.75F, last};
    std::copy(values.begin(), values.end(), x.data.begin());
    const Floats out = in_blocks(x, {32, 1});
    return std::vector<float>(out.data.begin(), out.data.begin() + 4);
  };
  EXPECT_EQ(block(0), (std::vector<float>{1, 0.25F, -0.5F, 0.75F}));
  EXPECT_EQ(block(4), (std::vector<float>{1, 0.5F, -0.5F, 1}));
  EXPECT_EQ(block(8), (std::vector<float>{1, 0, -0.0F, 1}));
  EXPECT_EQ(block(16), (std::vector<float>{0, 0, -0.0F, 0}));
  EXPECT_EQ(bits(block(16)[2]), 0x80000000U);
}

TEST(Tiles, OfMaskedKeysReachNothing) {
  Floats scores = test::random_floats(1, 64, 34);
  scores.at(0, 50) = kNan;
  Floats p(1, 64);
  Floats max(1, 2);
  Floats sum(1, 2);
  test::launch(TileSoftmaxArgs{.scores = scores.view(),
                               .out = p.view(),
                               .max = max.view(),
                               .sum = sum.view(),
                               .first_position = 40,
                               .own_position = 40});
  EXPECT_EQ(p.at(0, 50), 0);
  EXPECT_TRUE(std::isfinite(sum.at(0, 1)));
  test::launch(TileSoftmaxArgs{.scores = scores.view(),
                               .out = p.view(),
                               .max = max.view(),
                               .sum = sum.view(),
                               .first_position = 50,
                               .own_position = 50});
  EXPECT_TRUE(std::isfinite(sum.at(0, 0)));
  EXPECT_TRUE(std::isnan(sum.at(0, 1)));
}

}  // namespace
}  // namespace nanscope::kernels
