#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "core/dump/tensor_name.h"

namespace nanscope {
namespace {

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
  std::vector<DumpTensor> tensors;
  for (const std::string& name : expected) {
    DumpTensor tensor;
    tensor.name = name;
    tensor.at = parse_tensor_name(name);
    tensors.insert(tensors.begin(), std::move(tensor));
  }
  sort_by_execution(tensors);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(tensors[i].name, expected[i]) << i;
}

}  // namespace
}  // namespace nanscope
