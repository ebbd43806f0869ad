// Impossible arguments are refused before anything runs, in one line that names the op and the tensor.
#include <gtest/gtest.h>

#include <string>

#include "kernels/ops/absmax.h"
#include "kernels/ops/activation_gradient.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/argmax.h"
#include "kernels/ops/attention_mix_gradient.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/cast.h"
#include "kernels/ops/column_sum.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/cross_entropy_gradient.h"
#include "kernels/ops/dot_products.h"
#include "kernels/ops/embedding_gradient.h"
#include "kernels/ops/expert_mix_gradient.h"
#include "kernels/ops/gated_add_gradient.h"
#include "kernels/ops/health_scan.h"
#include "kernels/ops/kv_read.h"
#include "kernels/ops/kv_store.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/layer_norm_gradient.h"
#include "kernels/ops/layer_norm_weight_gradient.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/route_gradient.h"
#include "kernels/ops/softcap_gradient.h"
#include "kernels/ops/softmax.h"
#include "kernels/ops/softmax_gradient.h"
#include "kernels/ops/sum_of_squares.h"
#include "kernels/ops/transpose.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::Floats;
using test::Indices;

template <class Args>
std::string refusal(const Args& args) {
  const Status status = test::cpu().launch(args);
  return status ? "" : status.error().message;
}

void expect_refused(const std::string& message, const std::string& op, const std::string& what) {
  EXPECT_NE(message.find(op), std::string::npos) << message;
  EXPECT_NE(message.find(what), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

struct Data {
  Floats x{4, 64};
  Floats out{4, 64};
  Floats narrow{4, 32};
  Floats column{4, 1};
  Indices indices{4, 1};
};

LayerNormArgs layer_norm(Floats& x, Floats& out, std::int64_t groups = 1) {
  LayerNormArgs args;
  args.x = x.view();
  args.out = out.view();
  args.groups = groups;
  return args;
}
SoftmaxArgs softmax(Floats& scores, Floats& out, std::int64_t heads = 1) {
  SoftmaxArgs args;
  args.scores = scores.view();
  args.out = out.view();
  args.heads = heads;
  return args;
}
RopeArgs rope(Floats& x, Floats& out, std::int64_t heads = 1) {
  RopeArgs args;
  args.x = x.view();
  args.out = out.view();
  args.heads = heads;
  return args;
}
AttentionScoresArgs scores(Floats& q, Floats& k, Floats& out, std::int64_t kv_heads = 1) {
  AttentionScoresArgs args;
  args.q = q.view();
  args.k = k.view();
  args.out = out.view();
  args.kv_heads = kv_heads;
  return args;
}
KvReadArgs kv_read(Floats& pool, Indices& blocks, Floats& out, std::int64_t block_size) {
  KvReadArgs args;
  args.pool = pool.view();
  args.blocks = blocks.view();
  args.out = out.view();
  args.block_size = block_size;
  return args;
}

TEST(ArgumentChecks, ShapesThatDisagree) {
  Data d;
  expect_refused(refusal(layer_norm(d.narrow, d.out)), "layer_norm", "'x'");
  expect_refused(refusal(softmax(d.narrow, d.out)), "softmax", "'scores'");
  expect_refused(refusal(rope(d.narrow, d.out)), "rope", "'x'");
  expect_refused(refusal(scores(d.x, d.x, d.out)), "attention_scores", "'out'");
  CastArgs cast;
  cast.x = d.narrow.view();
  cast.out = d.out.view();
  expect_refused(refusal(cast), "cast", "'x'");
  AbsmaxArgs absmax;
  absmax.x = d.x.view();
  absmax.out = d.narrow.view();
  expect_refused(refusal(absmax), "absmax", "'out'");
  DotProductsArgs dots;
  dots.x = d.x.view();
  dots.weight = d.x.view();
  dots.out = d.out.view();
  dots.squares = d.column.view();
  expect_refused(refusal(dots), "dot_products", "'weight'");
}

TEST(ArgumentChecks, DivisorsThatDoNotDivide) {
  Data d;
  expect_refused(refusal(layer_norm(d.x, d.out, 0)), "layer_norm", "groups");
  expect_refused(refusal(layer_norm(d.x, d.out, 3)), "layer_norm", "groups");
  expect_refused(refusal(softmax(d.x, d.out, 0)), "softmax", "heads");
  expect_refused(refusal(rope(d.x, d.out, 64)), "rope", "even");
  RopeArgs pairs = rope(d.x, d.out, 32);
  pairs.stretch = 2;
  expect_refused(refusal(pairs), "rope", "wider than 2");
  RopeArgs behind = rope(d.x, d.out);
  behind.first_channel = 2;
  expect_refused(refusal(behind), "rope", "first channel");
  expect_refused(refusal(scores(d.x, d.x, d.out, 0)), "attention_scores", "kv_heads");
  expect_refused(refusal(kv_read(d.x, d.indices, d.out, 0)), "kv_read", "block_size");
}

TEST(ArgumentChecks, WrongFormatsAndMissingTensors) {
  Data d;
  ArgmaxArgs argmax;
  argmax.x = d.x.view();
  argmax.out = d.column.view();
  expect_refused(refusal(argmax), "argmax", "i32");
  HealthScanArgs health;
  health.x = d.x.view();
  expect_refused(refusal(health), "health_scan", "tiles");
  CastArgs cast;
  cast.x = d.x.view();
  expect_refused(refusal(cast), "cast", "'out'");
  KvStoreArgs store;
  store.x = d.x.view();
  store.pool = d.out.view();
  store.slots = d.column.view();
  expect_refused(refusal(store), "kv_store", "'slots'");
}

TEST(ArgumentChecks, GradientsOfWhatDoesNotFit) {
  Data d;
  const TensorView x = d.x.view();
  const TensorView out = d.out.view();
  const TensorView narrow = d.narrow.view();
  const TensorView column = d.column.view();
  const TensorView indices = d.indices.view();
  expect_refused(refusal(TransposeArgs{x, out}), "transpose", "'x'");
  expect_refused(refusal(ColumnSumArgs{x, column}), "column_sum", "'out'");
  expect_refused(refusal(EmbeddingGradientArgs{indices, x, narrow}), "embedding_gradient", "'out'");
  expect_refused(refusal(EmbeddingGradientArgs{column, x, out}), "embedding_gradient", "'tokens'");
  expect_refused(refusal(LayerNormGradientArgs{.x = x, .stats = column, .dout = x, .out = out}), "layer_norm_gradient",
                 "'stats'");
  expect_refused(refusal(LayerNormWeightGradientArgs{.x = x, .stats = column, .dout = x, .weight_out = out}),
                 "layer_norm_weight_gradient", "'weight_out'");
  expect_refused(refusal(SoftmaxGradientArgs{x, x, out, 3}), "softmax_gradient", "heads");
  expect_refused(refusal(SoftmaxGradientArgs{.probs = x, .dprobs = x, .out = out, .sinks = column, .scores = x}),
                 "softmax_gradient", "'sinks'");
  expect_refused(refusal(AttentionMixGradientArgs{.weights = x, .x = x, .out = out, .heads = 3, .kv_heads = 2}),
                 "attention_mix_gradient", "kv_heads");
  expect_refused(refusal(AttentionMixGradientArgs{.weights = x, .x = x, .out = out}), "attention_mix_gradient",
                 "'weights'");
  expect_refused(refusal(ActivationGradientArgs{.x = x, .dout = x, .out = out, .kind = ActivationKind::swiglu}),
                 "activation_gradient", "'up'");
  expect_refused(refusal(SoftcapGradientArgs{x, x, out, 0.0F}), "softcap_gradient", "cap");
  expect_refused(refusal(GatedAddGradientArgs{.b = x, .gate = x, .dout = x, .b_out = out, .gate_out = column}),
                 "gated_add_gradient", "'gate'");
  expect_refused(
      refusal(ExpertMixGradientArgs{
          .experts = x, .weights = column, .ids = indices, .dout = x, .weights_out = column, .experts_out = narrow}),
      "expert_mix_gradient", "'experts_out'");
  expect_refused(refusal(RouteGradientArgs{.logits = x, .bias = {}, .ids = column, .dweights = column, .out = out}),
                 "route_gradient", "'ids'");
  expect_refused(refusal(CrossEntropyArgs{x, column, column}), "cross_entropy", "'targets'");
  expect_refused(refusal(CrossEntropyGradientArgs{x, indices, narrow}), "cross_entropy_gradient", "'logits'");
  expect_refused(refusal(SumOfSquaresArgs{x, out}), "sum_of_squares", "'out'");
  expect_refused(refusal(AdamWArgs{.gradient = x, .weight = out, .m = out, .v = narrow}), "adamw", "'v'");
  AdamWArgs uncorrected{.gradient = x, .weight = out, .m = out, .v = out};
  uncorrected.correction2 = 0.0F;
  expect_refused(refusal(uncorrected), "adamw", "corrections");
}

TEST(ArgumentChecks, MoreRowsThanTheBlockTableCovers) {
  Data d;
  Indices one_block(1, 1);
  expect_refused(refusal(kv_read(d.x, one_block, d.out, 2)), "kv_read", "block table");
}

}  // namespace
}  // namespace nanscope::kernels
