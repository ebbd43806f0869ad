#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/run/view_rows.h"
#include "gui/prepare/bits_sheet.h"
#include "gui/prepare/kv_map.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/requests_sheet.h"
#include "gui/prepare/run_difference.h"
#include "gui/prepare/run_map.h"
#include "gui/prepare/tensor_sheet.h"
#include "gui/selection.h"
#include "tests/unit/core/dump/memory_dump.h"

/// What the window prepares of dumps: several sequences in a step, padding, ranks, scales that are tensors, paged
/// caches.
namespace nanscope::gui::dump_views_test {
namespace {

using nanscope::testing::MemoryDump;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNotADouble = std::numeric_limits<double>::quiet_NaN();
const std::string kLayer = "model.layers.0.";

/// Two sequences of four and two tokens, the second padded to the left, through a norm and a projection of width 4.
/// The projection of token `bad` of the first sequence is NaN, and all that stands in the padding.
MemoryDump batch(std::int64_t bad) {
  MemoryDump dump;
  dump.add("attention_mask", "i64", {2, 4}, {1, 1, 1, 1, 0, 0, 1, 1});
  std::vector<double> normed(32, 1);
  std::vector<double> projected(32, 2);
  for (std::size_t i = 16; i < 24; ++i) normed[i] = projected[i] = kNotADouble;
  if (bad >= 0) projected[static_cast<std::size_t>(bad) * 4 + 1] = kNotADouble;
  dump.add(kLayer + "input_layernorm.output", "f32", {2, 4, 4}, normed);
  dump.add(kLayer + "self_attn.q_proj.output", "f32", {2, 4, 4}, projected);
  return dump;
}

struct Opened {
  explicit Opened(MemoryDump made) : dump(std::move(made)), run(dump.run()), rows(*run) {}
  RunMap map() {
    Result<RunMap> made = make_run_map(*run, rows);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : RunMap{};
  }
  /// Of the first step.
  KvMap kv_map() {
    EXPECT_FALSE(run->steps().empty());
    if (run->steps().empty()) return {};
    Facts facts(*run);
    Result<KvMap> made = make_kv_map(facts, run->steps().front());
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : KvMap{};
  }
  std::shared_ptr<const TensorSheet> sheet(const std::string& text) {
    const Result<Selection> selection = select(*run, text);
    EXPECT_TRUE(selection) << selection.error().message;
    auto made = make_tensor_sheet(*run, selection ? selection->place : Place{}, {}, nullptr);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *made : std::make_shared<const TensorSheet>();
  }

  MemoryDump dump;
  std::unique_ptr<DumpRun> run;
  ViewRows rows;
};

std::vector<std::string> bad_places(const RunMap& map) {
  std::vector<std::string> places;
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    for (std::int64_t column = 0; column < map.columns; ++column) {
      if (map.row(row)[static_cast<std::size_t>(column)] >= kInf)
        places.push_back(to_string(map.place_at(column, row)));
    }
  }
  return places;
}

TEST(MapOfABatch, HasAColumnForEachTokenOfARequestAndNoneForPadding) {
  Opened opened(batch(1));
  const RunMap map = opened.map();
  EXPECT_EQ(map.columns, 6);
  ASSERT_EQ(map.steps.size(), 2U);
  EXPECT_EQ(map.steps[0].row.request, 0);
  EXPECT_EQ(map.steps[1].row.request, 1);
  EXPECT_EQ(map.steps[1].tokens, 2);
  EXPECT_EQ(map.columns_of(map.steps[1]), std::pair(std::int64_t{0}, std::int64_t{6}));
  EXPECT_THAT(bad_places(map), ElementsAre("0/0/0/q_proj[1]")) << "padding is not bad, whatever it holds";
  for (std::int64_t column = 0; column < map.columns; ++column) {
    EXPECT_EQ(map.find_column(map.place_at(column, 0)), column);
  }
}

TEST(MapOfABatch, AnOpWorksForAllRequestsOfItsStep) {
  Opened opened(batch(-1));
  const RunMap map = opened.map();
  EXPECT_THAT(bad_places(map), ElementsAre());
  for (const MapStep& step : map.steps) {
    const Place place = map.place_of_op(step.first_op, step);
    EXPECT_EQ(place.request, step.row.request);
    EXPECT_EQ(map.find_op(place), step.first_op);
  }
}

TEST(MapOfABatch, BeginsWithTheWorstOfEachTensor) {
  Opened opened(batch(1));
  RunMapMaker maker(*opened.run, opened.rows, {});
  ASSERT_TRUE(maker.begin());
  EXPECT_FALSE(maker.map().exact);
  EXPECT_EQ(bad_places(maker.map()).size(), 12U) << "every token of both tensors";
  ASSERT_TRUE(maker.refine(RunMapMaker::Clock::time_point::max()));
  EXPECT_TRUE(maker.map().exact);
  EXPECT_EQ(bad_places(maker.map()).size(), 1U);
  EXPECT_EQ(maker.map().requests[1].worst, maker.map().steps[1].worst);
  EXPECT_LT(maker.map().requests[1].worst, kInf);
}

TEST(SheetOfABatch, ShowsPaddingAsWhatIsNobodys) {
  Opened opened(batch(1));
  const auto sheet = opened.sheet(kLayer + "self_attn.q_proj.output");
  EXPECT_EQ(sheet->rows, 8);
  EXPECT_EQ(sheet->nan, 1U) << "of the rows that are somebody's";
  EXPECT_EQ(sheet->cell(1, 1), kNan);
  for (const std::int64_t row : {4, 5}) {
    EXPECT_TRUE(sheet->subject.nobodys(row));
    EXPECT_EQ(sheet->cell(row, 0), kAbsent);
  }
  EXPECT_EQ(sheet->numbers.back().name, "padding rows");
  EXPECT_EQ(sheet->numbers.back().value, "2");
  EXPECT_EQ(to_string(element_place(sheet->subject, 6, 3)), "1/0/0/q_proj.q[0,3]");
  EXPECT_EQ(to_string(element_place(sheet->subject, 4, 3)), "0/0/0/q_proj.q") << "no token stands there";
  EXPECT_EQ(row_of(sheet->subject, *parse_place("1/0/0/q_proj.q[1,0]")), 7);
  EXPECT_EQ(row_of(sheet->subject, *parse_place("0/0/0/q_proj.q[1,0]")), 1);
}

TEST(SelectionInADump, TakesNamesAndPlaces) {
  Opened opened(batch(1));
  const Result<Selection> by_name = select(*opened.run, kLayer + "self_attn.q_proj.output");
  ASSERT_TRUE(by_name);
  EXPECT_EQ(to_string(by_name->place), "0/0/0/q_proj.q");
  const Result<Selection> by_place = select(*opened.run, "1/0/0/q_proj[1,2]");
  ASSERT_TRUE(by_place) << by_place.error().message;
  EXPECT_EQ(to_string(by_place->place), "1/0/0/q_proj.q[1,2]");
  EXPECT_EQ(by_place->element, 7 * 4 + 2);
}

TEST(BitsOfABatch, TakeTheWorstOfWhatIsSomebodys) {
  Opened opened(batch(-1));
  const Result<BitsSheet> sheet = make_bits_sheet(*opened.run, *parse_place("0/0/0/q_proj.q"));
  ASSERT_TRUE(sheet) << sheet.error().message;
  ASSERT_FALSE(sheet->stages.empty()) << sheet->notice;
  EXPECT_EQ(sheet->stage().anatomy.value, 2) << "not the NaN of the padding";
}

TEST(RequestsOfABatch, HaveTheTokensOfTheirRows) {
  Opened opened(batch(-1));
  const Result<RequestRows> rows = make_request_rows(*opened.run);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ(rows->at(0).text_tokens, 4U);
  EXPECT_EQ(rows->at(1).text_tokens, 2U);
}

/// Two passes of one request, with the ids that went in and came out.
MemoryDump asked_and_answered() {
  MemoryDump dump;
  const auto pass = [&](const std::string& name, std::int64_t first, std::vector<double> ids, double answer) {
    const auto rows = static_cast<std::int64_t>(ids.size());
    std::vector<double> positions;
    for (std::int64_t i = 0; i < rows; ++i) positions.push_back(static_cast<double>(first + i));
    dump.add(name + "input_ids", "i64", {rows}, std::move(ids));
    dump.add(name + "position_ids", "i64", {rows}, std::move(positions));
    dump.add(name + kLayer + "input_layernorm.output", "f32", {rows, 8});
    dump.add(name + "lm_head.output", "f32", {1, 16});
    dump.add(name + "next_token", "i64", {1}, {answer});
  };
  pass("request_0/step_0/", 0, {5, 9, 2}, 7);
  pass("request_0/step_1/", 3, {7}, 11);
  return dump;
}

TEST(RequestsOfADump, TellPromptAndAnswerAsTokenIds) {
  Opened opened(asked_and_answered());
  const Result<RequestRows> rows = make_request_rows(*opened.run);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 1U);
  const RequestSheetRow& row = rows->front();
  EXPECT_EQ(row.name, "request 0") << "not what its first step's folder is called";
  ASSERT_EQ(row.prompt.size(), 1U);
  EXPECT_EQ(row.prompt[0].text, "5 9 2");
  EXPECT_EQ(row.text_tokens, 3U);
  ASSERT_EQ(row.output.size(), 2U);
  EXPECT_EQ(row.output[0].id, 7);
  EXPECT_EQ(row.output[1].id, 11);
}

TEST(MapOfADump, TellsIntegersOfOneTokenAsThoseOfMany) {
  Opened opened(asked_and_answered());
  const RunMap map = opened.map();
  const auto row = map.find_row(-1, "argmax");
  ASSERT_TRUE(row);
  EXPECT_GE(map.row(*row).back(), kHealthyFirst) << "11 is no zero";
  const auto sheet = opened.sheet("request_0/step_1/next_token");
  const auto largest = std::find_if(sheet->numbers.begin(), sheet->numbers.end(),
                                    [](const auto& number) { return number.name == "largest |x|"; });
  ASSERT_NE(largest, sheet->numbers.end());
  EXPECT_EQ(largest->value, "11");
}

TEST(MapOfRanks, TellsStepsOfOneRequestApart) {
  MemoryDump dump;
  for (const std::string rank : {"rank0/", "rank1/"}) {
    dump.add("request_3/step_000/" + rank + kLayer + "input_layernorm.output", "f32", {2, 8},
             std::vector<double>(16, rank == "rank1/" ? kNotADouble : 1));
  }
  Opened opened(std::move(dump));
  const RunMap map = opened.map();
  ASSERT_EQ(map.steps.size(), 2U);
  EXPECT_THAT(bad_places(map), ElementsAre("@1/0/0/0/attn_norm[0]", "@1/0/0/0/attn_norm[1]"));
  const auto op = map.find_op(map.place_at(3, 0));
  ASSERT_TRUE(op);
  EXPECT_EQ(map.ops[*op].step, 1U);
}

/// Codes of an activation under one scale, the largest value `times` what the scale can hold.
MemoryDump quantised(double times) {
  MemoryDump dump;
  std::vector<double> values(64);
  std::vector<double> codes(64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(i) * times * 448 * 0.5 / 63;
    codes[i] = std::min(values[i] / 0.5, 448.0);
  }
  dump.add(kLayer + "mlp.down_proj.input", "f32", {8, 8}, values);
  dump.add(kLayer + "mlp.down_proj.input_scale", "f32", {1}, {0.5});
  dump.add(kLayer + "mlp.down_proj.input_codes", "e4m3", {8, 8}, codes);
  dump.add(kLayer + "mlp.down_proj.output", "f32", {8, 8});
  return dump;
}

TEST(LedgerOfADump, HoldsScalesThatAreTensors) {
  Opened opened(quantised(0.5));
  const Result<Ledger> ledger = make_ledger(*opened.run);
  ASSERT_TRUE(ledger) << ledger.error().message;
  ASSERT_EQ(ledger->entries.size(), 1U);
  const LedgerEntry& entry = ledger->entries[0];
  EXPECT_EQ(entry.kind, ScaledKind::activation);
  EXPECT_EQ(entry.row.scale, 0.5);
  EXPECT_EQ(entry.limit, 224);
  EXPECT_NEAR(entry.row.absmax, 112, 1e-6);
  EXPECT_NEAR(entry.row.headroom, 2, 1e-3);
  EXPECT_TRUE(ledger->below.empty());
  EXPECT_THAT(set_by(entry), HasSubstr("down_proj.input_scale"));
  EXPECT_TRUE(ledger->find({entry.target}));
}

TEST(LedgerOfADump, SeesWhatWasClippedAsTheMapAndTheSheetDo) {
  Opened opened(quantised(4));
  const Result<Ledger> ledger = make_ledger(*opened.run);
  ASSERT_TRUE(ledger) << ledger.error().message;
  ASSERT_EQ(ledger->below.size(), 1U);
  const LedgerEntry& entry = ledger->entries[ledger->below[0]];
  EXPECT_EQ(entry.health(), kClipped);
  EXPECT_GT(entry.clipped, 40U);
  const auto sheet = opened.sheet(kLayer + "mlp.down_proj.input_codes");
  EXPECT_EQ(sheet->clipped, entry.clipped);
  const RunMap map = opened.map();
  std::int64_t clipped = 0;
  for (const Cell cell : map.cells) clipped += cell == kClipped ? 1 : 0;
  EXPECT_EQ(clipped, 6) << "rows 2 to 7 hold values beyond 224";
}

/// The same without a scale: one for all, or one of each row's own.
MemoryDump unscaled(bool by_row) {
  MemoryDump dump;
  std::vector<double> values(64);
  std::vector<double> codes(64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 1 + static_cast<double>(i);
    const double scale = by_row ? std::ldexp(1.0, static_cast<int>(i / 8) - 6) : 0.25;
    codes[i] = std::min(values[i] / scale, 448.0);
  }
  dump.add(kLayer + "mlp.down_proj.input", "f32", {8, 8}, values);
  dump.add(kLayer + "mlp.down_proj.input_codes", "e4m3", {8, 8}, codes);
  dump.add(kLayer + "mlp.down_proj.output", "f32", {8, 8});
  return dump;
}

TEST(LedgerOfADump, TakesTheScaleThatCodesShow) {
  Opened opened(unscaled(false));
  const Result<Ledger> ledger = make_ledger(*opened.run);
  ASSERT_TRUE(ledger) << ledger.error().message;
  ASSERT_EQ(ledger->entries.size(), 1U);
  EXPECT_NEAR(ledger->entries[0].row.scale, 0.25, 0.01);
  EXPECT_THAT(set_by(ledger->entries[0]), HasSubstr("codes and source show"));
}

TEST(LedgerOfADump, ClaimsNothingWhereNoSingleScaleExplainsTheCodes) {
  Opened opened(unscaled(true));
  const Result<Ledger> ledger = make_ledger(*opened.run);
  ASSERT_TRUE(ledger) << ledger.error().message;
  ASSERT_EQ(ledger->entries.size(), 1U);
  EXPECT_TRUE(ledger->below.empty());
  EXPECT_FALSE(has_headroom(ledger->entries[0]));
  EXPECT_THAT(ledger->headline, HasSubstr("No scale was dumped"));
}

/// A weight of 4 x 8 codes in blocks of 2 x 4.
MemoryDump blocked_weight() {
  MemoryDump dump;
  std::vector<double> codes(32, 2);
  codes[2 * 8 + 5] = 448;  // the block of rows 2 and 3, channels 4 to 7
  codes[3 * 8 + 6] = 0;
  codes[7] = -96;  // the largest of rows 0 and 1 there
  dump.add(kLayer + "mlp.down_proj.input", "f32", {2, 8});
  dump.add(kLayer + "mlp.down_proj.weight", "e4m3", {4, 8}, codes);
  dump.add(kLayer + "mlp.down_proj.weight_scale_inv", "f32", {2, 2}, {0.5, 0.25, 0.125, 0.0625});
  dump.add(kLayer + "mlp.down_proj.output", "f32", {2, 4});
  return dump;
}

BitsSheet bits_of(Opened& opened, const std::string& name, std::int64_t row, std::int64_t channel) {
  const Result<Selection> selection = select(*opened.run, name);
  EXPECT_TRUE(selection) << selection.error().message;
  if (!selection) return {};
  const Subject subject = find_subject(*opened.run, selection->place).value();
  auto made = make_bits_sheet(*opened.run, element_place(subject, row, channel));
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : BitsSheet{};
}

TEST(BitsOfADump, ShowTheBlockOfAWeightItsScaleAndWhoSetIt) {
  Opened opened(blocked_weight());
  const BitsSheet code = bits_of(opened, kLayer + "mlp.down_proj.weight", 3, 4);
  ASSERT_EQ(code.stages.size(), 2U);
  EXPECT_EQ(code.stages[0].title, "Stored");
  EXPECT_TRUE(code.stages[0].selected);
  EXPECT_EQ(code.stages[0].anatomy.code, 0x40U);
  EXPECT_THAT(code.stages[0].next, HasSubstr("scale 0.0625 = 0.125"));
  EXPECT_EQ(code.stages[1].title, "Scale of the block");
  EXPECT_EQ(code.stages[1].anatomy.code, 0x3d800000U) << "its bits";
  EXPECT_EQ(code.block,
            "Row 2, channel 5 has the largest code, 448, of rows 2 to 3, channels 4 to 7, which share the scale; 1 of "
            "8 are 0");
  const BitsSheet scale = bits_of(opened, kLayer + "mlp.down_proj.weight_scale_inv", 0, 1);
  ASSERT_EQ(scale.stages.size(), 2U);
  EXPECT_TRUE(scale.stages[1].selected);
  EXPECT_EQ(scale.main, 1U);
  EXPECT_EQ(scale.stages[0].anatomy.value, -96) << "who set it";
  EXPECT_THAT(scale.block, HasSubstr("Row 0, channel 7 has the largest code, -96, of rows 0 to 1, channels 4 to 7"));
  EXPECT_THAT(scale.block, HasSubstr("the largest of the format, 448, is not used"));
}

TEST(LedgerOfADump, HoldsWeights) {
  MemoryDump dump;
  dump.add(kLayer + "mlp.down_proj.input", "f32", {2, 8});
  dump.add(kLayer + "mlp.down_proj.weight", "e4m3", {4, 8}, std::vector<double>(32, 224));
  dump.add(kLayer + "mlp.down_proj.weight_scale", "f32", {4, 1}, {0.5, 1, 2, 0.25});
  dump.add(kLayer + "mlp.down_proj.output", "f32", {2, 4});
  Opened opened(std::move(dump));
  const Result<Ledger> ledger = make_ledger(*opened.run);
  ASSERT_TRUE(ledger) << ledger.error().message;
  ASSERT_EQ(ledger->entries.size(), 1U);
  const LedgerEntry& entry = ledger->entries[0];
  EXPECT_EQ(entry.kind, ScaledKind::weight);
  EXPECT_EQ(entry.row.scale, 2) << "the largest of the rows'";
  EXPECT_EQ(entry.grid, "one a row");
  EXPECT_FALSE(has_headroom(entry)) << "a weight does not grow";
  EXPECT_EQ(entry.health(), kHealthyLast);
}

TEST(KvMapOfADump, ShowsTheSlotsThatABlockTableGives) {
  MemoryDump dump;
  dump.add("block_table", "i32", {1, 2}, {2, 0});
  dump.add("slot_mapping", "i64", {3}, {8, 9, 10});
  dump.add("seq_lens", "i32", {1}, {3});
  std::vector<double> pool(16 * 2, 1);
  pool[9 * 2] = kNotADouble;  // slot 9: the second token
  pool[5 * 2] = kNotADouble;  // nobody's
  dump.add(kLayer + "self_attn.attn.k", "f32", {3, 2});
  dump.add(kLayer + "self_attn.attn.k_cache", "f32", {4, 4, 1, 2}, pool);
  Opened opened(std::move(dump));
  const KvMap map = opened.kv_map();
  ASSERT_FALSE(map.blocks.empty());
  std::size_t live = 0;
  for (const KvBlock& block : map.blocks) {
    for (const KvSlot& slot : block.slots) live += slot.state == SlotState::live ? 1 : 0;
  }
  EXPECT_EQ(live, 3U);
  EXPECT_EQ(map.bad, 1U) << "slot 5 is nobody's";
}

/// A request of two new tokens behind a prefix of two that was dumped by nobody: slots 8 and 9 hold it.
TEST(KvMapOfADump, ShowsThePrefixThatSomebodyWroteWhoWasNotDumped) {
  MemoryDump dump;
  dump.add("block_table", "i32", {1, 2}, {2, 0});
  dump.add("slot_mapping", "i64", {2}, {10, 11});
  dump.add("seq_lens", "i32", {1}, {4});
  dump.add("position_ids", "i64", {2}, {2, 3});
  std::vector<double> pool(16 * 2, 1);
  pool[8 * 2] = kNotADouble;
  dump.add(kLayer + "self_attn.attn.k", "f32", {2, 2});
  dump.add(kLayer + "self_attn.attn.k_cache", "f32", {4, 4, 1, 2}, pool);
  Opened opened(std::move(dump));
  const KvMap map = opened.kv_map();
  const auto block = std::find_if(map.blocks.begin(), map.blocks.end(), [](const KvBlock& b) { return b.id == 2; });
  ASSERT_NE(block, map.blocks.end());
  EXPECT_EQ(block->slots[0].state, SlotState::shared);
  EXPECT_TRUE(block->slots[0].unknown && block->slots[0].read);
  EXPECT_EQ(block->slots[0].health, kNan);
  EXPECT_THAT(block->slots[0].words.front(), HasSubstr("not dumped"));
  EXPECT_EQ(block->slots[2].state, SlotState::live);
  EXPECT_EQ(map.bad, 1U);
}

TEST(KvMapOfADump, ShowsWhatACastClipped) {
  MemoryDump dump;
  dump.add("block_table", "i32", {1, 1}, {1});
  dump.add("slot_mapping", "i64", {2}, {4, 5});
  dump.add("seq_lens", "i32", {1}, {2});
  dump.add(kLayer + "self_attn.attn.k", "f32", {2, 2}, {1, 1, 1, 1});
  dump.add(kLayer + "self_attn.attn.k_cache", "f32", {2, 4, 1, 2}, std::vector<double>(16, 1));
  Opened opened(std::move(dump));
  ASSERT_FALSE(opened.run->steps().empty());
  Facts facts(*opened.run);
  TensorId pool = 0;
  for (const Tensor& tensor : opened.run->content(opened.run->steps().front().id).tensors) {
    if (tensor.axis == Axis::slots) pool = tensor.id;
  }
  const ClippedRows clipped{{pool, {5}}};
  const Result<KvMap> map = make_kv_map(facts, opened.run->steps().front(), {}, &clipped);
  ASSERT_TRUE(map) << map.error().message;
  ASSERT_FALSE(map->blocks.empty());
  EXPECT_LT(map->blocks[0].slots[0].health, kClipped);
  EXPECT_EQ(map->blocks[0].slots[1].health, kClipped);
}

TEST(DifferenceOfDumps, ReadsElementsWhereThereAreNoHashes) {
  Opened here(batch(-1));
  Opened there(batch(-1));
  Opened other(batch(1));
  const auto compare = [&](Opened& a, Opened& b) {
    RunDifferenceMaker maker(std::make_shared<const RunMap>(a.map()), *a.run, std::make_shared<const RunMap>(b.map()),
                             *b.run, {});
    while (!maker.done()) EXPECT_TRUE(maker.refine(RunDifferenceMaker::Clock::time_point::max()));
    return maker.take();
  };
  EXPECT_THAT(compare(here, there).words(), HasSubstr("have equal bits"));
  EXPECT_THAT(compare(here, other).words(), HasSubstr("1 worse there"));
}

}  // namespace
}  // namespace nanscope::gui::dump_views_test
