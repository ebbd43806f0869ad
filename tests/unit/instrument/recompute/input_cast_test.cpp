#include "instrument/recompute/input_cast.h"

#include <cmath>

#include "tests/unit/instrument/recompute/again.h"

/// Products whose inputs are cast to 8 bits when they run.
namespace nanscope::testing::input_cast_test {
namespace {

constexpr std::int64_t kIn = 24;
constexpr std::int64_t kOut = 40;
constexpr std::int64_t kRows = 4;

double rounded(Format format, double value) {
  return double{decode(format, encode(format, static_cast<float>(value), Overflow::saturate))};
}

/// What a code of an input under a scale and a zero point stands for.
double coded(Format format, double scaled, double zero = 0) {
  if (format != Format::int8) return rounded(format, scaled);
  return std::fmax(-128, std::fmin(127, std::nearbyint(scaled + zero))) - zero;
}

struct How {
  Format cast = Format::int8;
  std::string scales = "row";
  std::int64_t group = 0;  ///< elements that share a scale
  double divisor = 127;    ///< of the largest magnitude
  bool as_torch = false;   ///< each step is rounded to the activations' format
  Format format = Format::f32;
  double scale = 0;  ///< the fixed one
  double zero = 0;
};

/// The input as the server's cast leaves it.
Numbers cast(const Numbers& x, const How& how) {
  const auto round = [&](double value) { return how.as_torch ? rounded(how.format, value) : value; };
  Numbers out(x.rows, x.columns);
  double largest = 0;
  for (const double one : x.v) largest = std::fmax(largest, std::fabs(one));
  const std::int64_t width = how.group > 0 ? how.group : x.columns;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t k = 0; k < x.columns; ++k) {
      double own = 0;
      for (std::int64_t i = k / width * width; i < std::min(x.columns, (k / width + 1) * width); ++i)
        own = std::fmax(own, std::fabs(x.at(r, i)));
      const double scale = how.scale > 0 ? how.scale : round((how.scales == "tensor" ? largest : own) / how.divisor);
      out.at(r, k) = round(coded(how.cast, round(x.at(r, k) / scale), how.zero) * scale);
    }
  }
  return out;
}

/// Two layers; the second one's output is changed. `said`: what the attributes say instead of the truth.
Case made(const How& how, const Change& change = unchanged, const std::string& said = {}) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  GemmAttributes product_of_model;
  product_of_model.input_format = said.empty() ? std::string(name(how.cast)) : said;
  product_of_model.input_scales = how.scales;
  if (how.group > 0) product_of_model.input_group = how.group;
  const TensorId x = g.source({.channels = kIn, .fill = noise(1, 3), .format = how.format});
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    g.layer = layer;
    const TensorId weight = g.parameter("up_proj.weight", kOut, kIn, noise(static_cast<std::uint32_t>(10 + layer)));
    std::vector<std::pair<std::string, TensorId>> inputs{{"x", x}, {"weight", weight}};
    if (how.scale > 0) {
      inputs.emplace_back("x_scale", g.parameter("up_proj.input_scale", 1, 1, constant(static_cast<float>(how.scale))));
      inputs.emplace_back("x_zero_point",
                          g.parameter("up_proj.input_zero_point", 1, 1, constant(static_cast<float>(how.zero))));
    }
    out.right = product(cast(stored_numbers(g, x, kRows, kIn), how), stored_numbers(g, weight, kOut, kIn));
    Numbers stored = out.right;
    if (layer == 1) change(stored);
    out.out = g.op("up_proj", OpKind::gemm, inputs, {.channels = kOut, .fill = fill_of(stored), .format = how.format},
                   product_of_model);
  }
  return out;
}

/// All of it is explained, by a form of this text.
void expect_form(const How& how, const std::string& text) {
  const Case one = made(how);
  Again again(*one.graph);
  const Recomputed* found = again.result(one.out);
  ASSERT_NE(found, nullptr) << again.why_not(one.out);
  EXPECT_EQ(found->share(), 1.0) << text << ": " << found->worst.actual << " instead of " << found->worst.expected;
  EXPECT_EQ(found->form.text, text);
}

TEST(InputCast, IsByTheLargestMagnitudeOfARow) {
  expect_form({}, "of the input, cast to int8 by the largest magnitude of each row");
  expect_form({.cast = Format::e4m3, .divisor = 448},
              "of the input, cast to e4m3 by the largest magnitude of each row");
}

TEST(InputCast, IsByTheLargestMagnitudeOfAll) {
  expect_form({.scales = "tensor"}, "of the input, cast to int8 by the largest magnitude of all");
}

TEST(InputCast, IsByTheLargestMagnitudeOfAGroup) {
  expect_form({.cast = Format::e4m3, .scales = "group", .group = 8, .divisor = 448},
              "of the input, cast to e4m3 by the largest magnitude of each group");
}

/// compressed-tensors in torch: a scale of the largest magnitude over 127.5, and each step in the model's dtype.
TEST(InputCast, RoundsEachStepInTorch) {
  expect_form({.divisor = 127.5, .as_torch = true, .format = Format::bf16},
              "of the input, cast to int8 by the largest magnitude of each row, each step rounded");
}

/// With a zero point of -16 codes reach from -3.5 to 4.5, with 64 from -6 to 2: what lies above is cut off.
TEST(InputCast, IsUnderAFixedScaleAndAZeroPoint) {
  constexpr double kScale = 0x1p-5;
  expect_form({.scales = "fixed", .scale = kScale, .zero = -16}, "of the input, cast to int8 under its scale");
  expect_form({.scales = "fixed", .scale = kScale, .zero = 64}, "of the input, cast to int8 under its scale");
}

TEST(InputCast, ThatIsNotKnownIsNotJudged) {
  const Case one = made({}, unchanged, "unknown");
  Again again(*one.graph);
  EXPECT_EQ(again.result(one.out), nullptr);
  EXPECT_THAT(again.why_not(one.out), ::testing::HasSubstr("cast when it runs, and how is not known"));
}

/// Where no product comes out of any known cast, how the model casts is not understood, and nothing is wrong.
TEST(InputCast, ThatIsNoneOfTheKnownAccusesNothing) {
  const Case one = made({.divisor = 100});
  Again again(*one.graph);
  ASSERT_NE(again.result(one.out), nullptr);
  EXPECT_LT(again.result(one.out)->share(), 1.0);
  EXPECT_FALSE(again.understood(one.out));
}

/// Two products of a layer that have their own dumped inputs. The first comes out, cast or not; the second is cast by a
/// rule that is not known.
bool understood(bool cast_first) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  GemmAttributes by_rows;
  by_rows.input_format = "int8";
  by_rows.input_scales = "row";
  const auto add = [&](const std::string& name, const How& how, bool is_cast) {
    const TensorId x = g.op(name + "_input", OpKind::dumped, {}, {.channels = kIn, .fill = noise(1, 3)});
    const TensorId weight = g.parameter(name + ".weight", kOut, kIn, noise(7));
    const Numbers numbers = stored_numbers(g, x, kRows, kIn);
    const Numbers right = product(is_cast ? cast(numbers, how) : numbers, stored_numbers(g, weight, kOut, kIn));
    const TensorId made = g.op(name, OpKind::gemm, {{"x", x}, {"weight", weight}},
                               {.channels = kOut, .fill = fill_of(right)}, is_cast ? by_rows : GemmAttributes{});
    g.know_by_name();
    return made;
  };
  add("gate_proj", {}, cast_first);
  out.out = add("up_proj", {.divisor = 100}, true);
  Again again(g);
  return again.understood(out.out);
}

TEST(InputCast, IsUnderstoodIfAnotherProductOfTheRunComesOutCast) {
  EXPECT_TRUE(understood(true));
  EXPECT_FALSE(understood(false));
}

TEST(InputCast, AnElementThatIsOffIsSeen) {
  expect_seen([](const Change& change) { return made({}, change); }, 2, 31);
  expect_seen([](const Change& change) { return made({.scales = "fixed", .scale = 0x1p-5, .zero = -16}, change); }, 1,
              7);
}

}  // namespace
}  // namespace nanscope::testing::input_cast_test
