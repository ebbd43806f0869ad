#include "core/numbers/codec.h"
#include "tests/unit/instrument/recompute/again.h"

/// Codes under scales: casts, reading back, stores and reads of caches.
namespace nanscope::testing::scaled_test {
namespace {

constexpr std::int64_t kWidth = 32;

enum class Grid { one, row, channel, block };

/// A grid of scales over 4 x 32, of blocks of 4 x 16 where it is of blocks.
std::pair<std::int64_t, std::int64_t> shape_of(Grid grid) {
  return {grid == Grid::row ? 4 : 1, grid == Grid::channel ? kWidth : grid == Grid::block ? 2 : 1};
}

Fill scales() {
  return [](auto r, auto c) { return 0.01F * static_cast<float>(1 + 3 * r + c % 5); };
}

double scale_at(const DumpGraph& g, TensorId scale, Grid grid, std::int64_t row, std::int64_t channel) {
  const std::int64_t c = grid == Grid::channel ? channel : grid == Grid::block ? channel / 16 : 0;
  return double{g.at(scale, grid == Grid::row ? row : 0, c)};
}

/// A cast of x: x over its scale to a power, rounded and cut off at the largest code.
Case cast(Grid grid, Format format, int power = 1) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId x = g.source({.channels = kWidth, .fill = noise(1, 0.02 * double{info(format).max_finite})});
  const auto [rows, columns] = shape_of(grid);
  const TensorId scale = g.parameter("x_scale", rows, columns, scales());
  out.right = Numbers(4, kWidth);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const double largest = double{info(format).max_finite};
      const double wanted = double{g.at(x, r, c)} / std::pow(scale_at(g, scale, grid, r, c), power);
      out.right.at(r, c) = std::clamp(wanted, -largest, largest);
    }
  }
  out.out = g.op("x_quantise", OpKind::quantise, {{"x", x}, {"scale", scale}},
                 {.role = "codes", .channels = kWidth, .fill = fill_of(out.right), .format = format});
  return out;
}

double share_of(const Case& made) {
  Again again(*made.graph);
  EXPECT_NE(again.result(made.out), nullptr) << again.why_not(made.out);
  return again.result(made.out) == nullptr ? -1 : again.result(made.out)->share();
}

TEST(RecomputeQuantise, EveryGridAndEveryFormat) {
  for (const Grid grid : {Grid::one, Grid::row, Grid::channel, Grid::block}) {
    for (const Format format : {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::int8})
      EXPECT_EQ(share_of(cast(grid, format)), 1.0) << static_cast<int>(grid) << ' ' << name(format);
  }
}

TEST(RecomputeQuantise, ACodeThatIsOffIsSeen) {
  Case made = cast(Grid::row, Format::e4m3);
  DumpGraph& g = *made.graph;
  const Tensor& out = *g.tensor(made.out);
  const Op maker = *g.maker(out);
  std::vector<std::pair<std::string, TensorId>> inputs;
  for (const Input& input : maker.inputs) inputs.emplace_back(input.role, input.tensor);
  Numbers changed = made.right;
  changed.at(2, 9) = changed.at(2, 9) > 0 ? -100 : 100;
  const TensorId second = g.op("y_quantise", OpKind::quantise, inputs,
                               {.role = "codes", .channels = kWidth, .fill = fill_of(changed), .format = Format::e4m3});
  Again again(g);
  ASSERT_NE(again.result(second), nullptr);
  EXPECT_THAT(again.result(second)->bad_rows, ::testing::ElementsAre(2));
  EXPECT_EQ(again.result(second)->worst.channel, 9);
}

TEST(RecomputeQuantise, KnowsAScaleThatWasLeftOutAppliedTwiceOrInverted) {
  EXPECT_THAT(explained_by(cast(Grid::row, Format::e4m3, 0)), ::testing::HasSubstr("left out"));
  EXPECT_THAT(explained_by(cast(Grid::row, Format::e4m3, 2)), ::testing::HasSubstr("twice"));
  EXPECT_THAT(explained_by(cast(Grid::row, Format::e4m3, -1)), ::testing::HasSubstr("inverted"));
}

/// Codes read back times their scale to a power, in `as`.
Case read_back(Grid grid, Format format, int power = 1, Format as = Format::f32) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId codes = g.op(
      "x_quantise", OpKind::dumped, {},
      {.role = "codes", .channels = kWidth, .fill = noise(1, 0.9 * double{info(format).max_finite}), .format = format});
  const auto [rows, columns] = shape_of(grid);
  const TensorId scale = g.parameter("x_scale", rows, columns, scales());
  out.right = Numbers(4, kWidth);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      float code = g.at(codes, r, c);
      if (as != Format::f32) code = decode(as, encode(format, code, Overflow::saturate));
      out.right.at(r, c) = double{code} * std::pow(scale_at(g, scale, grid, r, c), power);
    }
  }
  out.out = g.op("x_dequantise", OpKind::dequantise, {{"codes", codes}, {"scale", scale}},
                 {.channels = kWidth, .fill = fill_of(out.right)});
  return out;
}

TEST(RecomputeQuantise, EachTensorHasTheScaleThatItsOwnCodesShow) {
  DumpGraph g;
  std::vector<TensorId> made;
  g.pass();
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    g.layer = layer;
    const TensorId x = g.source({.channels = kWidth, .fill = noise(1 + static_cast<std::uint32_t>(layer), 4)});
    const float scale = layer == 0 ? 0.013F : 0.031F;
    made.push_back(g.op("x_quantise", OpKind::quantise, {{"x", x}},
                        {.role = "codes",
                         .channels = kWidth,
                         .fill = [&](auto r, auto c) { return g.at(x, r, c) / scale; },
                         .format = Format::e4m3}));
  }
  Again again(g);
  for (const TensorId out : made) {
    ASSERT_NE(again.result(out), nullptr) << again.why_not(out);
    EXPECT_EQ(again.result(out)->share(), 1.0);
  }
}

/// A number without what stands behind the last digit of its format.
double cut_off(double value, Format format) {
  if (info(format).exponent_bits == 0) return std::trunc(value);
  const double size = std::abs(value);
  const int lowest = static_cast<int>(std::lround(std::log2(double{info(format).min_normal})));
  const int exponent = size == 0 ? lowest : std::max(lowest, static_cast<int>(std::floor(std::log2(size))));
  const double step = std::ldexp(1.0, exponent - info(format).mantissa_bits);
  return std::copysign(std::floor(size / step) * step, value);
}

TEST(RecomputeQuantise, KnowsACastThatRoundsTowardsZero) {
  for (const Format format : {Format::e4m3, Format::int8}) {
    Case made = cast(Grid::one, format);
    for (std::int64_t r = 0; r < 4; ++r) {
      for (std::int64_t c = 0; c < kWidth; ++c) made.right.at(r, c) = cut_off(made.right.at(r, c), format);
    }
    Case cut = cast(Grid::one, format);
    DumpGraph& g = *cut.graph;
    const Op& op = *g.maker(*g.tensor(cut.out));
    const TensorId out = g.op("cut_quantise", OpKind::quantise, {{"x", op.input("x")}, {"scale", op.input("scale")}},
                              {.role = "codes", .channels = kWidth, .fill = fill_of(made.right), .format = format});
    Again again(g);
    ASSERT_NE(again.result(out), nullptr);
    EXPECT_LT(again.result(out)->share(), 0.95) << name(format);
    const auto others = again.alternatives(out);
    const auto found = std::find_if(others.begin(), others.end(), [](const Recomputed& one) {
      return one.form.text == "the cast rounds towards zero";
    });
    ASSERT_NE(found, others.end()) << name(format);
    EXPECT_EQ(found->share(), 1.0) << name(format);
    for (const Recomputed& one : others) {
      if (one.form.text != found->form.text) {
        EXPECT_LT(one.share(), 0.95) << one.form.text;
      }
    }
  }
}

TEST(RecomputeDequantise, EveryGridAndEveryFormat) {
  for (const Grid grid : {Grid::one, Grid::row, Grid::channel, Grid::block}) {
    for (const Format format : {Format::e4m3, Format::e5m2, Format::int8})
      expect_right(read_back(grid, format), "the code times its scale", 16);
  }
}

TEST(RecomputeDequantise, KnowsWhatWasDoneToItsScaleOrFormat) {
  EXPECT_THAT(explained_by(read_back(Grid::row, Format::e4m3, 0)), ::testing::HasSubstr("left out"));
  EXPECT_THAT(explained_by(read_back(Grid::row, Format::e4m3, 2)), ::testing::HasSubstr("twice"));
  EXPECT_THAT(explained_by(read_back(Grid::one, Format::e4m3, 1, Format::e5m2)), ::testing::HasSubstr("e5m2"));
}

/// Four rows into blocks 1 and 0 of a pool of blocks of two slots: position p lies in slot `slots[p]`.
struct Paged {
  static constexpr std::int64_t kSlots[] = {2, 3, 0, 1};
  Case made;
  TensorId scale = 0;
  TensorId k = 0;

  explicit Paged(std::int64_t shift = 0) {
    DumpGraph& g = *made.graph;
    g.pass();
    g.kv(0, 1, 0, 2, 0, KvAction::allocated);
    g.kv(0, 0, 0, 2, 2, KvAction::allocated);
    g.kv(0, 1, 0, 2, 0, KvAction::written);
    g.kv(0, 0, 0, 2, 2, KvAction::written);
    k = g.op("k_rope", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(5)});
    scale = g.parameter("k_scale", 1, 1, constant(1.0F / 448));
    made.right = Numbers(4, kWidth);
    for (std::int64_t position = 0; position < 4; ++position) {
      for (std::int64_t c = 0; c < kWidth; ++c)
        made.right.at(kSlots[(position + shift) % 4], c) = double{g.at(k, position, c)} * 448;
    }
    KvStoreAttributes blocks;
    blocks.block_size = 2;
    made.out = g.op("kv_store", OpKind::kv_store, {{"k", k}, {"k_scale", scale}},
                    {.role = "k_cache",
                     .channels = kWidth,
                     .fill = fill_of(made.right),
                     .format = Format::e4m3,
                     .axis = Axis::slots},
                    blocks);
  }
};

TEST(RecomputeKvStore, RowsLieInTheirSlots) {
  EXPECT_EQ(share_of(Paged().made), 1.0);
  EXPECT_LT(share_of(Paged(1).made), 0.5) << "each row one slot further";
}

TEST(RecomputeKvRead, RowsComeOutOfTheirSlots) {
  Paged paged;
  DumpGraph& g = *paged.made.graph;
  Numbers right(4, kWidth);
  for (std::int64_t position = 0; position < 4; ++position) {
    for (std::int64_t c = 0; c < kWidth; ++c)
      right.at(position, c) = double{g.at(paged.made.out, Paged::kSlots[position], c)} / 448;
  }
  KvReadAttributes blocks;
  blocks.block_size = 2;
  const auto add = [&](const Numbers& stored) {
    return g.op("kv_read", OpKind::kv_read, {{"k_cache", paged.made.out}, {"k_scale", paged.scale}},
                {.role = "k_read", .channels = kWidth, .fill = fill_of(stored), .axis = Axis::keys}, blocks);
  };
  const TensorId good = add(right);
  Numbers swapped = right;
  for (std::int64_t c = 0; c < kWidth; ++c) std::swap(swapped.at(1, c), swapped.at(2, c));
  const TensorId bad = add(swapped);
  Again again(g);
  ASSERT_NE(again.result(good), nullptr) << again.why_not(good);
  EXPECT_EQ(again.result(good)->share(), 1.0);
  ASSERT_NE(again.result(bad), nullptr);
  EXPECT_THAT(again.result(bad)->bad_rows, ::testing::ElementsAre(1, 2));
}

}  // namespace
}  // namespace nanscope::testing::scaled_test
