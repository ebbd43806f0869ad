#include "gui/prepare/story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanscope::gui {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Where at(std::int64_t op, const std::string& name) {
  Where where;
  where.request = 2;
  where.step = 0;
  where.layer = 1;
  where.op = name;
  where.role = "out";
  where.op_id = op;
  where.tensor_id = op;
  where.tokens = Range{7, 9};
  where.channels = Range{3, 4};
  return where;
}

Event event(const std::string& kind, const Where& where, std::optional<std::size_t> because = {},
            std::optional<std::size_t> fault = {}) {
  return {kind, where, "", "what happened", {{"rows_looked_at", std::int64_t{20}}}, because, fault};
}

Fault fault(const std::string& fault_class, const Where& where, bool breaks = false) {
  Fault made;
  made.fault_class = fault_class;
  made.where = where;
  made.tensor = tensor_text(where);
  made.summary = "why " + fault_class;
  made.fix = "how " + fault_class;
  made.breaks = breaks;
  made.ops = {where.op_id};
  return made;
}

/// A scale clips, a norm makes NaN of it, a token is chosen from NaN; beside that a weight is bad.
Diagnosis cascade() {
  Diagnosis diagnosis;
  diagnosis.faults = {fault("kv-scale-locked", at(5, "kv_store")), fault("weight-corruption", at(6, "o_proj")),
                      fault("variance-collapse", at(8, "inner_norm"), true)};
  diagnosis.faults[2].because = 0;
  diagnosis.root_cause = 0;
  diagnosis.chain = {event("kv-scale-locked", at(5, "kv_store"), {}, 0),
                     event("weight-corruption", at(6, "o_proj"), {}, 1),
                     event("variance-collapse", at(8, "inner_norm"), 0, 2), event("token", at(9, "argmax"), 2)};
  return diagnosis;
}

TEST(Story, TellsTheChainWithItsCauses) {
  const Story story = make_story(cascade());
  ASSERT_EQ(story.links.size(), 4U);
  EXPECT_EQ(story.links[0].place, "2/0/1/kv_store.out[7,3]");
  ASSERT_TRUE(story.links[0].target);
  EXPECT_EQ(to_string(story.links[0].target->place), story.links[0].place);
  EXPECT_THAT(story.links[0].evidence, ElementsAre(std::pair(std::string("rows looked at"), std::string("20"))));
  EXPECT_EQ(story.links[0].because, 0);
  EXPECT_EQ(story.links[1].because, 0) << "a root of its own";
  EXPECT_EQ(story.links[2].because, 1);
  EXPECT_EQ(story.links[3].because, 3);
  EXPECT_EQ(story.links[2].fault, 2U);
  EXPECT_FALSE(story.links[3].fault);
}

TEST(Story, ColoursTheRootThenDamageThenNaN) {
  const Story story = make_story(cascade());
  std::vector<LinkTone> tones;
  for (const StoryLink& link : story.links) tones.push_back(link.tone);
  EXPECT_THAT(tones, ElementsAre(LinkTone::cause, LinkTone::damage, LinkTone::nan, LinkTone::nan));
}

TEST(Story, WithoutAChainTheFaultsAreTold) {
  Diagnosis diagnosis = cascade();
  diagnosis.chain.clear();
  const Story story = make_story(diagnosis);
  ASSERT_EQ(story.links.size(), 3U);
  EXPECT_EQ(story.links[2].title, "variance-collapse");
  EXPECT_EQ(story.links[2].because, 1);
  EXPECT_EQ(story.links[1].because, 0);
}

TEST(Story, EventsAreTheLinksInTheirOrderWhereverTheyAre) {
  Diagnosis diagnosis = cascade();
  diagnosis.chain.push_back(event("nan in", at(9, "argmax"), 3));
  diagnosis.chain.push_back(event("nan again", at(6, "argmax"), 3));
  const Story story = make_story(diagnosis);
  std::vector<int> links;
  for (const StoryEvent& event : story.events) links.push_back(event.target.link);
  EXPECT_THAT(links, ElementsAre(1, 2, 3, 4, 5, 6));
  for (const StoryLink& link : story.links) EXPECT_EQ(link.target->link, link.number);
}

TEST(Story, FaultsThatNoLinkTellsAreEventsAfterThem) {
  Diagnosis diagnosis = cascade();
  diagnosis.chain.pop_back();
  Fault other = diagnosis.faults.front();
  other.fault_class = "another";
  diagnosis.faults.push_back(other);
  const Story story = make_story(diagnosis);
  EXPECT_EQ(story.events.back().title, "another");
  EXPECT_EQ(story.events.back().target.link, 0);
}

TEST(Story, OriginIsWhereItBreaksElseTheCause) {
  Diagnosis diagnosis = cascade();
  Story story = make_story(diagnosis);
  EXPECT_EQ(story.origin->place.op, "inner_norm");
  EXPECT_EQ(story.headline, "kv-scale-locked");
  EXPECT_EQ(story.cause, "why kv-scale-locked");
  EXPECT_EQ(story.fix, "how kv-scale-locked");
  diagnosis.faults[2].breaks = false;
  EXPECT_EQ(make_story(diagnosis).origin->place.op, "kv_store");
}

TEST(Story, NamesTensorsAsTheirProducerDid) {
  Diagnosis diagnosis = cascade();
  diagnosis.chain[0].tensor = "step_0/model.layers.1.v_codes";
  diagnosis.chain[0].where.rank = 3;
  const Story story = make_story(diagnosis);
  EXPECT_EQ(story.links[0].place, "step_0/model.layers.1.v_codes[7,3]");
  EXPECT_EQ(to_string(story.links[0].target->place), "@3/2/0/1/kv_store.out[7,3]");
}

TEST(Story, TellsThreeKindsOfChecksApart) {
  Diagnosis diagnosis;
  diagnosis.checks = {{"saturation", Checked::excluded, "4096 codes, none at the top"},
                      {"kv-scale-locked", Checked::not_in_dump, "capture the scales"},
                      {"wrong-result", Checked::not_looked_at, "the search was stopped"},
                      {"invalid-op", Checked::found, ""}};
  const Story story = make_story(diagnosis);
  ASSERT_EQ(story.excluded.size(), 1U);
  EXPECT_EQ(story.excluded[0].text, "4096 codes, none at the top");
  ASSERT_EQ(story.not_in_dump.size(), 1U);
  EXPECT_EQ(story.not_in_dump[0].fault_class, "kv-scale-locked");
  ASSERT_EQ(story.not_looked_at.size(), 1U);
}

TEST(Story, StatesItsCoverage) {
  Diagnosis diagnosis;
  diagnosis.recomputation = {40, 8, 1000, 998, {{"layer.0.attn", "its mask was not dumped"}}};
  diagnosis.coverage.outputs = 48;
  diagnosis.coverage.judged = 40;
  diagnosis.coverage.gaps = {{"its mask was not dumped", 8, "layer.0.attn"}};
  diagnosis.notes = {{"blob", "no name that is known"}};
  diagnosis.warnings.push_back({"headroom-falling", at(5, "kv_store"), "", {}, "it falls", "look", 2});
  const Story story = make_story(diagnosis);
  ASSERT_EQ(story.coverage.size(), 2U);
  EXPECT_EQ(story.coverage[0], "40 of 48 outputs recomputed, 99.8 % of 1000 elements explained by rounding");
  EXPECT_THAT(story.coverage[1], HasSubstr("8 (layer.0.attn): its mask was not dumped"));
  EXPECT_EQ(story.notes.size(), 1U);
  ASSERT_EQ(story.warnings.size(), 1U);
  EXPECT_EQ(story.warnings[0].place, "2/0/1/kv_store.out[7,3]");
}

TEST(Story, CleanRunSaysSo) {
  Diagnosis diagnosis;
  diagnosis.spread.tokens = 3;
  diagnosis.coverage.outputs = diagnosis.coverage.judged = 8;
  const Story story = make_story(diagnosis);
  EXPECT_TRUE(story.healthy());
  EXPECT_EQ(story.headline, "Clean, every output was recomputed and explained, 3 tokens");
  EXPECT_FALSE(story.origin);
  EXPECT_TRUE(story.cause.empty());
  EXPECT_THAT(story.links, IsEmpty());
}

TEST(Story, AnInterruptedRecordingIsNotCalledClean) {
  Diagnosis diagnosis;
  diagnosis.completeness = {10, 40, true, "2/0/1/norm"};
  diagnosis.spread.tokens = 3;
  diagnosis.coverage.outputs = diagnosis.coverage.judged = 10;
  const Story story = make_story(diagnosis);
  EXPECT_THAT(story.headline, HasSubstr("the recording ended before the run did"));
  ASSERT_GE(story.coverage.size(), 1U);
  EXPECT_THAT(story.coverage, ::testing::Contains("The recording ends at 2/0/1/norm, after 10 of 40 ops"));
}

}  // namespace
}  // namespace nanscope::gui
