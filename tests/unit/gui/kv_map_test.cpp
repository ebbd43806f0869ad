#include "gui/prepare/kv_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gui/prepare/requests_sheet.h"
#include "instrument/engine/request.h"
#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui::kv_map_test {
namespace {

using nanscope::testing::constant;
using nanscope::testing::RunBuilder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ScaleRow unit_scale() {
  ScaleRow scale;
  scale.scale = 1;
  return scale;
}

/// Stores `tokens` keys and values, the key of position `bad` NaN; then reads all keys of the block.
void attend(RunBuilder& builder, std::int64_t first, std::int64_t tokens, std::int64_t bad) {
  const auto fill = [=](std::int64_t row, std::int64_t) { return first + row == bad ? kNotANumber : 1.0F; };
  builder.op(0, "k_proj", "gemm", {});
  const std::int64_t k = builder.output("out", {tokens, 2, first, 1}, fill);
  const std::int64_t v = builder.output("v", {tokens, 2, first, 1}, constant(1));
  builder.op(0, "kv_store", "kv_store", {{"k", k}, {"v", v}});
  builder.store("k", k, unit_scale());
  builder.store("v", v, unit_scale());
  builder.op(0, "kv_read", "kv_read", {});
  builder.output("k_read", {4, 2, 0, 1}, constant(1));
}

/// Blocks of 4. Request 0 fills block 0 (its token 1 is NaN) and gives it back; request 1 takes it for 2
/// tokens and shares nothing; request 2 shares block 0 from request 1 while that still holds it.
RunBuilder history() {
  RunBuilder builder;
  builder.request(0, {5, 6, 7}, {8});
  builder.request(1, {5, 6}, {0});
  builder.request(2, {5, 6}, {0});
  builder.step(0, 0, 0, 3);
  builder.kv(0, 0, 0, 4, 0, KvAction::allocated);
  builder.kv(0, 0, 0, 3, 0, KvAction::written);
  attend(builder, 0, 3, 1);
  builder.kv(0, 0, 0, 4, 0, KvAction::freed);
  builder.step(1, 0, 0, 1);
  builder.kv(1, 0, 0, 4, 0, KvAction::allocated);
  builder.kv(1, 0, 0, 1, 0, KvAction::written);
  attend(builder, 0, 1, -1);
  builder.step(2, 0, 1, 1);
  builder.kv(2, 0, 0, 1, 0, KvAction::shared);
  builder.kv(2, 1, 0, 4, 0, KvAction::allocated);
  builder.kv(1, 0, 0, 4, 0, KvAction::freed);
  return builder;
}

KvMap map_at(RunBuilder& builder, std::size_t step) {
  BuiltView run(builder);
  Facts facts(run);
  Result<KvMap> made = make_kv_map(facts, facts.run.steps()[step]);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *std::move(made) : KvMap{};
}

std::vector<SlotState> states(const KvBlock& block) {
  std::vector<SlotState> found;
  for (const KvSlot& slot : block.slots) found.push_back(slot.state);
  return found;
}

TEST(KvMap, ShowsWhoWroteWhatAndWhereNanLies) {
  RunBuilder builder = history();
  const KvMap map = map_at(builder, 0);
  ASSERT_EQ(map.blocks.size(), 2U) << "also those that are not used yet";
  const KvBlock& block = map.blocks[0];
  EXPECT_THAT(states(block), ElementsAre(SlotState::live, SlotState::live, SlotState::live, SlotState::never_written));
  EXPECT_EQ(block.words, "held by request 0") << "it gives the block back after the step";
  EXPECT_EQ(block.slots[1].health, kNan);
  EXPECT_LT(block.slots[0].health, kClipped);
  ASSERT_TRUE(block.slots[1].target);
  EXPECT_EQ(to_string(block.slots[1].target->place), "0/0/0/kv_store.k_codes[1]");
  EXPECT_EQ(map.blocks[1].words, "not used yet");
  EXPECT_EQ(map.bad, 1U);
  EXPECT_EQ(map.written, 3U);
  EXPECT_EQ(map.slots, 8U);
}

TEST(KvMap, ARecycledBlockKeepsWhatWasLeftBehind) {
  RunBuilder builder = history();
  const KvMap map = map_at(builder, 1);
  const KvBlock& block = map.blocks[0];
  EXPECT_THAT(states(block),
              ElementsAre(SlotState::live, SlotState::stale, SlotState::stale, SlotState::never_written));
  EXPECT_EQ(block.slots[0].request, 1);
  EXPECT_EQ(block.slots[1].request, 0);
  EXPECT_EQ(block.slots[1].health, kNan);
  EXPECT_THAT(block.slots[1].words, Contains(HasSubstr("given back, not scrubbed, and is held by request 1")));
  EXPECT_TRUE(block.slots[1].read);
  EXPECT_THAT(block.slots[1].words, Contains(HasSubstr("beyond its context")));
  EXPECT_THAT(block.slots[0].words, Not(Contains(HasSubstr("beyond its context"))));
  EXPECT_EQ(map.stale, 2U);
}

TEST(KvMap, ASharedPrefixIsItsReadersToo) {
  RunBuilder builder = history();
  const KvMap map = map_at(builder, 2);
  const KvBlock& block = map.blocks[0];
  EXPECT_EQ(block.slots[0].state, SlotState::shared);
  EXPECT_THAT(block.slots[0].words, Contains(HasSubstr("shared with request 2")));
  EXPECT_EQ(block.slots[1].state, SlotState::stale);
  EXPECT_THAT(block.holders, ElementsAre(2)) << "request 1 is gone";
}

TEST(KvMap, ScrubbingClearsASlot) {
  RunBuilder builder = history();
  builder.step(1, 1, 1, 1);
  builder.kv(1, 0, 0, 4, 0, KvAction::scrubbed);
  const KvMap map = map_at(builder, 3);
  EXPECT_EQ(map.blocks[0].slots[1].state, SlotState::scrubbed);
  EXPECT_EQ(map.bad, 0U);
}

TEST(KvMap, AStateIsNoKey) {
  RunBuilder builder = history();
  builder.step(0, 1, 3, 1);
  builder.kv(0, 1, 0, 4, 0, KvAction::written, "recurrent_state", Format::f32, 0);
  const KvMap map = map_at(builder, 3);
  EXPECT_TRUE(map.blocks[1].slots[2].foreign);
  EXPECT_THAT(map.blocks[1].slots[2].words, Contains(HasSubstr("as f32")));
}

TEST(KvMap, RefusesMoreSlotsThanAScreenShows) {
  RunBuilder builder = history();
  builder.kv(0, 0, 0, 1 << 20, 0, KvAction::allocated);
  BuiltView run(builder);
  Facts facts(run);
  EXPECT_FALSE(make_kv_map(facts, facts.run.steps()[0]));
}

TEST(KvMap, RefusesManyBlocksThatAreSmallEach) {
  RunBuilder builder = history();
  for (std::int64_t block = 0; block < 300; ++block) builder.kv(0, block, 0, 1000, 0, KvAction::allocated);
  BuiltView run(builder);
  Facts facts(run);
  EXPECT_FALSE(make_kv_map(facts, facts.run.steps()[0])) << "300 000 slots";
}

TEST(KvMap, ASlotIsAsBadAsItsWorstLayer) {
  RunBuilder builder = history();
  builder.step(0, 1, 3, 1);
  builder.kv(0, 1, 0, 1, 3, KvAction::written);
  attend(builder, 3, 1, -1);
  builder.op(1, "k_proj", "gemm", {});
  const std::int64_t k = builder.output("out", {1, 2, 3, 1}, constant(kNotANumber));
  builder.op(1, "kv_store", "kv_store", {{"k", k}});
  builder.store("k", k, unit_scale());
  const KvMap map = map_at(builder, 3);
  const KvSlot& slot = map.blocks[1].slots[0];
  EXPECT_EQ(slot.health, kNan);
  EXPECT_EQ(to_string(slot.target->place), "0/1/1/kv_store.k_codes[3]") << "where to look";
}

TEST(KvMap, AStateThatIsReadAsKeysIsAsBadAsItIsRead) {
  RunBuilder builder = history();
  builder.request(3, {5});
  builder.step(3, 0, 0, 1);
  builder.kv(3, 1, 0, 4, 0, KvAction::allocated);
  builder.kv(3, 1, 0, 4, 0, KvAction::written, "recurrent_state", Format::f32, 0);
  builder.op(0, "kv_read", "kv_read", {});
  builder.output("k_read", {4, 2, 0, 1}, [](std::int64_t row, std::int64_t) { return row == 2 ? kNotANumber : 1.0F; });
  const KvMap map = map_at(builder, 3);
  const KvSlot& slot = map.blocks[1].slots[2];
  EXPECT_EQ(slot.health, kNan);
  EXPECT_THAT(slot.words, Contains(HasSubstr("read as NaN in layer 0")));
  EXPECT_EQ(to_string(slot.target->place), "3/0/0/kv_read.k_read[2]");
  EXPECT_LT(map.blocks[1].slots[1].health, kClipped);
}

TEST(KvMap, StopsWhenTold) {
  RunBuilder builder = history();
  BuiltView run(builder);
  Facts facts(run);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(make_kv_map(facts, facts.run.steps()[0], stop.get_token()));
}

TEST(RequestRows, HoldPromptsPicturesAndTokens) {
  RunBuilder builder;
  builder.request(0, {5, -1, -1}, {0, 7});
  RequestRow& row = builder.run.request_rows[0];
  const Image image{2, 1, {255, 0, 0, 0, 255, 0}};
  const auto png = encode_png(image);
  ASSERT_TRUE(png);
  row.prompt = prompt_to_json({TextPart{"look"}, ImagePart{"two.png", *png}});
  const Result<RequestRows> rows = make_request_rows(BuiltView(builder));
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 1U);
  const RequestSheetRow& request = rows->front();
  ASSERT_EQ(request.prompt.size(), 2U);
  EXPECT_EQ(request.prompt[0].text, "look");
  ASSERT_TRUE(request.prompt[1].picture);
  EXPECT_EQ(*request.prompt[1].picture, image);
  EXPECT_EQ(request.text_tokens, 1U);
  EXPECT_EQ(request.image_tokens, 2U);
  ASSERT_EQ(request.output.size(), 2U);
  EXPECT_EQ(request.output[0].text, "!");
  EXPECT_FALSE(request.output[0].artefact) << "a token 0 that was really chosen";
}

TEST(RequestRows, DamagedPromptsAreSaidNotShown) {
  RunBuilder builder;
  builder.request(0, {5});
  builder.request(1, {5});
  builder.run.request_rows[0].prompt = "{";
  builder.run.request_rows[1].prompt = prompt_to_json({ImagePart{"broken.png", std::vector<std::byte>(9)}});
  const Result<RequestRows> rows = make_request_rows(BuiltView(builder));
  ASSERT_TRUE(rows);
  EXPECT_THAT(rows->at(0).prompt.at(0).text, HasSubstr("cannot be read"));
  EXPECT_TRUE(rows->at(1).prompt.at(0).image);
  EXPECT_FALSE(rows->at(1).prompt.at(0).picture);
}

}  // namespace
}  // namespace nanscope::gui::kv_map_test
