#include "instrument/diagnosis/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/run/recording_view.h"
#include "tests/unit/instrument/diagnosis/small_cascade.h"

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using testing::SmallCascade;

std::string drawn(const FrontRow& row) {
  std::string text = row.label + ":";
  for (const CellHealth cell : row.cells) text += " .cIN"[static_cast<std::size_t>(cell)];
  return text;
}

std::vector<std::string> drawn(const Front& front) {
  std::vector<std::string> rows;
  for (const FrontRow& row : front.rows) rows.push_back(drawn(row));
  return rows;
}

Result<Front> front_of(testing::RunBuilder& builder, std::int64_t request, std::int64_t step) {
  RecordingView run(builder.run, builder.tensors);
  return front(run, request, step);
}

TEST(Front, ShowsTheFrontCrossingTokensAndLayers) {
  SmallCascade made;
  const Result<Front> found = front_of(made.builder, 1, 0);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(drawn(*found), ElementsAre("embed:...", "layer 0:NN.", "layer 1:NNN", "head:NNN"));
  EXPECT_EQ(found->first_token, 0);
  EXPECT_FALSE(found->clean());
}

TEST(Front, ClippingShowsWhereNothingWorseIs) {
  testing::CascadeOptions options;
  options.one_pass = false;
  SmallCascade made(options);
  const Result<Front> found = front_of(made.builder, 1, 0);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(drawn(*found), ElementsAre("embed:...", "layer 0:cc.", "layer 1:...", "head:..."));
}

TEST(Front, ALayerHasARowAnOpAndKeysAreNoTokens) {
  SmallCascade made;
  RecordingView run(made.builder.run, made.builder.tensors);
  const Result<Front> found = front_of_layer(run, 1, 0, 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(drawn(*found),
              ElementsAre("attn_norm:NN.", "q_proj:NN.", "k_proj:NN.", "v_proj:NN.", "kv_store:NN.", "scores:NNN",
                          "softmax:NNN", "attn_mix:NNN", "inner_norm:NNN", "o_proj:NNN", "attn_residual:NNN"));
  EXPECT_EQ(found->rows[1].op, made.op_of("1/1/q_proj.out"));
}

TEST(Front, AHealthyStepIsClean) {
  SmallCascade made;
  const Result<Front> found = front_of(made.builder, 0, 0);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->clean());
}

TEST(Front, WithoutRowDetailTheWholeTensorSpeaks) {
  SmallCascade made;
  made.builder.run.detail.clear();
  const Result<Front> found = front_of(made.builder, 1, 0);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(drawn(found->rows[1]), "layer 0:NNN");
  EXPECT_FALSE(found->rows[1].detailed);
  EXPECT_TRUE(found->rows[0].detailed);
}

TEST(Front, PositionsOfPatchesAreTheirTokens) {
  testing::RunBuilder b;
  b.request(0, {1, -1, -1, 2});
  b.step(0, 0, 0, 4);
  b.op(-1, "patch_embed", "patch_embedding", {});
  b.output("out", {2, 2, 1, 1}, [](auto row, auto) { return row == 1 ? 1.0F / 0.0F : 1.0F; });
  const Result<Front> found = front_of(b, 0, 0);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(drawn(found->rows.at(0)), "embed: .I ");
}

TEST(Front, ImpossibleSizesOfADamagedRowAreRefusedOrIgnored) {
  testing::RunBuilder b;
  b.request(0, {1});
  b.step(0, 0, 0, 1);
  b.op(0, "q_proj", "gemm", {});
  b.output("out", {1, 2, 0, 1}, testing::constant(1));
  b.run.tensor_rows[0].tokens = std::int64_t{1} << 40;
  ASSERT_TRUE(front_of(b, 0, 0).has_value());
  b.run.step_rows[0].tokens = std::int64_t{1} << 40;
  EXPECT_FALSE(front_of(b, 0, 0).has_value());
}

TEST(Front, NoSuchStepIsAnError) {
  SmallCascade made;
  EXPECT_FALSE(front_of(made.builder, 9, 0).has_value());
  RecordingView run(made.builder.run, made.builder.tensors);
  EXPECT_FALSE(front_of_layer(run, 0, 5, 0).has_value());
}

}  // namespace
}  // namespace nanscope
