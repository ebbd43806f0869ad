/// What is taken of a run: rows in the order of steps, who sees what, what is left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/run/kv_cache.h"
#include "instrument/policies/evaluate.h"
#include "instrument/policies/layer_tokens.h"
#include "tests/unit/instrument/policies/tokens.h"

namespace nanscope {
namespace {

using testing::add_attention;
using testing::DumpGraph;
using ::testing::ElementsAre;
using testing::Fill;
using ::testing::HasSubstr;
using testing::kNan;

constexpr testing::Shape kSmall{2, 1, 4};

Fill counted_from(float first) {
  return [first](std::int64_t row, std::int64_t channel) {
    return first + static_cast<float>(row) + 0.125F * static_cast<float>(channel);
  };
}

Result<LayerTokens> collect(DumpGraph& run, CollectOptions options = {}) {
  KvCache cache(run);
  return collect_layer(run, cache, 0, options);
}

void add_pass(DumpGraph& run, std::vector<Span> spans, float first, MixAttributes at = {}, const Fill& k = {}) {
  std::int64_t rows = 0;
  for (const Span& span : spans) rows = std::max(rows, span.row + span.rows);
  run.pass(std::move(spans), rows);
  add_attention(run, rows, kSmall, counted_from(first), k ? k : counted_from(first), counted_from(first), at);
}

TEST(CollectTokens, StepsInOrderAndWhoSeesWhat) {
  DumpGraph run;
  add_pass(run, {{7, 0, 0, 3, 0, 3}}, 0);
  // Two sequences in one step, a row of padding between them.
  add_pass(run, {{7, 1, 0, 1, 3, 4}, {8, 0, 2, 2, 0, 2}}, 100);
  const auto tokens = collect(run);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->shape.heads, 2);
  EXPECT_EQ(tokens->shape.kv_heads, 1);
  EXPECT_EQ(tokens->shape.key_width, 4);
  ASSERT_EQ(tokens->steps.size(), 2U);
  ASSERT_EQ(tokens->sequences.size(), 2U);
  EXPECT_THAT(tokens->sequences[0].rows, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(tokens->sequences[1].rows, ElementsAre(4, 5));
  // Rows of the second step are 0 and 2, 3 of its tensors.
  EXPECT_EQ(tokens->k[3 * 4], 100);
  EXPECT_EQ(tokens->k[4 * 4], 102);
  ASSERT_EQ(tokens->steps[1].queries.size(), 3U);
  EXPECT_EQ(tokens->steps[1].queries[0].last_key, 3);
  EXPECT_EQ(tokens->steps[1].queries[1].last_key, 0);
  EXPECT_EQ(tokens->steps[1].queries[2].last_key, 1);
}

TEST(CollectTokens, MasksAreThoseThatTheRunStates) {
  DumpGraph run;
  MixAttributes at;
  at.window = 2;
  at.first_position = 1;  // a row sees the one behind it, too
  add_pass(run, {{0, 0, 0, 4, 0, 4}}, 0, at);
  const auto tokens = collect(run);
  ASSERT_TRUE(tokens) << tokens.error().message;
  const auto& queries = tokens->steps[0].queries;
  ASSERT_EQ(queries.size(), 4U);
  EXPECT_EQ(queries[2].first_key, 2);
  EXPECT_EQ(queries[2].last_key, 3);
  EXPECT_EQ(queries[3].last_key, 3);  // there is no key behind the last
  EXPECT_THAT(tokens->facts, ::testing::Contains("a window of 2 keys"));
}

TEST(CollectTokens, SharedPrefixIsRowsOfWhoStoredIt) {
  DumpGraph run;
  add_pass(run, {{1, 0, 0, 4, 0, 4}}, 0);
  run.kv(1, 5, 0, 4, 0, KvAction::allocated);
  run.kv(1, 5, 0, 4, 0, KvAction::written);
  add_pass(run, {{2, 0, 0, 2, 4, 6}}, 50);
  run.kv(2, 5, 0, 4, 0, KvAction::shared);
  const auto tokens = collect(run);
  ASSERT_TRUE(tokens) << tokens.error().message;
  ASSERT_EQ(tokens->sequences.size(), 2U);
  EXPECT_EQ(tokens->sequences[1].first_position, 4);
  ASSERT_EQ(tokens->sequences[1].shared.size(), 4U);
  EXPECT_EQ(tokens->sequences[1].shared[2], (std::pair<std::size_t, std::int64_t>{0, 2}));
  EXPECT_EQ(tokens->steps[1].queries.size(), 2U);
}

TEST(CollectTokens, WhatIsStoredAgainIsAnotherSequence) {
  DumpGraph run;
  add_pass(run, {{1, 0, 0, 4, 0, 4}}, 0);
  add_pass(run, {{1, 1, 0, 2, 2, 4}}, 50);
  const auto tokens = collect(run);
  ASSERT_TRUE(tokens) << tokens.error().message;
  ASSERT_EQ(tokens->sequences.size(), 2U);
  EXPECT_EQ(tokens->sequences[1].first_position, 2);
  EXPECT_EQ(tokens->sequences[1].shared.size(), 2U);
}

TEST(CollectTokens, NaNOfTheRunIsLeftOutWithWhoSeesIt) {
  DumpGraph run;
  add_pass(run, {{1, 0, 0, 4, 0, 4}}, 0, {},
           [](std::int64_t row, std::int64_t channel) { return row == 2 && channel == 1 ? kNan : 1.0F; });
  const auto tokens = collect(run);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->rows_not_finite, 1);
  EXPECT_EQ(tokens->queries, 2);
  EXPECT_EQ(tokens->queries_left_out, 2);
  EXPECT_THAT(tokens->left_out, ElementsAre("step 1, request 1, position 2"));
  PolicyOptions options;
  options.claims = false;
  const auto report = evaluate_policies(run, options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->left_out, ElementsAre(HasSubstr("layer 0: 1 row of K or V holds a NaN")));
  for (const PolicyResult& one : report->policies) {
    // A row whose numbers are all the same is 0 / 0 there (lmdeploy), whoever made the NaN beside it.
    const bool constant_rows = one.candidate.name.starts_with("lmdeploy");
    EXPECT_EQ(one.not_finite, constant_rows ? 2 : 0) << one.candidate.name;
  }
}

TEST(CollectTokens, QueriesAreSpreadAndTheLastIsAmongThem) {
  DumpGraph run;
  add_pass(run, {{1, 0, 0, 9, 0, 9}}, 0);
  CollectOptions options;
  options.most_queries = 3;
  const auto tokens = collect(run, options);
  ASSERT_TRUE(tokens) << tokens.error().message;
  std::vector<std::int64_t> positions;
  for (const PolicyQuery& query : tokens->steps[0].queries) positions.push_back(query.position);
  EXPECT_THAT(positions, ElementsAre(2, 5, 8));
}

TEST(CollectTokens, ErrorsSayWhatIsMissing) {
  DumpGraph run;
  run.pass();
  const TensorId q = run.op("q_proj", OpKind::gemm, {}, {"q", 4, 8, counted_from(0), Format::f32, Axis::rows, 2});
  const TensorId k = run.unknown("k_proj", OpKind::gemm, {});
  run.unknown("attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", k}});
  EXPECT_EQ(collect(run).error().message, "layer 0: its keys were not dumped");

  DumpGraph flat;
  flat.pass();
  add_attention(flat, 4, {1, 1, 12}, counted_from(0), counted_from(0), counted_from(0));
  EXPECT_TRUE(collect(flat));
  DumpGraph odd;
  odd.pass();
  const TensorId wide = odd.op("q_proj", OpKind::gemm, {}, {"q", 4, 12, counted_from(0)});
  const TensorId narrow = odd.op("k_proj", OpKind::gemm, {}, {"k", 4, 8, counted_from(0)});
  odd.unknown("attention", OpKind::attention, {{"q", wide}, {"k", narrow}, {"v", narrow}});
  EXPECT_THAT(collect(odd).error().message, HasSubstr("how many heads its queries have is not known"));
}

TEST(CollectTokens, DecodeStepReadsWhatTheCacheHeld) {
  DumpGraph run;
  run.pass({{1, 0, 0, 1, 5, 6}}, 1);
  const TensorId q = run.op("q_proj", OpKind::gemm, {}, {"q", 1, 4, counted_from(0), Format::f32, Axis::rows, 1});
  const TensorId k =
      run.op("k_read", OpKind::kv_read, {}, {"k_read", 6, 4, counted_from(10), Format::f32, Axis::keys, 1});
  const TensorId v =
      run.op("v_read", OpKind::kv_read, {}, {"v_read", 6, 4, counted_from(20), Format::f32, Axis::keys, 1});
  run.unknown("attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", v}});
  const auto tokens = collect(run);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_THAT(tokens->sequences[0].rows, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(tokens->k[3 * 4], 13);
  EXPECT_EQ(tokens->k[5 * 4], 15);
  EXPECT_EQ(tokens->steps.back().queries.at(0).last_key, 5);
  EXPECT_THAT(tokens->facts, ::testing::Contains(HasSubstr("as the cache held them")));
}

}  // namespace
}  // namespace nanscope
