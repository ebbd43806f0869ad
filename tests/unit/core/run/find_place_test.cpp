#include "core/run/find_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/run/memory_run.h"

namespace nanscope {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A dump of two ranks. Its prefill holds two sequences: rows 0 to 3 are tokens 0 to 3 of request 0, rows 4 to 6 tokens
/// 0 to 2 of request 4. A decode step of request 0 follows, of rank 0 alone.
class DumpedRun final : public MemoryRun {
 public:
  DumpedRun() {
    for (const std::int64_t rank : {0, 1}) {
      Step step;
      step.id = rank + 1;
      step.rank = rank;
      step.rows = 7;
      step.spans = {{0, 0, 0, 4, 0, 4}, {4, 0, 4, 3, 0, 3}};
      steps_.push_back(step);
    }
    Step decode;
    decode.id = 3;
    decode.rows = 1;
    decode.spans = {{0, 1, 0, 1, 4, 5}};
    steps_.push_back(decode);
    begin(kBeforeSteps);
    add_op("lm_head_weight", {}, OpKind::parameter);
    add_tensor("weight", "weights/lm_head.weight", 16, 8, Axis::none);
    for (const std::int64_t rank : {0, 1}) {
      begin(rank + 1);
      add_layers("rank_" + std::to_string(rank) + "/step_0/", 7);
    }
    begin(3);
    add_layers("rank_0/step_1/", 1);
  }

 protected:
  std::vector<Health> read_rows(const Tensor&) override { return {}; }
  Fact<TensorData> read_elements(const Tensor&, std::int64_t, std::int64_t) override { return absent("not here"); }

 private:
  void add_op(const std::string& name, std::optional<std::int64_t> layer, OpKind kind) {
    Op op;
    op.name = name;
    op.layer = layer;
    op.kind = kind;
    add(std::move(op));
  }
  Tensor& add_tensor(const std::string& role, const std::string& name, std::int64_t tokens, std::int64_t channels,
                     Axis axis = Axis::rows) {
    Tensor tensor;
    tensor.role = role;
    tensor.name = name;
    tensor.tokens = tokens;
    tensor.channels = channels;
    tensor.axis = axis;
    return add(std::move(tensor));
  }
  void add_layers(const std::string& folder, std::int64_t rows) {
    for (const std::int64_t layer : {0, 1}) {
      const std::string prefix = folder + "model.layers." + std::to_string(layer) + ".";
      add_op("q_proj", layer, OpKind::gemm);
      add_tensor("out", prefix + "qkv_proj.output", rows, 8);
      add_op("k_proj", layer, OpKind::gemm);
      add_tensor("out", prefix + "qkv_proj.output", rows, 4).health.nan = layer == 1 ? 1 : 0;
      add_op("mlp_norm", layer, OpKind::layer_norm);
      add_tensor("out", prefix + "norm.output[0]", rows, 8);
      add_tensor("stats", "", rows, 2).known = false;
    }
    add_op("lm_head", {}, OpKind::gemm);
    add_tensor("logits", folder + "lm_head.output", rows, 16);
  }
};

class FindPlace : public testing::Test {
 protected:
  std::string found(const std::string& text) {
    const Result<FoundPlace> place = find_place(run_, text);
    if (!place) return place.error().message;
    std::string out = place_of(run_, *place->tensor);
    if (place->row) out += " row " + std::to_string(*place->row);
    if (place->channel) out += " channel " + std::to_string(*place->channel);
    return out;
  }

  DumpedRun run_;
};

TEST_F(FindPlace, ByTheWholeNameOrItsEnd) {
  EXPECT_EQ(found("rank_0/step_0/lm_head.output"), "0/0/-/lm_head.logits");
  EXPECT_EQ(found("rank_1/step_0/lm_head.output[5,3]"), "@1/0/0/-/lm_head.logits row 5 channel 3");
  EXPECT_EQ(found("step_1/lm_head.output"), "0/1/-/lm_head.logits row 0") << "there is but one row";
  EXPECT_EQ(found("lm_head.weight"), "-/lm_head_weight.weight");
  EXPECT_THAT(found("head.weight"), HasSubstr("no tensor is called so; near: ")) << "no separator is before it";
}

TEST_F(FindPlace, BracketsMayBePartOfAName) {
  EXPECT_EQ(found("rank_0/step_0/model.layers.0.norm.output[0]"), "0/0/0/mlp_norm.out");
  EXPECT_EQ(found("rank_0/step_0/model.layers.0.norm.output[0][2,1]"), "0/0/0/mlp_norm.out row 2 channel 1");
}

TEST_F(FindPlace, AChannelOfAFusedProjectionIsOneOfItsPart) {
  EXPECT_EQ(found("rank_0/step_0/model.layers.0.qkv_proj.output[1,7]"), "0/0/0/q_proj.out row 1 channel 7");
  EXPECT_EQ(found("rank_0/step_0/model.layers.0.qkv_proj.output[1,9]"), "0/0/0/k_proj.out row 1 channel 1");
  EXPECT_EQ(found("rank_0/step_0/model.layers.0.qkv_proj.output"), "0/0/0/q_proj.out");
  EXPECT_EQ(found("rank_0/step_0/model.layers.1.qkv_proj.output"), "0/0/1/k_proj.out") << "the part that is bad";
  EXPECT_THAT(found("rank_0/step_0/model.layers.0.qkv_proj.output[1,12]"), HasSubstr("channel 12 is outside of it"));
}

TEST_F(FindPlace, WhatSeveralTensorsAreCalledIsListed) {
  EXPECT_THAT(found("lm_head.output"),
              AllOf(HasSubstr("place 'lm_head.output': matches several: "), HasSubstr("rank_0/step_0/lm_head.output"),
                    HasSubstr("rank_0/step_1/lm_head.output"), HasSubstr("rank_1/step_0/lm_head.output")));
  EXPECT_THAT(found("0/0//q_proj"), AllOf(HasSubstr("matches several"), HasSubstr("layers.0.qkv_proj.output"),
                                          HasSubstr("layers.1.qkv_proj.output")));
}

TEST_F(FindPlace, PlacesGoByPositionAndRequest) {
  EXPECT_EQ(found("4/0/1/q_proj.out[2,5]"), "0/0/1/q_proj.out row 6 channel 5");
  EXPECT_EQ(found("0/0/1/q_proj.out[2,5]"), "0/0/1/q_proj.out row 2 channel 5");
  EXPECT_EQ(found("/0/1/q_proj.out[3,5]"), "0/0/1/q_proj.out row 3 channel 5") << "request 4 has no token 3";
  EXPECT_THAT(found("/0/1/q_proj.out[2,5]"), HasSubstr("2 sequences have a token 2: say which request"));
  EXPECT_EQ(found("0/1/1/q_proj.out[4,5]"), "0/1/1/q_proj.out row 0 channel 5");
  EXPECT_EQ(found("0/1/1/q_proj.out[0,5]"), "0/1/1/q_proj.out row 0 channel 5") << "a row, no token 0 is there";
  EXPECT_THAT(found("0/1/1/q_proj.out[5,5]"), HasSubstr("token 5 is outside of it: it holds tokens 4 to 4"));
  EXPECT_THAT(found("4/0/1/q_proj.out[7,5]"), HasSubstr("row 7 is outside of it: it has 7 rows"));
}

TEST_F(FindPlace, BehindANameTheTokenOfSeveralSequencesIsARow) {
  EXPECT_EQ(found("rank_0/step_0/lm_head.output[2,0]"), "0/0/-/lm_head.logits row 2 channel 0");
  EXPECT_EQ(found("rank_0/step_1/lm_head.output[4,0]"), "0/1/-/lm_head.logits row 0 channel 0");
}

TEST_F(FindPlace, ARankIsNamedOrIsTheFirst) {
  EXPECT_EQ(found("@1/0/0/0/k_proj"), "@1/0/0/0/k_proj.out");
  EXPECT_EQ(found("0/0/0/k_proj"), "0/0/0/k_proj.out");
  EXPECT_THAT(found("@2/0/0/0/k_proj"), HasSubstr("there is no rank 2; there are: 0, 1"));
  EXPECT_THAT(found("@1/0/1/0/k_proj"), HasSubstr("there is no step 1, the last one is 0"));
}

TEST_F(FindPlace, WhatWasNotDumpedIsNotFound) {
  EXPECT_THAT(found("0/0/0/mlp_norm.stats"), HasSubstr("the op has other outputs: 0/0/0/mlp_norm.out"));
  EXPECT_THAT(found("0/0/0/mlp_nrom"), HasSubstr("no op or role is called 'mlp_nrom'; near: 'mlp_norm'"));
  EXPECT_THAT(found("7/0/0/mlp_norm"), HasSubstr("there is no request 7"));
  EXPECT_THAT(found("lm_haed.output"), AllOf(HasSubstr("no tensor is called so; near: "), HasSubstr("lm_head.output'"),
                                             Not(HasSubstr("offset"))));
}

TEST_F(FindPlace, EveryTensorIsFoundByItsPlace) {
  for (const Step& step : run_.steps()) {
    for (const Tensor& tensor : run_.content(step.id).tensors) {
      if (!tensor.known) continue;
      const Result<FoundPlace> place = find_place(run_, place_of(run_, tensor));
      ASSERT_TRUE(place) << place.error().message;
      EXPECT_EQ(place->tensor->id, tensor.id);
    }
  }
}

}  // namespace
}  // namespace nanscope
