#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diff/served.h"

/// Rows of two dumps meet by sequence and position, however the model was run.
namespace nanscope {
namespace {

using testing::diff_of;
using ::testing::HasSubstr;
using testing::kChannels;
using testing::kDown;
using testing::kNext;
using testing::Served;
using testing::tokens_of;

void expect_same(Served& a, Served& b, std::uint64_t compared) {
  const DiffReport report = diff_of(a.dump, b.dump, {9, {}, nullptr});
  EXPECT_TRUE(report.same()) << (report.differences.empty() ? "" : report.differences.front().summary);
  EXPECT_EQ(report.compared, compared);
  EXPECT_EQ(report.equal, compared);
}

Served in_steps(const std::vector<std::int64_t>& ends, const std::vector<std::int64_t>& tokens,
                const testing::Change& change = testing::unchanged) {
  Served made;
  std::int64_t first = 0;
  for (const std::int64_t end : ends) {
    made.step(tokens, first, end, change);
    first = end;
  }
  return made;
}

TEST(Alignment, OnePieceMeetsChunksAndDecode) {
  const auto tokens = tokens_of(24);
  Served whole = in_steps({24}, tokens);
  Served chunks = in_steps({6, 12, 18, 24}, tokens);
  Served decode = in_steps({21, 22, 23, 24}, tokens);
  expect_same(whole, chunks, 3);
  expect_same(whole, decode, 3);
  expect_same(chunks, decode, 12);
}

TEST(Alignment, ARowOfAChunkIsNamedByItsPosition) {
  const auto tokens = tokens_of(24);
  Served whole = in_steps({24}, tokens);
  Served chunks = in_steps({6, 12, 18, 24}, tokens,
                           [](auto at, auto channel, double value) { return at == 14 && channel == 3 ? 9 : value; });
  const DiffReport report = diff_of(whole.dump, chunks.dump);
  EXPECT_FALSE(report.same());
  EXPECT_EQ(report.outstanding, 1U);  // the next tensor has it from its input
  ASSERT_EQ(report.differences.size(), 1U);
  const Difference& first = report.differences[0];
  EXPECT_EQ(first.a->name, std::string("step_0/") + kDown);
  EXPECT_EQ(first.b->name, std::string("step_2/") + kDown);
  EXPECT_EQ(first.token, 14);
  EXPECT_EQ(first.value_b, 9);
  ASSERT_TRUE(first.outstanding);
  EXPECT_EQ(first.outstanding->places, (std::vector<align::RowPlace>{{0, 14}}));
  EXPECT_EQ(first.outstanding->channels, (Range{3, 3}));
  EXPECT_LT(first.outstanding->chance, 1e-6);
}

TEST(Alignment, PaddingIsNobodys) {
  const auto a = tokens_of(20, 1);
  const auto b = tokens_of(13, 2);
  Served left;
  Served right;
  Served other;
  left.batch({a, b}, 20, true);
  right.batch({a, b}, 24, false);
  other.batch({b, a}, 22, true);
  expect_same(left, right, 4);
  expect_same(left, other, 4);
  Served alone;
  alone.step(b, 0, 13);
  const DiffReport report = diff_of(alone.dump, other.dump);
  EXPECT_TRUE(report.same());
  EXPECT_EQ(report.rows_only_in_b, 60U);
}

TEST(Alignment, SequencesMeetByTheirTokens) {
  Served a;
  Served b;
  for (const std::int64_t seed : {1, 2, 3}) a.step(tokens_of(10, seed), 0, 10);
  for (const std::int64_t seed : {3, 1, 2}) b.step(tokens_of(10, seed), 0, 10);
  expect_same(a, b, 9);
}

TEST(Alignment, BehindTheFirstOtherTokenNothingIsCompared) {
  auto tokens = tokens_of(16);
  Served a = in_steps({16}, tokens);
  tokens[11] += 1;
  Served b = in_steps({16}, tokens, [](auto at, auto, double value) { return at >= 11 ? 5 : value; });
  const DiffReport report = diff_of(a.dump, b.dump);
  ASSERT_EQ(report.sequences.size(), 1U);
  EXPECT_EQ(report.sequences[0].first_apart, 11);
  EXPECT_EQ(report.sequences[0].tokens, 11);
  EXPECT_EQ(report.outstanding, 0U);
  EXPECT_EQ(report.rows, 3U * 11);
}

TEST(Alignment, FusedProjectionsMeetTheirParts) {
  const auto fill = [](testing::MemoryDump& dump, const std::string& name, std::vector<std::int64_t> parts) {
    std::vector<double> values;
    for (std::int64_t row = 0; row < 8; ++row) {
      for (const std::int64_t part : parts) {
        for (std::int64_t i = 0; i < kChannels; ++i) {
          values.push_back(testing::served(static_cast<int>(part), 1, row, i));
        }
      }
    }
    dump.add("model.layers.0." + name, "f32", {1, 8, static_cast<std::int64_t>(parts.size()) * kChannels}, values);
  };
  testing::MemoryDump a;
  fill(a, "mlp.gate_proj.output", {4});
  fill(a, "mlp.up_proj.output", {5});
  testing::MemoryDump b;
  fill(b, "mlp.gate_up_proj.output", {4, 5});
  testing::MemoryDump swapped;
  fill(swapped, "mlp.gate_up_proj.output", {5, 4});
  EXPECT_EQ(diff_of(a, b).equal, 2U);
  EXPECT_TRUE(diff_of(a, b).same());
  EXPECT_TRUE(diff_of(b, a).same());
  EXPECT_EQ(diff_of(a, swapped).differing, 2U);
}

TEST(Alignment, WhatANameCannotTellContentDoes) {
  testing::MemoryDump a;
  testing::MemoryDump b;
  std::vector<double> values;
  for (std::int64_t i = 0; i < 8 * kChannels; ++i) values.push_back(testing::served(1, 2, i, 3));
  const std::vector<double> ids(8, 3);
  a.add("input_ids", "i64", {1, 8}, ids);
  b.add("input_ids", "i64", {1, 8}, ids);
  a.add("model.layers.0.mlp.output", "f32", {1, 8, kChannels}, values);
  b.add("model.layers.0.something_else", "f32", {1, 8, kChannels}, values);
  EXPECT_TRUE(diff_of(a, b).same());
  for (double& value : values) value = -value;
  testing::MemoryDump other;
  other.add("input_ids", "i64", {1, 8}, ids);
  other.add("model.layers.0.something_else", "f32", {1, 8, kChannels}, values);
  const DiffReport report = diff_of(a, other, {9, {}, nullptr});
  EXPECT_EQ(report.unmatched, 2U);
  EXPECT_THAT(report.differences.at(0).reason, HasSubstr("none with its values"));
  align::NameMap map;
  map.lines.push_back({"model.layers.0.mlp.output", "model.layers.0.something_else", {}});
  EXPECT_EQ(diff_of(a, other, {9, map, nullptr}).differing, 1U);
}

/// Names of two engines mean the same although some rows differ, and a copy of the healthy tensor is at hand.
TEST(Alignment, ContentDoesNotHideAFault) {
  testing::MemoryDump a;
  testing::MemoryDump b;
  for (testing::MemoryDump* dump : {&a, &b}) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < 32 * kChannels; ++i) values.push_back(testing::served(1, 2, i, 3));
    dump->add("input_ids", "i64", {1, 32}, std::vector<double>(32, 3));
    dump->add("model.layers.0.mlp." + std::string(dump == &a ? "output" : "copy"), "f32", {1, 32, kChannels}, values);
    for (std::size_t i = 0; i < 8 * kChannels && dump == &b; ++i) values[i] *= 4;
    dump->add("model.layers.0.mlp.down_proj.output", "f32", {1, 32, kChannels}, values);
  }
  const DiffReport report = diff_of(a, b, {9, {}, nullptr});
  ASSERT_FALSE(report.differences.empty());
  EXPECT_EQ(report.differences[0].a->name, "model.layers.0.mlp.down_proj.output");
  ASSERT_TRUE(report.differences[0].outstanding);
  EXPECT_EQ(report.differences[0].outstanding->rows, 8U);
}

/// Two engines call other tensors by one name: the values tell.
TEST(Alignment, ANameThatMisleadsGivesWayToContent) {
  testing::MemoryDump a;
  testing::MemoryDump b;
  std::vector<double> values;
  std::vector<double> others;
  for (std::int64_t i = 0; i < 32 * kChannels; ++i) values.push_back(testing::served(1, 2, i, 3));
  for (std::int64_t i = 0; i < 32 * kChannels; ++i) others.push_back(testing::served(2, 9, i, 5));
  for (testing::MemoryDump* dump : {&a, &b}) dump->add("input_ids", "i64", {1, 32}, std::vector<double>(32, 3));
  a.add("model.layers.0.mlp.only_a", "f32", {1, 32, kChannels}, std::vector<double>(32 * kChannels, 1));
  a.add("model.layers.0.mlp.output", "f32", {1, 32, kChannels}, values);
  b.add("model.layers.0.mlp.output", "f32", {1, 32, kChannels}, others);
  b.add("model.layers.0.mlp.only_b", "f32", {1, 32, kChannels}, values);
  const DiffReport report = diff_of(a, b, {9, {}, nullptr});
  EXPECT_EQ(report.differing, 0U);
  EXPECT_EQ(report.equal, 2U) << "the ids, and what holds the same";
  EXPECT_EQ(report.unmatched, 2U);
}

/// All names are those of the other run: a layer that put out what another one does is a fault, and no other name.
TEST(Alignment, ContentDoesNotRenameTensorsOfOneEngine) {
  testing::MemoryDump a;
  testing::MemoryDump b;
  const auto values = [](int tensor) {
    std::vector<double> all;
    for (std::int64_t i = 0; i < 32 * kChannels; ++i) all.push_back(testing::served(tensor, 2, i, 3));
    return all;
  };
  for (testing::MemoryDump* dump : {&a, &b}) {
    dump->add("input_ids", "i64", {1, 32}, std::vector<double>(32, 3));
    dump->add("model.layers.0.mlp.output", "f32", {1, 32, kChannels}, values(dump == &a ? 1 : 2));
    dump->add("model.layers.1.mlp.output", "f32", {1, 32, kChannels}, values(2));
  }
  const DiffReport report = diff_of(a, b, {9, {}, nullptr});
  EXPECT_EQ(report.unmatched, 0U);
  EXPECT_EQ(report.differing, 1U);
  ASSERT_FALSE(report.differences.empty());
  EXPECT_EQ(report.differences[0].a->name, "model.layers.0.mlp.output");
}

TEST(Alignment, AMapIsCheckedLineByLine) {
  const auto map = align::parse_name_map("# names\nlayers.*.mlp  blocks.*.ffn\n\nhead lm_head columns\n");
  ASSERT_TRUE(map);
  ASSERT_EQ(map->lines.size(), 2U);
  EXPECT_EQ(map->lines[1].join, align::Join::columns);
  EXPECT_THAT(align::parse_name_map("a b\nc\n").error().message, HasSubstr("line 2"));
  EXPECT_THAT(align::parse_name_map("a b sideways").error().message, HasSubstr("'sideways'"));
}

/// One tensor on each of two ranks.
testing::MemoryDump on_ranks(const std::string& name, const std::vector<std::vector<double>>& ranks,
                             std::int64_t channels) {
  testing::MemoryDump made;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string folder = ranks.size() > 1 ? "rank" + std::to_string(rank) + "/step_0/" : "step_0/";
    made.add(folder + name, "f32", {1, 8, channels}, ranks[rank]);
  }
  return made;
}

TEST(Alignment, RanksAreJoined) {
  std::vector<double> whole, left, right, half, rest;
  for (std::int64_t row = 0; row < 8; ++row) {
    for (std::int64_t i = 0; i < kChannels; ++i) {
      const double value = std::round(64 * testing::served(1, 2, row, i)) / 64;
      whole.push_back(value);
      (i < kChannels / 2 ? left : right).push_back(value);
      half.push_back(value - 0.25 * static_cast<double>(row + i));
      rest.push_back(0.25 * static_cast<double>(row + i));
    }
  }
  const std::string name = "model.layers.0.mlp.down_proj.output";
  testing::MemoryDump one = on_ranks(name, {whole}, kChannels);
  testing::MemoryDump columns = on_ranks(name, {left, right}, kChannels / 2);
  testing::MemoryDump sum = on_ranks(name, {half, rest}, kChannels);
  testing::MemoryDump replicated = on_ranks(name, {whole, whole}, kChannels);
  const auto join = [&](testing::MemoryDump& b) {
    const DiffReport report = diff_of(one, b);
    EXPECT_TRUE(report.same());
    EXPECT_EQ(report.equal, 1U);
    return report.joined.at(0).join;
  };
  EXPECT_EQ(join(columns), align::Join::columns);
  EXPECT_EQ(join(sum), align::Join::sum);
  EXPECT_EQ(join(replicated), align::Join::replicated);
  EXPECT_TRUE(diff_of(columns, sum).same());
  EXPECT_TRUE(diff_of(sum, replicated).same());
  // Four ranks share the heads of two.
  testing::MemoryDump shared = on_ranks(name, {left, left, right, right}, kChannels / 2);
  EXPECT_TRUE(diff_of(columns, shared).same());
  EXPECT_TRUE(diff_of(shared, one).same());
  std::vector<double> wrong = whole;
  for (std::int64_t i = 0; i < kChannels; ++i) wrong[static_cast<std::size_t>(5 * kChannels + i)] += 3;
  testing::MemoryDump parted = on_ranks(name, {whole, wrong}, kChannels);
  const DiffReport report = diff_of(one, parted);
  ASSERT_EQ(report.outstanding, 1U);
  EXPECT_EQ(report.differences[0].outstanding->rank, 1);
  EXPECT_EQ(report.differences[0].token, 5);
}

}  // namespace
}  // namespace nanscope
