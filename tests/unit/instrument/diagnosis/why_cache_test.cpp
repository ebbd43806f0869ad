#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/instrument/diagnosis/dump_graph.h"

namespace nanscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WhyInCaches, ASlotLeadsToTheRowThatThisPassStored) {
  Pool pool(one_at(1, 2, kNan), constant(1), one_at(1, 2, kNan));
  EXPECT_THAT(names(walk_from(pool.g, pool.second, 1, 2)), ElementsAre("p2.kv_store.k_cache", "p2.k_rope.k_rot"));
}

TEST(WhyInCaches, ASlotOfAnotherPassLeadsThere) {
  Pool pool(one_at(3, 0, kNan), one_at(7, 0, kNan), one_at(7, 0, kNan));
  const WhyPath path = walk_from(pool.g, pool.second, 7, 0);
  EXPECT_THAT(names(path),
              ElementsAre("p2.kv_store.k_cache", "slot p2.kv_store.k_cache", "p1.kv_store.k_cache", "p1.k_rope.k_rot"));
  EXPECT_EQ(
      hop(path, 1).text,
      "block 1 slot 3 was last written by request 0 step 0 (attention, as f32), whose block is in the block table "
      "of request 1");
  EXPECT_EQ(path.origin, std::nullopt);
}

TEST(WhyInCaches, ASlotThatWasHealthyWhenItWasWrittenWasWrittenSince) {
  Pool pool(constant(1), constant(1), one_at(7, 0, kNan));
  const WhyPath path = walk_from(pool.g, pool.second, 7, 0);
  EXPECT_EQ(path.origin, 1U);
  EXPECT_THAT(hop(path, 1).text, HasSubstr("something wrote the slot since"));
  EXPECT_THAT(path.conclusion, HasSubstr("came in at"));
}

TEST(WhyInCaches, ASlotThatNoPassWroteIsWhereItCameIn) {
  Pool pool(constant(1), one_at(2, 0, kNan), one_at(2, 0, kNan));
  const WhyPath path = walk_from(pool.g, pool.second, 2, 0);
  EXPECT_EQ(path.origin, 1U);
  EXPECT_EQ(hop(path, 1).text, "no pass of the dump wrote block 0 slot 2; it is bad in p1.kv_store.k_cache already");
}

TEST(WhyInCaches, PoolsOfOtherRanksAreOthers) {
  Pool pool(constant(1), one_at(6, 0, kNan), one_at(6, 0, kNan));
  pool.g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, 1);
  const auto k = pool.g.op("k_rope", OpKind::rope, {});
  const auto cache = pool.g.op("kv_store", OpKind::kv_store, {{"k", k}}, Pool::cache(one_at(6, 0, kNan)), pool.blocks);
  EXPECT_THAT(hop(walk_from(pool.g, cache, 6, 0), 1).text, HasSubstr("no pass of the dump wrote block 1 slot 2"));
}

TEST(WhyInCaches, WithoutTheOtherPassesCacheItsKeysAreTaken) {
  DumpGraph g;
  g.pass();
  g.op("k_rope", OpKind::rope, {}, {.fill = row_of(1, kNan)});
  g.pass({Span{0, 1, 0, 1, 4, 5}}, 1);
  const auto k = g.op("k_rope", OpKind::rope, {}, {.tokens = 1});
  KvStoreAttributes blocks;
  blocks.block_size = 8;
  const auto cache = g.op("kv_store", OpKind::kv_store, {{"k", k}}, Pool::cache(row_of(1, kNan)), blocks);
  g.kv(0, 0, 0, 8, 0, KvAction::allocated);
  g.kv(0, 0, 4, 5, 4, KvAction::written);
  const WhyPath path = walk_from(g, cache, 1, 0);
  EXPECT_THAT(names(path), ElementsAre("p2.kv_store.k_cache", "p1.k_rope"));
  EXPECT_THAT(hop(path, 0).text, HasSubstr("kept from request 0 step 0: p1.k_rope[1,0] is NaN"));
}

TEST(WhyInCaches, ACacheOfPositionsKnowsWhatIsOlder) {
  DumpGraph g;
  g.pass();
  const auto older = g.op("k_rope", OpKind::rope, {}, {.fill = row_of(1, kNan)});
  g.op("kv_store", OpKind::kv_store, {{"k", older}}, {.role = "k_cache", .fill = row_of(1, kNan), .axis = Axis::keys});
  g.pass({Span{0, 1, 0, 1, 4, 5}}, 1);
  const auto k = g.op("k_rope", OpKind::rope, {}, {.tokens = 1, .fill = constant(kNan)});
  const auto cache = g.op("kv_store", OpKind::kv_store, {{"k", k}},
                          {.role = "k_cache",
                           .tokens = 5,
                           .fill = [](auto row, auto) { return row == 1 || row == 4 ? kNan : 1.0F; },
                           .axis = Axis::keys});
  EXPECT_THAT(names(walk_from(g, cache, 4, 0)), ElementsAre("p2.kv_store.k_cache", "p2.k_rope"));
  EXPECT_THAT(names(walk_from(g, cache, 1, 0)), ElementsAre("p2.kv_store.k_cache", "p1.kv_store.k_cache", "p1.k_rope"));
}

TEST(WhyInCaches, ScoresFindTheirKeyInThePool) {
  Pool pool(constant(1), one_at(5, 2, kNan), one_at(5, 2, kNan));
  const auto q = pool.g.op("q_rope", OpKind::rope, {}, {.tokens = 2});
  ScoresAttributes form;
  form.heads = 1;
  form.kv_heads = 1;
  const auto scores = pool.g.op(
      "scores", OpKind::attention_scores, {{"q", q}, {"k", pool.second}},
      {.role = "scores", .tokens = 2, .channels = 6, .fill = [](auto, auto key) { return key == 1 ? kNan : 1.0F; }},
      form);
  const WhyPath path = walk_from(pool.g, scores, 0, 1);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("key 1: the key holds NaN (0x7FFFFFFF) at p2.kv_store.k_cache[5,2]"));
  EXPECT_EQ(hop(path, 1).tensor, "p2.kv_store.k_cache");
}

TEST(WhyInCaches, AMixReadsTheTailOfTheLastBlock) {
  Pool pool(constant(1), one_at(2, 3, kNan), one_at(2, 3, kNan));
  const auto probs = pool.g.op(
      "softmax", OpKind::softmax, {},
      {.role = "probs", .tokens = 2, .channels = 8, .fill = [](auto, auto key) { return key < 6 ? 0.125F : 0.0F; }});
  const auto out = pool.g.op("attn_mix", OpKind::attention_mix, {{"probs", probs}, {"v", pool.second}},
                             {.tokens = 2, .fill = constant(kNan)});
  const WhyPath path = walk_from(pool.g, out, 1, 3);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("probability 0 times value NaN (0x7FFFFFFF) of key 6: 0 * NaN is NaN; the "
                                           "context ends at 6"));
  EXPECT_EQ(place_text(hop(path, 1).where), "1/0/0/kv_store.k_cache[2,3]");
}

TEST(WhyInCaches, FusedAttentionReadsThePoolToTheEndOfTheBlock) {
  Pool pool(constant(1), one_at(2, 1, kNan), one_at(2, 1, kNan));
  const auto q = pool.g.op("q_rope", OpKind::rope, {}, {.tokens = 2});
  const auto v = pool.g.op("v_proj", OpKind::gemm, {}, {.tokens = 2});
  const auto out = pool.g.op("attention", OpKind::attention, {{"q", q}, {"k", pool.second}, {"v", v}},
                             {.tokens = 2, .fill = constant(kNan)});
  EXPECT_THAT(hop(walk_from(pool.g, out, 0, 0), 0).text,
              HasSubstr("the key at position 6, beyond the context of 6: p2.kv_store.k_cache[2,1] is NaN"));
}

TEST(WhyInCaches, GatheredKeysStandSequenceBySequence) {
  DumpGraph g;
  // Two decoding sequences whose last positions are 2 and 1, in blocks of four.
  g.pass({Span{0, 3, 0, 1, 2, 3}, Span{1, 2, 1, 1, 1, 2}}, 2);
  KvStoreAttributes blocks;
  blocks.block_size = 4;
  const auto k = g.op("k_rope", OpKind::rope, {}, {.tokens = 2});
  const auto cache = g.op("kv_store", OpKind::kv_store, {{"k", k}},
                          {.role = "k_cache", .tokens = 12, .fill = row_of(8, kNan), .axis = Axis::slots}, blocks);
  g.kv(0, 0, 0, 4, 0, KvAction::allocated);
  g.kv(1, 2, 0, 4, 0, KvAction::allocated);
  const auto read = g.op("k_read", OpKind::kv_read, {{"k_cache", cache}},
                         {.role = "k_read", .tokens = 6, .fill = row_of(3, kNan), .axis = Axis::slots});
  const auto q = g.op("q_rope", OpKind::rope, {}, {.tokens = 2});
  const auto scores = g.op("scores", OpKind::attention_scores, {{"q", q}, {"k", read}},
                           {.role = "scores", .tokens = 2, .channels = 3, .fill = one_at(1, 0, kNan)});
  EXPECT_THAT(names(walk_from(g, scores, 1, 0)),
              ElementsAre("p1.scores.scores", "p1.k_read.k_read", "p1.kv_store.k_cache", "slot p1.kv_store.k_cache"));
  const auto out =
      g.op("attention", OpKind::attention, {{"q", q}, {"k", read}, {"v", q}}, {.tokens = 2, .fill = constant(kNan)});
  EXPECT_THAT(hop(walk_from(g, out, 1, 0), 0).text, HasSubstr("the key at position 0: p1.k_read.k_read[3,0]"));
  EXPECT_EQ(walk_from(g, out, 0, 0).origin, 0U);
}

TEST(WhyInCaches, WhatCannotBePlacedIsNotFollowed) {
  DumpGraph g;
  g.pass();
  const auto q = g.op("q_rope", OpKind::rope, {});
  const auto k = g.op("k_rope", OpKind::rope, {}, {.tokens = 3, .fill = constant(kNan), .axis = Axis::none});
  const auto scores = g.op("scores", OpKind::attention_scores, {{"q", q}, {"k", k}},
                           {.role = "scores", .channels = 5, .fill = constant(kNan)});
  const WhyPath path = walk_from(g, scores, 1, 4);
  EXPECT_EQ(path.hops.size(), 1U);
  EXPECT_EQ(path.origin, std::nullopt);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("which row of p1.k_rope the key is is not known"));
}

TEST(WhyInCaches, HeadsThatDoNotFitAreNotTakenForSuch) {
  Pool pool(constant(1), constant(kNan), constant(kNan));
  const auto q = pool.g.op("q_rope", OpKind::rope, {}, {.tokens = 2, .channels = 6});
  ScoresAttributes form;
  form.heads = 2;
  const auto scores = pool.g.op("scores", OpKind::attention_scores, {{"q", q}, {"k", pool.second}},
                                {.role = "scores", .tokens = 2, .channels = 12, .fill = constant(kNan)}, form);
  const WhyPath path = walk_from(pool.g, scores, 0, 1);
  EXPECT_EQ(path.hops.size(), 1U);
  EXPECT_THAT(hop(path, 0).text, HasSubstr("which row of p2.kv_store.k_cache it was made of is not known; of its bad "
                                           "ones the first: p2.kv_store.k_cache[0,0] is NaN"));
}

TEST(WhyInCaches, ReadBackCachesLeadToTheirCodes) {
  Pool pool(one_at(0, 0, kNan), constant(1), one_at(0, 0, kNan));
  const auto read = pool.g.op("k_read", OpKind::kv_read, {{"k_cache", pool.second}},
                              {.role = "k_read", .tokens = 8, .fill = one_at(0, 0, kNan), .axis = Axis::slots});
  const auto keys = pool.g.op("k_read", OpKind::kv_read, {{"k_cache", pool.second}},
                              {.role = "k_read", .tokens = 6, .fill = one_at(4, 0, kNan), .axis = Axis::keys});
  EXPECT_THAT(names(walk_from(pool.g, read, 0, 0)),
              ElementsAre("p2.k_read.k_read", "p2.kv_store.k_cache", "p2.k_rope.k_rot"));
  EXPECT_EQ(place_text(hop(walk_from(pool.g, keys, 4, 0), 1).where), "1/0/0/kv_store.k_cache[0,0]");
}

}  // namespace
}  // namespace nanscope::testing
