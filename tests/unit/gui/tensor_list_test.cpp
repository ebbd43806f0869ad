#include "gui/prepare/tensor_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/run/view_rows.h"
#include "gui/export/tables.h"
#include "tests/unit/core/dump/memory_dump.h"
#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::constant;
using nanscope::testing::MemoryDump;
using nanscope::testing::RunBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kEndless = std::numeric_limits<float>::infinity();

ScaleRow foreign_scale(double scale) {
  ScaleRow row;
  row.policy = "locked";
  row.scale = scale;
  row.source = ScaleSource::calibrated;
  row.calibrated_step = 99;
  return row;
}

/// Two steps of one layer. In the second, v is clipped under a scale of another step, q is close to what f16 holds,
/// scores hide keys by -Inf, and the head is NaN.
RunBuilder mixed_run() {
  RunBuilder builder;
  builder.request(0, {5, 6}, {7});
  for (std::int64_t step = 0; step < 2; ++step) {
    const bool late = step == 1;
    builder.step(0, step, 2 * step, 2);
    builder.op(0, "q_proj", "gemm", {});
    builder.output("out", {2, 4, 2 * step, 1}, constant(late ? 60000.0F : 2.0F), Format::f16);
    builder.op(0, "v_proj", "gemm", {});
    const std::int64_t v = builder.output("out", {2, 4, 2 * step, 1}, constant(late ? 40.0F : 4.0F));
    builder.op(0, "kv_store", "kv_store", {{"v", v}});
    builder.store("v", v, foreign_scale(0.05));
    builder.op(0, "scores", "scores", {});
    builder.output("scores", {2, 4, 2 * step, 1},
                   [](std::int64_t, std::int64_t c) { return c > 1 ? -kEndless : 1.0F; });
    builder.op(-1, "lm_head", "gemm", {});
    builder.output("logits", {2, 2, 2 * step, 1}, constant(late ? kNoNumber : 3.0F), Format::bf16);
  }
  return builder;
}

std::shared_ptr<const TensorIndex> index_of(RunBuilder& builder) {
  Result<TensorIndex> index = make_tensor_index(BuiltView(builder), builder.run, nullptr, {});
  EXPECT_TRUE(index) << index.error().message;
  return std::make_shared<const TensorIndex>(index ? *std::move(index) : TensorIndex{});
}

std::vector<std::string> shown(const std::shared_ptr<const TensorIndex>& index, const std::string& text,
                               TensorOrder order = {}) {
  const Result<TensorQuery> query = parse_tensor_query(text);
  EXPECT_TRUE(query) << query.error().message;
  if (!query) return {};
  const TensorList list = make_tensor_list(index, *query, order);
  std::vector<std::string> places;
  for (const std::uint32_t i : list.shown) places.push_back(list.text(i, TensorColumn::place));
  return places;
}

TEST(TensorList, BeginsWithTheWorstAndGoesOnInTheOrderOfTheRun) {
  RunBuilder builder = mixed_run();
  const auto index = index_of(builder);
  ASSERT_EQ(index->size(), 10U);
  EXPECT_THAT(shown(index, ""),
              ElementsAre("0/1/-/lm_head.logits", "0/1/0/kv_store.v_codes", "0/1/0/q_proj.out", "0/0/0/q_proj.out",
                          "0/0/0/v_proj.out", "0/0/0/kv_store.v_codes", "0/0/0/scores.scores", "0/0/-/lm_head.logits",
                          "0/1/0/v_proj.out", "0/1/0/scores.scores"));
}

TEST(TensorList, SaysWhatIsInATensor) {
  RunBuilder builder = mixed_run();
  const auto index = index_of(builder);
  const TensorList list = make_tensor_list(index, {}, {});
  const auto text = [&](std::size_t row, TensorColumn column) { return list.text(list.shown[row], column); };
  EXPECT_EQ(text(0, TensorColumn::nan), "4");
  EXPECT_EQ(text(0, TensorColumn::layer), "\u2013");
  EXPECT_EQ(text(0, TensorColumn::format), "bf16");
  EXPECT_EQ(text(1, TensorColumn::clipped), "8");
  EXPECT_EQ(text(1, TensorColumn::largest), "8");
  EXPECT_EQ(text(1, TensorColumn::shape), "2 \u00D7 4");
  EXPECT_EQ(text(2, TensorColumn::headroom), "1.09");
  EXPECT_EQ(text(2, TensorColumn::absmax), "6e+04");
  EXPECT_EQ(text(9, TensorColumn::inf), "") << "-Inf hides keys";
  EXPECT_THAT(list.of_kind, ElementsAre(1, 0, 1, 2)) << "clipped codes have low headroom, too";
}

TEST(TensorList, TakesTheHeadroomOfClippedCodesFromWhatTheyWereMadeOf) {
  RunBuilder builder = mixed_run();
  builder.run.scale_rows.back().headroom = 0.56;
  builder.run.scale_rows.back().absmax = 40;
  const auto index = index_of(builder);
  const TensorList list = make_tensor_list(index, *parse_tensor_query("clipped"), {});
  ASSERT_EQ(list.shown.size(), 1U);
  EXPECT_EQ(list.text(list.shown[0], TensorColumn::headroom), "0.56");
}

TEST(TensorList, KnowsNoHeadroomOfCodesUnderAScaleOfTheirOwn) {
  RunBuilder builder = mixed_run();
  for (ScaleRow& row : builder.run.scale_rows) row.calibrated_step = row.step;
  const auto index = index_of(builder);
  EXPECT_THAT(shown(index, "headroom<4"), ElementsAre("0/1/0/q_proj.out"));
}

TEST(TensorList, IsFilteredByWordsAndFields) {
  RunBuilder builder = mixed_run();
  const auto index = index_of(builder);
  EXPECT_THAT(shown(index, "nan clipped"), ElementsAre("0/1/-/lm_head.logits", "0/1/0/kv_store.v_codes"));
  EXPECT_THAT(shown(index, "V_PROJ step:1"), ElementsAre("0/1/0/v_proj.out"));
  EXPECT_THAT(shown(index, "layer:0 dtype:fp16 absmax<=2"), ElementsAre("0/0/0/q_proj.out"));
  EXPECT_THAT(shown(index, "headroom<1.25 role:out"), ElementsAre("0/1/0/q_proj.out"));
  EXPECT_THAT(shown(index, "role:logits step>=1"), ElementsAre("0/1/-/lm_head.logits"));
  EXPECT_THAT(shown(index, "proj \"0/1\""), ElementsAre("0/1/0/q_proj.out", "0/1/0/v_proj.out"));
  EXPECT_THAT(shown(index, "nothing"), IsEmpty());
  EXPECT_EQ(shown(index, "  ").size(), 10U);
}

TEST(TensorList, SaysWhatAQueryGotWrong) {
  const auto error = [](const char* text) {
    const Result<TensorQuery> query = parse_tensor_query(text);
    return query ? std::string() : query.error().message;
  };
  EXPECT_EQ(error("headroom<x"), "headroom is compared with a number, and 'x' is none");
  EXPECT_EQ(error("headroom<"), "headroom is compared with a number, such as headroom<4");
  EXPECT_EQ(error("dtype:bf17"), "there is no dtype 'bf17'");
  EXPECT_THAT(error("colour:red"), HasSubstr("there is no field 'colour'; there are role, dtype, headroom"));
  EXPECT_EQ(error("role<out"), "role is a word: role:out");
  EXPECT_EQ(error("role:"), "role which? such as role:out");
  EXPECT_EQ(error("\"colour:red\""), "") << "what stands between quotation marks is looked for as it is";
}

TEST(TensorList, IsSortedByAColumnAndBack) {
  RunBuilder builder = mixed_run();
  const auto index = index_of(builder);
  EXPECT_THAT(shown(index, "role:out", {TensorColumn::absmax, false}),
              ElementsAre("0/1/0/q_proj.out", "0/1/0/v_proj.out", "0/0/0/v_proj.out", "0/0/0/q_proj.out"));
  EXPECT_THAT(shown(index, "role:out", {TensorColumn::absmax, true}),
              ElementsAre("0/0/0/q_proj.out", "0/0/0/v_proj.out", "0/1/0/v_proj.out", "0/1/0/q_proj.out"));
  EXPECT_THAT(shown(index, "role:out", {TensorColumn::format, false}),
              ElementsAre("0/0/0/q_proj.out", "0/1/0/q_proj.out", "0/0/0/v_proj.out", "0/1/0/v_proj.out"));
  EXPECT_THAT(shown(index, "role:out", {TensorColumn::place, true}),
              ElementsAre("0/1/0/v_proj.out", "0/1/0/q_proj.out", "0/0/0/v_proj.out", "0/0/0/q_proj.out"));
  EXPECT_EQ(shown(index, "", {TensorColumn::headroom, false}).front(), "0/1/0/kv_store.v_codes");
}

TEST(TensorList, KnowsNoHeadroomOfIds) {
  RunBuilder builder;
  builder.request(0, {5}, {7});
  builder.step(0, 0, 0, 1);
  builder.op(-1, "argmax", "argmax", {});
  builder.output("token", {1, 1, 0, 1}, constant(2.0e9F), Format::i32);
  const auto index = index_of(builder);
  EXPECT_EQ(index->headroom[0], 0);
  EXPECT_LT(index->cell[0], kLowHeadroom);
  EXPECT_EQ(index->absmax[0], 2.0e9F);
}

TEST(TensorList, WritesLargeCountsShort) {
  auto index = std::make_shared<TensorIndex>();
  index->count = {1, 2, 3};
  index->counts = {{}, {1'234'567, 0, 0, 0, 0}, {123'456'789, 0, 0, 0, 0}, {12'345'678'901, 0, 0, 0, 0}};
  const TensorList list{index, {}, {}, {}};
  EXPECT_EQ(list.text(0, TensorColumn::nan), "1234567");
  EXPECT_EQ(list.text(1, TensorColumn::nan), "123.5M");
  EXPECT_EQ(list.text(2, TensorColumn::nan), "12.35G");
}

TEST(TensorList, FindsTheSelectedTensor) {
  RunBuilder builder = mixed_run();
  const auto index = index_of(builder);
  BuiltView view(builder);
  const TensorList all = make_tensor_list(index, {}, {});
  const auto found = find_in(all, view, *parse_place("0/1/0/kv_store"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at, 1U);
  const TensorList nan = make_tensor_list(index, *parse_tensor_query("nan"), {});
  const auto hidden = find_in(nan, view, *parse_place("0/1/0/kv_store"));
  ASSERT_TRUE(hidden);
  EXPECT_FALSE(hidden->at);
  EXPECT_FALSE(find_in(all, view, Place{}));
}

TEST(TensorList, TakesAWordOfAKindAndGivesItBack) {
  EXPECT_EQ(toggled("", TensorKind::nan), "nan");
  EXPECT_EQ(toggled("layer:3", TensorKind::low), "layer:3 low");
  EXPECT_EQ(toggled("layer:3 low", TensorKind::low), "layer:3");
  EXPECT_EQ(toggled("nan NaN clipped", TensorKind::nan), "clipped");
  EXPECT_EQ(toggled("\"nan\"", TensorKind::nan), "\"nan\" nan");
}

TEST(TensorList, HasATensorARowInATable) {
  RunBuilder builder = mixed_run();
  const Table table = table_of(make_tensor_list(index_of(builder), *parse_tensor_query("clipped"), {}));
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.header.size(), table.rows[0].size());
  EXPECT_THAT(std::vector(table.rows[0].begin(), table.rows[0].begin() + 10),
              ElementsAre("0/1/0/kv_store.v_codes", "", "0", "v_codes", "e4m3", "2", "4", "0", "0", "8"));
}

TEST(TensorList, OfADumpHasNamesAndLeavesOutWhatStandsInThePadding) {
  MemoryDump dump;
  dump.add("attention_mask", "i64", {2, 4}, {1, 1, 1, 1, 0, 0, 1, 1});
  std::vector<double> normed(32, 1);
  for (std::size_t i = 16; i < 24; ++i) normed[i] = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> projected = normed;
  projected[5] = std::numeric_limits<double>::quiet_NaN();
  dump.add("model.layers.0.input_layernorm.output", "f32", {2, 4, 4}, normed);
  dump.add("model.layers.0.self_attn.q_proj.output", "f32", {2, 4, 4}, projected);
  const std::unique_ptr<DumpRun> run = dump.run();
  ViewRows rows(*run);
  Result<TensorIndex> made = make_tensor_index(*run, rows, nullptr, {});
  ASSERT_TRUE(made) << made.error().message;
  const auto index = std::make_shared<const TensorIndex>(*std::move(made));
  EXPECT_THAT(shown(index, "nan"), ElementsAre("model.layers.0.self_attn.q_proj.output"));
  EXPECT_THAT(shown(index, "layernorm"), ElementsAre("model.layers.0.input_layernorm.output"));
  const TensorList list = make_tensor_list(index, *parse_tensor_query("nan"), {});
  EXPECT_EQ(list.text(list.shown.at(0), TensorColumn::nan), "1");
}

TEST(TensorList, OfADumpSaysWhichRowsItsCastsClipped) {
  RunBuilder builder = mixed_run();
  const ClippedRows clipped{{1, {0}}};
  const Result<TensorIndex> index = make_tensor_index(BuiltView(builder), builder.run, &clipped, {});
  ASSERT_TRUE(index);
  EXPECT_EQ(index->cell[0], kClipped);
  EXPECT_EQ(index->counts_of(0).clipped_rows, 1U);
}

}  // namespace
}  // namespace nanscope::gui
