#include "tests/unit/instrument/recompute/again.h"

/// Which differences are more than rounding.
namespace nanscope::testing {
namespace {

/// An output of `elements`, of which `off` are beyond their bound, the worst `ratio` times as far.
Recomputed with(std::int64_t elements, std::int64_t off, double ratio) {
  Recomputed made;
  made.elements = elements;
  made.explained = elements - off;
  made.worst.ratio = ratio;
  return made;
}

/// A sum is beyond its bound with a chance of 6.7e-4: one of 64 is in 4 % of all rows, four in one of 2 million.
TEST(Deviates, NotByAFewElementsOfASmallOutputThatAreHardlyOff) {
  EXPECT_FALSE(deviates(with(64, 1, 1.1)));
  EXPECT_FALSE(deviates(with(64, 3, 1.1)));
  EXPECT_FALSE(deviates(with(768, 4, 1.2)));
  EXPECT_TRUE(deviates(with(64, 5, 1.1)));
  EXPECT_TRUE(deviates(with(768, 30, 1.2)));
  EXPECT_TRUE(deviates(with(100'000, 1'000, 1.1)));
}

/// One element of 64 is twice as far as its bound with a chance of 2 e^(-32) each.
TEST(Deviates, ByOneElementOfASmallOutputThatIsFarOff) {
  EXPECT_TRUE(deviates(with(64, 1, 2)));
  EXPECT_TRUE(deviates(with(1, 1, 2)));
  EXPECT_FALSE(deviates(with(1, 1, 1.1)));
  EXPECT_TRUE(deviates(with(1, 1, std::numeric_limits<double>::infinity())));
}

/// A router's four logits in bf16, dumped as f32, of a model whose other tensors are bf16 as well: the first that the
/// vote on the format of the activations looks at.
TEST(Precision, OfFewNumbersIsThatOfTheModel) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass({Span{0, 0, 0, 1, 0, 1}}, 1);
  const auto kept = [](Numbers numbers) {
    for (double& one : numbers.v)
      one = double{decode(Format::bf16, encode(Format::bf16, static_cast<float>(one), Overflow::overflow))};
    return numbers;
  };
  const auto linear_of = [&](const std::string& name, TensorId x, std::int64_t outputs, std::uint32_t seed) {
    const TensorId weight = g.parameter(name + ".weight", outputs, 64, noise(seed, 0.5));
    const Numbers right = product(stored_numbers(g, x, 1, 64), stored_numbers(g, weight, outputs, 64));
    return g.op(name, OpKind::gemm, {{"x", x}, {"weight", weight}},
                {.tokens = 1, .channels = outputs, .fill = fill_of(kept(right))});
  };
  Numbers given(1, 64);
  for (std::int64_t c = 0; c < 64; ++c) given.at(0, c) = double{noise(7, 2)(0, c)};
  const TensorId x = g.op("post_norm", OpKind::dumped, {}, {.tokens = 1, .channels = 64, .fill = fill_of(kept(given))});
  out.out = linear_of("router", x, 4, 1);
  linear_of("up_proj", x, 128, 2);
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr) << again.why_not(out.out);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
}

}  // namespace
}  // namespace nanscope::testing
