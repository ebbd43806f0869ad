// Element-wise ops against the C library in double precision, exact chains and exact edge cases.
#include <gtest/gtest.h>

#include <numbers>

#include "core/numbers/codec.h"
#include "kernels/ops/activation.h"
#include "kernels/ops/cast.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/recurrent_scan.h"
#include "kernels/ops/residual_add.h"
#include "kernels/ops/rope.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::bits;
using test::Floats;
using test::Indices;
using test::kInf;
using test::kNan;

// Activation.

Floats activate(Floats x, ActivationKind kind, float up_value = 1.0F) {
  Floats up(x.rows, x.columns, up_value);
  Floats out(x.rows, x.columns);
  ActivationArgs args;
  args.x = x.view();
  if (is_gated(kind)) args.up = up.view();
  args.out = out.view();
  args.kind = kind;
  test::launch(args);
  return out;
}

double reference(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::silu:
    case ActivationKind::swiglu:
      return x / (1.0 + std::exp(-x));
    case ActivationKind::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case ActivationKind::gelu_tanh:
    case ActivationKind::geglu_tanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case ActivationKind::relu_squared:
      return x > 0 ? x * x : 0.0;
    case ActivationKind::glu:
      return 1.0 / (1.0 + std::exp(-x));
    case ActivationKind::swiglu_clamped:
      return 2.0 * x / (1.0 + std::exp(-1.702 * x));
  }
  return 0.0;
}

TEST(Activation, AgreesWithDoublePrecision) {
  Floats x = test::random_floats(4, 500, 51, 12.0F);
  for (const auto kind : {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh,
                          ActivationKind::relu_squared, ActivationKind::swiglu, ActivationKind::glu}) {
    const Floats found = activate(x, kind);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      const double value = static_cast<double>(x.data[i]);
      // gelu's 1 + erf cancels on the left: the error is relative to |x|, as in every f32 gelu.
      const bool of_value =
          kind == ActivationKind::silu || kind == ActivationKind::relu_squared || kind == ActivationKind::glu;
      const double allowed = of_value ? std::abs(reference(kind, value)) * 3e-7 : 2e-7 * std::abs(value);
      EXPECT_NEAR(found.data[i], reference(kind, value), allowed + 1e-38) << value;
    }
  }
}

TEST(Activation, EdgesFollowTheFormulaNotTheLimit) {
  const Floats x(1, 4, {kInf, -kInf, kNan, -0.0F});
  for (const auto kind : {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh}) {
    const Floats found = activate(x, kind);
    EXPECT_EQ(found.at(0, 0), kInf);
    EXPECT_EQ(bits(found.at(0, 1)), test::kCanonical) << "-Inf * 0";
    EXPECT_EQ(bits(found.at(0, 2)), test::kCanonical);
    EXPECT_EQ(bits(found.at(0, 3)), 0x80000000U);
  }
}

TEST(Activation, SwigluMultipliesTheGate) {
  const Floats x = test::random_floats(2, 50, 52, 5.0F);
  const Floats silu = activate(x, ActivationKind::silu);
  const Floats gated = activate(x, ActivationKind::swiglu, -3.0F);
  for (std::size_t i = 0; i < x.data.size(); ++i) EXPECT_EQ(gated.data[i], silu.data[i] * -3.0F);
  EXPECT_EQ(activate(Floats(1, 1, 88.0F), ActivationKind::swiglu, 3e38F).at(0, 0), kInf);
}

// Residual.

TEST(ResidualAdd, RoundsOnceInF32AndOnceToTheFormat) {
  Floats a = test::random_floats(3, 77, 53, 1000.0F);
  Floats b = test::random_floats(3, 77, 54);
  test::Matrix<std::uint16_t> out(3, 77);
  out.format = Format::f16;
  ResidualAddArgs args;
  args.a = a.view();
  args.b = b.view();
  args.out = out.view();
  test::launch(args);
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    EXPECT_EQ(out.data[i], encode(Format::f16, a.data[i] + b.data[i], Overflow::overflow));
  }
}

TEST(ResidualAdd, LeavesTheHalfRangeAsInfinity) {
  Floats a(1, 2, {65504.0F, -65504.0F});
  Floats b(1, 2, {16.0F, -16.0F});
  test::Matrix<std::uint16_t> out(1, 2);
  out.format = Format::f16;
  ResidualAddArgs args;
  args.a = a.view();
  args.b = b.view();
  args.out = out.view();
  test::launch(args);
  EXPECT_EQ(out.at(0, 0), 0x7c00);
  EXPECT_EQ(out.at(0, 1), 0xfc00);
}

// Rope.

Floats rope(Floats x, std::int64_t heads, std::int64_t position, double stretch = 1.0) {
  Floats out(x.rows, x.columns);
  RopeArgs args;
  args.x = x.view();
  args.out = out.view();
  args.heads = heads;
  args.first_position = position;
  args.stretch = stretch;
  test::launch(args);
  return out;
}

TEST(Rope, RotatesEachPairByItsAngle) {
  for (const std::int64_t width : {2, 10, 64, 130}) {
    for (const std::int64_t first : {0, 7, 4096, 131072}) {
      const std::int64_t heads = 2;
      const Floats x = test::random_floats(3, heads * width, 55);
      const Floats found = rope(x, heads, first);
      for (std::int64_t t = 0; t < 3; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t i = 0; i < width / 2; ++i) {
            const double angle = static_cast<double>(first + t) *
                                 std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
            const double a = static_cast<double>(x.at(t, h * width + i));
            const double b = static_cast<double>(x.at(t, h * width + i + width / 2));
            EXPECT_NEAR(found.at(t, h * width + i), a * std::cos(angle) - b * std::sin(angle), 3e-7);
            EXPECT_NEAR(found.at(t, h * width + i + width / 2), b * std::cos(angle) + a * std::sin(angle), 3e-7);
          }
        }
      }
    }
  }
}

/// Pairs of neighbours behind channels that are copied, by the base or by frequencies.
TEST(Rope, TurnsNeighboursFromAChannelOn) {
  struct Case {
    std::int64_t width, first, rotated;
  };
  for (const Case& one : {Case{64, 0, 64}, Case{10, 0, 10}, Case{100, 33, 50}, Case{12, 8, 4}, Case{192, 128, 64}}) {
    const std::int64_t heads = 2;
    Floats x = test::random_floats(3, heads * one.width, 61);
    Floats frequencies(1, one.rotated / 2);
    for (std::int64_t i = 0; i < one.rotated / 2; ++i) {
      frequencies.at(0, i) =
          static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(one.rotated)));
    }
    Floats found(3, heads * one.width);
    RopeArgs args;
    args.x = x.view();
    args.out = found.view();
    args.heads = heads;
    args.first_position = 4090;
    args.first_channel = one.first;
    args.neighbours = true;
    if (one.rotated < one.width) args.frequencies = frequencies.view();
    test::launch(args);
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t c = 0; c < heads * one.width; ++c) {
        const std::int64_t inside = c % one.width - one.first;
        if (inside < 0 || inside >= one.rotated) {
          EXPECT_EQ(found.at(t, c), x.at(t, c)) << one.width << " " << c;
          continue;
        }
        const double frequency =
            args.frequencies.given()
                ? static_cast<double>(frequencies.at(0, inside / 2))
                : std::pow(10000.0, -2.0 * static_cast<double>(inside / 2) / static_cast<double>(one.width));
        const double angle = static_cast<double>(4090 + t) * frequency;
        const double own = static_cast<double>(x.at(t, c));
        const double other = static_cast<double>(x.at(t, inside % 2 == 0 ? c + 1 : c - 1));
        const double sine = inside % 2 == 0 ? -std::sin(angle) : std::sin(angle);
        EXPECT_NEAR(found.at(t, c), own * std::cos(angle) + other * sine, 3e-7) << one.width << " " << c;
      }
    }
  }
}

/// Dynamic NTK scaling: base * stretch^(d/(d-2)).
TEST(Rope, AStretchedBaseTurnsSlower) {
  for (const std::int64_t width : {4, 10, 64}) {
    const Floats x = test::random_floats(3, width, 59);
    const Floats found = rope(x, 1, 500, 5.5);
    const auto d = static_cast<double>(width);
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t i = 0; i < width / 2; ++i) {
        const double base = 10000.0 * std::pow(5.5, d / (d - 2));
        const double angle = static_cast<double>(500 + t) * std::pow(base, -2.0 * static_cast<double>(i) / d);
        const auto a = static_cast<double>(x.at(t, i));
        const auto b = static_cast<double>(x.at(t, i + width / 2));
        EXPECT_NEAR(found.at(t, i), a * std::cos(angle) - b * std::sin(angle), 3e-7);
        EXPECT_NEAR(found.at(t, i + width / 2), b * std::cos(angle) + a * std::sin(angle), 3e-7);
      }
    }
  }
}

/// pow(-0.5, 64/62) of C is NaN, and so is all that is made of it.
TEST(Rope, ANegativeStretchHasNoPower) {
  const Floats found = rope(test::random_floats(2, 64, 60), 1, 0, -0.5);
  for (std::int64_t i = 0; i < 64; ++i) EXPECT_TRUE(std::isnan(found.at(1, i))) << i;
}

TEST(Rope, PositionZeroChangesNothing) {
  const Floats x = test::random_floats(1, 96, 56);
  EXPECT_EQ(rope(x, 3, 0).data, x.data);
}

TEST(Rope, ANanStaysInItsPair) {
  Floats x = test::random_floats(1, 64, 57);
  x.at(0, 5) = kNan;
  const Floats found = rope(x, 1, 3);
  for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(found.at(0, i)), i == 5 || i == 37) << i;
}

TEST(Rope, InPlace) {
  Floats x = test::random_floats(2, 70, 58);
  const Floats expected = rope(x, 1, 9);
  RopeArgs args;
  args.x = x.view();
  args.out = x.view();
  args.first_position = 9;
  test::launch(args);
  EXPECT_EQ(x.data, expected.data);
}

// Cast.

std::vector<std::uint8_t> cast_e4m3(Floats x, float scale, Overflow overflow) {
  test::Matrix<std::uint8_t> out(x.rows, x.columns);
  CastArgs args;
  args.x = x.view();
  args.out = out.view();
  args.scale = scale;
  args.overflow = overflow;
  test::launch(args);
  return out.data;
}

/// The value of a code from the OFP8 definition, without the codec.
double e4m3_value(int code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if ((code & 127) == 127) return std::nan("");
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 128) != 0 ? -magnitude : magnitude;
}

TEST(Cast, ChoosesTheNearestE4m3CodeAndTheEvenOneOfTwo) {
  Floats x = test::random_floats(1, 20000, 59, 460.0F);
  for (std::size_t i = 0; i < 5000; ++i) x.data[i] *= 1e-4F;  // around the subnormals
  for (std::size_t i = 5000; i < 5256; ++i) {                 // exact ties and exact values
    const double low = e4m3_value(static_cast<int>(i & 127) == 126 ? 0 : static_cast<int>(i & 127));
    const double high = e4m3_value(static_cast<int>((i & 127) == 126 ? 1 : (i & 127) + 1));
    x.data[i] = static_cast<float>(std::isnan(low + high) ? 1.0 : (i & 128) != 0 ? low : (low + high) / 2);
  }
  const auto found = cast_e4m3(x, 1.0F, Overflow::saturate);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const double value = std::abs(static_cast<double>(x.data[i]));
    int best = 0;
    for (int code = 1; code < 127; ++code) {
      const double closer = std::abs(e4m3_value(code) - value) - std::abs(e4m3_value(best) - value);
      if (closer < 0 || (closer == 0 && code % 2 == 0)) best = code;
    }
    EXPECT_EQ(found[i] & 127, best) << x.data[i];
    EXPECT_EQ(found[i] >> 7, std::signbit(x.data[i]) ? 1 : 0);
  }
}

TEST(Cast, DividesByTheScaleWithOneRounding) {
  const Floats x = test::random_floats(3, 333, 60, 30.0F);
  const auto found = cast_e4m3(x, 0.0123F, Overflow::saturate);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    EXPECT_EQ(found[i], encode(Format::e4m3, x.data[i] / 0.0123F, Overflow::saturate));
  }
}

TEST(Cast, NanAndInfinityFollowTheOverflowMode) {
  const Floats x(
      1, 8, {test::from_bits(0x7fffffffU), test::from_bits(0xff800001U), kInf, -kInf, 465.0F, 464.0F, -1e9F, -0.0F});
  EXPECT_EQ(cast_e4m3(x, 1.0F, Overflow::saturate),
            (std::vector<std::uint8_t>{0x7f, 0x7f, 0x7e, 0xfe, 0x7e, 0x7e, 0xfe, 0x80}));
  EXPECT_EQ(cast_e4m3(x, 1.0F, Overflow::overflow),
            (std::vector<std::uint8_t>{0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7e, 0x7f, 0x80}));
}

TEST(Cast, RealValuesAreCodesTimesTheScale) {
  test::Matrix<std::uint8_t> codes(1, 2);
  codes.format = Format::e4m3;
  codes.data = {0x38, 0xFE};  // 1 and -448
  Floats real(1, 2);
  CastArgs args;
  args.x = codes.view();
  args.out = real.view();
  args.dequantise = true;
  args.scale = 0.25F;
  test::launch(args);
  EXPECT_EQ(real.data, (std::vector<float>{0.25F, -112.0F}));
  args.x = real.view();
  args.out = codes.view();
  args.dequantise = false;
  codes.data = {0, 0};
  test::launch(args);
  EXPECT_EQ(codes.data, (std::vector<std::uint8_t>{0x38, 0xFE}));
}

TEST(Cast, EveryCodeOfEveryFormatSurvivesTheWayToF32AndBack) {
  for (const FormatInfo& format : formats()) {
    if (format.storage_bytes() != 1) continue;
    test::Matrix<std::uint8_t> codes(1, 1 << format.bits);
    for (std::size_t i = 0; i < codes.data.size(); ++i) codes.data[i] = static_cast<std::uint8_t>(i);
    codes.format = format.format;
    Floats real(1, codes.columns);
    CastArgs args;
    args.x = codes.view();
    args.out = real.view();
    args.dequantise = true;
    args.overflow = Overflow::overflow;
    test::launch(args);
    test::Matrix<std::uint8_t> back(1, codes.columns);
    back.format = format.format;
    args.x = real.view();
    args.out = back.view();
    args.dequantise = false;
    test::launch(args);
    for (std::size_t i = 0; i < codes.data.size(); ++i) {
      if (std::isnan(real.data[i])) {
        EXPECT_EQ(back.data[i], format.canonical_nan_code);
      } else if (format.format == Format::int8 && codes.data[i] == 0x80) {
        EXPECT_EQ(back.data[i], 0x81) << "-128 clamps to -127";
      } else {
        EXPECT_EQ(back.data[i], codes.data[i]) << format.name;
      }
    }
  }
}

// Recurrence, embedding.

TEST(RecurrentScan, IsTheRecurrenceAndHandsItsStateOn) {
  Floats x = test::random_floats(9, 40, 61);
  Floats decay(1, 40, 0.9F);
  Floats out(9, 40);
  Floats state(1, 40, 77.0F);
  RecurrentScanArgs args;
  args.x = x.view();
  args.decay = decay.view();
  args.state = state.view();
  args.out = out.view();
  test::launch(args);
  for (std::int64_t i = 0; i < 40; ++i) {
    float h = 0;
    for (std::int64_t t = 0; t < 9; ++t) {
      const float kept = 0.9F * h;
      const float added = (1.0F - 0.9F) * x.at(t, i);
      h = kept + added;
      EXPECT_EQ(out.at(t, i), h);
    }
    EXPECT_EQ(state.at(0, i), h);
  }
  // Two halves, the second resumed, are the whole.
  Floats halves(9, 40);
  for (const std::int64_t first : {0, 4}) {
    args.x = {&x.at(first, 0), Format::f32, first == 0 ? 4 : 5, 40, 40};
    args.out = {&halves.at(first, 0), Format::f32, first == 0 ? 4 : 5, 40, 40};
    args.resume = first != 0;
    test::launch(args);
  }
  EXPECT_EQ(halves.data, out.data);
}

TEST(RecurrentScan, ANanInTheStateNeverLeaves) {
  Floats x(6, 33, 1.0F);
  x.at(2, 9) = kNan;
  Floats decay(1, 33, 0.5F);
  Floats out(6, 33);
  Floats state(1, 33);
  RecurrentScanArgs args;
  args.x = x.view();
  args.decay = decay.view();
  args.state = state.view();
  args.out = out.view();
  test::launch(args);
  for (std::int64_t t = 0; t < 6; ++t) {
    for (std::int64_t i = 0; i < 33; ++i) EXPECT_EQ(std::isnan(out.at(t, i)), i == 9 && t >= 2);
  }
}

TEST(Embedding, TakesTokensFromTheTableAndImageTokensFromThePatches) {
  Floats table = test::random_floats(10, 45, 62);
  Floats patches = test::random_floats(2, 45, 63);
  Floats positions = test::random_floats(20, 45, 64);
  Indices tokens(4, 1, {3, -1, 9, -1});
  Indices patch_rows(4, 1, {-1, 1, -1, 0});
  Floats out(4, 45);
  EmbeddingArgs args;
  args.tokens = tokens.view();
  args.patch_rows = patch_rows.view();
  args.table = table.view();
  args.patches = patches.view();
  args.positions = positions.view();
  args.out = out.view();
  args.first_position = 6;
  test::launch(args);
  for (std::int64_t i = 0; i < 45; ++i) {
    EXPECT_EQ(out.at(0, i), table.at(3, i) + positions.at(6, i));
    EXPECT_EQ(out.at(1, i), patches.at(1, i) + positions.at(7, i));
    EXPECT_EQ(out.at(2, i), table.at(9, i) + positions.at(8, i));
    EXPECT_EQ(out.at(3, i), patches.at(0, i) + positions.at(9, i));
  }
}

}  // namespace
}  // namespace nanscope::kernels
