#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "core/dump/tensor_name.h"

namespace nanscope {
namespace {

std::vector<DumpTensor> named(const std::vector<std::string>& names) {
  std::vector<DumpTensor> tensors(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    tensors[i].name = names[i];
    tensors[i].at = parse_tensor_name(names[i]);
  }
  return tensors;
}

std::string tower_of(const std::vector<DumpTensor>& tensors, const std::string& name) {
  for (const DumpTensor& tensor : tensors) {
    if (tensor.name == name) return tensor.at.tower;
  }
  return "not there";
}

/// The encoder may have run before the dump began: its keys are not there.
TEST(ExecutionOrder, CrossAttentionIsATowerWithAndWithoutTheEncoder) {
  const std::string own = "model.decoder.layers.0.self_attn.q_proj.output";
  const std::string cross = "model.decoder.layers.0.encoder_attn.q_proj.output";
  const std::string encoder = "model.encoder.layers.0.self_attn.q_proj.output";
  for (const bool there : {false, true}) {
    std::vector<DumpTensor> tensors = named(there ? std::vector{encoder, own, cross} : std::vector{own, cross});
    sort_by_execution(tensors);
    EXPECT_EQ(tower_of(tensors, own), "");
    EXPECT_EQ(tower_of(tensors, cross), "cross");
    EXPECT_EQ(tower_of(tensors, encoder), there ? "encoder" : "not there");
  }
  std::vector<DumpTensor> alone = named({"layers.0.cross_attn.q_proj.output", "layers.0.mlp.output"});
  sort_by_execution(alone);
  EXPECT_EQ(tower_of(alone, "layers.0.cross_attn.q_proj.output"), "");
}

TEST(ExecutionOrder, FollowsTheForwardPass) {
  const std::vector<std::string> expected = {
      "step_2/model.embed_tokens.output",
      "step_2/model.layers.0.input_layernorm.output",
      "step_2/model.layers.0.self_attn.q_proj.output",
      "step_2/model.layers.0.self_attn.k_proj.output",
      "step_2/model.layers.0.self_attn.k_cache",
      "step_2/model.layers.0.self_attn.probs",
      "step_2/model.layers.0.self_attn.o_proj.input",
      "step_2/model.layers.0.self_attn.o_proj.output",
      "step_2/model.layers.0.self_attn.output",
      "step_2/model.layers.0.post_attention_layernorm.output",
      "step_2/model.layers.0.mlp.down_proj.output",
      "step_2/model.layers.0.output",
      "step_2/model.layers.10.input_layernorm.output",
      "step_2/model.norm.output",
      "step_2/lm_head.output",
      "step_2/mtp.layers.0.mlp.output",
      "step_10/model.layers.0.input_layernorm.output",
  };
  std::vector<DumpTensor> tensors = named(expected);
  std::reverse(tensors.begin(), tensors.end());
  sort_by_execution(tensors);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(tensors[i].name, expected[i]) << i;
}

}  // namespace
}  // namespace nanscope
