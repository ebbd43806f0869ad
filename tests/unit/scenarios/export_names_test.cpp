#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "core/recording/writer.h"
#include "core/run/tensor_source.h"
#include "core/tensor/content_hash.h"
#include "instrument/dump/open_dump.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/op_plan.h"
#include "scenarios/export_dump.h"
#include "tests/temporary_folder.h"

/// What the engine plans, the export writes under names of hooks, and the grammar of names reads those again: an op
/// that one of them does not know would be lost on the way.
namespace nanscope::scenarios {
namespace {

using Knobs = std::vector<std::pair<std::string, std::string>>;

std::vector<const OpPlan*> ops_of(const ModelPlan& plan) {
  std::vector<const OpPlan*> all{&plan.embed};
  const auto mlp = [&](const MlpPlan& one) {
    all.insert(all.end(), {&one.gate_proj, &one.up_proj, &one.mlp_act, &one.act_quantise, &one.down_proj});
  };
  for (const LayerPlan& layer : plan.layers) {
    all.insert(all.end(), {&layer.attn_norm,      &layer.q_proj,        &layer.k_proj,         &layer.v_proj,
                           &layer.q_norm,         &layer.k_norm,        &layer.q_rope,         &layer.k_rope,
                           &layer.kv_store,       &layer.kv_read,       &layer.scores,         &layer.softmax,
                           &layer.attn_mix,       &layer.inner_norm,    &layer.o_proj,         &layer.recurrent_in,
                           &layer.recurrent_scan, &layer.recurrent_out, &layer.attn_post_norm, &layer.attn_residual,
                           &layer.mlp_norm,       &layer.mlp_quantise,  &layer.router,         &layer.route});
    if (layer.experts.empty()) mlp(layer.mlp);
    for (const MlpPlan& expert : layer.experts) mlp(expert);
    all.insert(all.end(), {&layer.expert_mix, &layer.mlp_post_norm, &layer.mlp_residual});
  }
  all.insert(all.end(), {&plan.final_norm, &plan.lm_head, &plan.token_softmax, &plan.argmax});
  std::erase_if(all, [](const OpPlan* op) { return op->name.empty(); });
  return all;
}

std::vector<std::string> roles_of(const OpPlan& op) {
  switch (op.kind) {
    case OpKind::kv_store:
      return {"k_codes", "v_codes"};
    case OpKind::kv_read:
      return {"k_read", "v_read"};
    case OpKind::softmax:
    case OpKind::token_softmax:
      return {"probs"};
    case OpKind::route:
      return {"weights", "ids"};
    case OpKind::argmax:
      return {"token"};
    case OpKind::block_quantise:
      return {"codes", "scales"};
    default:
      return {op.name == "lm_head" ? "logits" : "out"};
  }
}

/// A step that executes the plan; each tensor holds nothing but its own id.
struct Planned {
  Recording recording;
  std::map<std::int64_t, const OpPlan*> ops;  ///< by tensor
};

Planned recorded(const ModelPlan& plan) {
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kChannels = 8;
  std::map<std::int64_t, const OpPlan*> ops;
  auto writer = RecordingWriter::create_in_memory(RunInfo{}).value();
  RequestRow request;
  writer->add(request);
  StepRow step;
  step.id = 1;
  step.tokens = kTokens;
  step.context = kTokens;
  writer->add(step);
  std::int64_t id = 0;
  for (const OpPlan* one : ops_of(plan)) {
    OpRow op;
    op.id = static_cast<std::int64_t>(ops.size()) + 1000;
    op.step = 1;
    op.layer = one->layer;
    op.name = one->name;
    op.kind = name(one->kind);
    op.attributes = one->json;
    writer->add(op, {});
    for (const std::string& role : roles_of(*one)) {
      TensorRow tensor;
      tensor.id = ++id;
      tensor.op = op.id;
      tensor.role = role;
      tensor.tokens = kTokens;
      tensor.channels = role == "token" ? 1 : kChannels;
      tensor.heads = role == "token" ? 1 : 2;
      tensor.health = empty_health();
      const auto value = static_cast<float>(id);
      std::vector<std::byte> bytes;
      for (std::int64_t i = 0; i < tensor.tokens * tensor.channels; ++i) {
        const auto* begin = reinterpret_cast<const std::byte*>(&value);
        bytes.insert(bytes.end(), begin, begin + sizeof(value));
      }
      ContentHash hash;
      hash.add(bytes);
      tensor.hash = hash.finish();
      writer->add(tensor, {{}, {}}, bytes);
      ops.emplace(id, one);
    }
  }
  EXPECT_TRUE(writer->commit_step());
  return {writer->finish_in_memory(static_cast<std::int64_t>(ops.size())).value(), std::move(ops)};
}

/// The module whose output a hook sees: of attention as a whole its mix, of a layer or an MLP their sum.
OpKind hooked(OpKind planned) {
  if (planned == OpKind::block_gemm) return OpKind::gemm;
  if (planned == OpKind::attention_mix) return OpKind::attention;
  const bool sum = planned == OpKind::expert_mix || planned == OpKind::residual_add;
  return sum ? OpKind::block : planned;
}

class ExportedNames : public testing::TestWithParam<Knobs> {};

TEST_P(ExportedNames, AreThoseOfThePlansOps) {
  EngineConfig config;
  for (const auto& [name, value] : GetParam()) {
    const Status set = set_knob(config, name, value);
    ASSERT_TRUE(set) << set.error().message;
  }
  const ModelPlan plan = make_plan(config);
  const Planned made = recorded(plan);
  StoredTensors tensors(made.recording);
  const TemporaryFolder folder;
  const auto count = export_dump(made.recording, tensors, folder / "dump");
  ASSERT_TRUE(count) << count.error().message;
  const auto opened = OpenDump::open(folder / "dump");
  ASSERT_TRUE(opened) << opened.error().message;
  const std::vector<DumpTensor>& all = (*opened)->dump().tensors;
  std::map<const OpPlan*, int> seen;
  for (const DumpTensor& dumped : all) {
    EXPECT_TRUE(dumped.at.known) << dumped.name;
    const auto values = (*opened)->values(dumped, 0, 1);
    ASSERT_TRUE(values && !values->empty()) << dumped.name;
    const auto found = made.ops.find(static_cast<std::int64_t>(values->front()));
    if (found == made.ops.end()) continue;  // a scale of the ledger
    const OpPlan& op = *found->second;
    ++seen[&op];
    if (op.layer >= 0) {
      EXPECT_EQ(dumped.at.layer, op.layer) << dumped.name;
    }
    // An input, or what attention gets, is named after who reads it. Of blocks, a name says nothing.
    if (dumped.at.port != Port::output || dumped.at.kind == OpKind::dumped) continue;
    EXPECT_EQ(name(dumped.at.kind), name(hooked(op.kind))) << dumped.name << " of " << op.name;
  }
  for (const OpPlan* op : ops_of(plan)) {
    if (op->kind == OpKind::block_quantise) continue;  // a hook sees its scales alone, as an input of the product
    EXPECT_GT(seen[op], 0) << op->name << " is not exported";
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, ExportedNames,
                         testing::Values(Knobs{}, Knobs{{"model.qk_norm", "true"}}, Knobs{{"model.inner_norm", "true"}},
                                         Knobs{{"model.norm_placement", "sandwich"}}, Knobs{{"model.mlp", "gelu"}},
                                         Knobs{{"model.experts", "4"}, {"model.experts_per_token", "2"}},
                                         Knobs{{"activation.blocks", "mxfp8"}},
                                         Knobs{{"model.recurrent_layers", "0"}}));

}  // namespace
}  // namespace nanscope::scenarios
