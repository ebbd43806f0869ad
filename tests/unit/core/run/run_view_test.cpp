#include "core/run/run_view.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/core/run/graph.h"

/// Whose row a row is, and where a token's row is in another tensor.
namespace nanscope {
namespace {

using testing::DumpGraph;
using testing::kInf;
using testing::kNan;

/// Two sequences in a batch of frames of four: the first is padded to the left by one, the second has two tokens behind
/// five cached ones and one row of padding behind them.
struct Batch {
  DumpGraph g;
  Batch() { g.pass({Span{7, 0, 1, 3, 0, 3}, Span{8, 1, 4, 2, 5, 7}}, 8, 2); }
  Tensor tensor(Axis axis, std::int64_t tokens, std::int64_t first_token = 0, std::int64_t sequence = -1) {
    const TensorId id = g.source({.tokens = tokens, .axis = axis});
    Tensor& made = const_cast<Tensor&>(*g.tensor(id));
    made.first_token = first_token;
    made.sequence = sequence;
    return made;
  }
  std::string token(const Tensor& tensor, std::int64_t row) {
    const RowToken found = g.token_of(tensor, row);
    return found.span == nullptr ? "nobody's"
                                 : std::to_string(found.span->request) + '@' + std::to_string(found.position);
  }
};

TEST(RunView, RowsOfTheStep) {
  Batch batch;
  const Tensor tensor = batch.tensor(Axis::rows, 8);
  EXPECT_EQ(batch.token(tensor, 0), "nobody's");
  EXPECT_EQ(batch.token(tensor, 1), "7@0");
  EXPECT_EQ(batch.token(tensor, 3), "7@2");
  EXPECT_EQ(batch.token(tensor, 4), "8@5");
  EXPECT_EQ(batch.token(tensor, 5), "8@6");
  EXPECT_EQ(batch.token(tensor, 6), "nobody's");
}

TEST(RunView, RowsOfSomebodyAloneAndLastRows) {
  Batch batch;
  const Tensor live = batch.tensor(Axis::live, 5);
  EXPECT_EQ(batch.token(live, 0), "7@0");
  EXPECT_EQ(batch.token(live, 3), "8@5");
  EXPECT_EQ(batch.token(live, 5), "nobody's");
  const Tensor ends = batch.tensor(Axis::ends, 2);
  EXPECT_EQ(batch.token(ends, 0), "7@2");
  EXPECT_EQ(batch.token(ends, 1), "8@6");
  EXPECT_EQ(batch.token(ends, 2), "nobody's");
}

TEST(RunView, PositionsOfOneSequence) {
  Batch batch;
  const Tensor part = batch.tensor(Axis::part, 3, 4, 1);
  EXPECT_EQ(batch.token(part, 2), "8@6");
  const Tensor keys = batch.tensor(Axis::keys, 7, 0, 1);
  EXPECT_EQ(batch.token(keys, 6), "8@6");
  EXPECT_EQ(batch.token(batch.tensor(Axis::keys, 9, 0, 1), 7), "nobody's") << "behind its end";
}

TEST(RunView, OfParametersAndSlotsNobody) {
  Batch batch;
  EXPECT_EQ(batch.token(batch.tensor(Axis::none, 8), 1), "nobody's");
  EXPECT_EQ(batch.token(batch.tensor(Axis::slots, 8), 1), "nobody's");
}

TEST(RunView, TheSameTokensRowElsewhere) {
  Batch batch;
  const Tensor rows = batch.tensor(Axis::rows, 8);
  const Tensor live = batch.tensor(Axis::live, 5);
  const Tensor ends = batch.tensor(Axis::ends, 2);
  EXPECT_EQ(batch.g.same_row(rows, 4, live), 3);
  EXPECT_EQ(batch.g.same_row(live, 4, rows), 5);
  EXPECT_EQ(batch.g.same_row(rows, 5, ends), 1);
  EXPECT_EQ(batch.g.same_row(rows, 4, ends), std::nullopt);
  EXPECT_EQ(batch.g.same_row(rows, 0, live), std::nullopt) << "padding";
  EXPECT_EQ(batch.g.same_row(rows, 6, rows), 6);
}

TEST(RunView, BadRowsAreThoseThatMeanSomething) {
  DumpGraph g;
  g.pass();
  const auto bad = [&](const std::string& role, float value) {
    const TensorId id = g.op("made", OpKind::dumped, {}, {.role = role, .fill = testing::row_of(2, value)});
    return g.bad_rows(*g.tensor(id));
  };
  EXPECT_EQ(bad("out", kNan), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(bad("out", -kInf), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(bad("scores", -kInf), (std::vector<std::int64_t>{})) << "hides keys";
  EXPECT_EQ(bad("logits", -kInf), (std::vector<std::int64_t>{})) << "hides tokens";
  EXPECT_EQ(bad("logits", kInf), (std::vector<std::int64_t>{2}));
}

/// Values that nobody can ask for any more must not push out others.
TEST(RunView, WhatIsReadInAnotherFormatIsNotHeldTwice) {
  DumpGraph g;
  g.pass();
  const TensorId small = g.op("small", OpKind::dumped, {});
  const TensorId large = g.op("large", OpKind::dumped, {}, {.tokens = 4, .channels = 1 << 20});
  const std::weak_ptr<const std::vector<float>> held = g.values(*g.tensor(small));
  for (int i = 0; i < 14; ++i) {  // 16 MiB each
    g.values(*g.tensor(large));
    g.read_as(large, Format::f32);
  }
  EXPECT_FALSE(held.expired());
}

TEST(RunView, RowsAreHeldByTheirBytes) {
  DumpGraph g;
  g.pass();
  const TensorId wide = g.op("wide", OpKind::dumped, {}, {.tokens = 20, .channels = 1 << 20, .format = Format::e4m3});
  const std::weak_ptr<const std::vector<float>> first = g.row_values(*g.tensor(wide), 0);
  EXPECT_FALSE(first.expired());
  for (std::int64_t row = 1; row < 20; ++row) g.row_values(*g.tensor(wide), row);  // 4 MiB each
  EXPECT_TRUE(first.expired());
}

}  // namespace
}  // namespace nanscope
