#pragma once
#include <string>
#include <string_view>

/// Names as libraries write them, in the grammar of parse_tensor_name().
namespace nanscope {

/// Flax has the modules of a call as folders, "layers_2/mlp/up_proj/__call__", with the number of the call behind it
/// and the name of the collection before it; JAX writes the keys of a tree as "['layers_2']['mlp'][0]"; transformers
/// and others hold lists of a tensor a layer, "hidden_states_3", and in a generation lists of those, "attentions.0.3".
/// ONNX graphs name operators in the modules that they were exported from, "/model/layers.2/mlp/Mul_output_0". Other
/// names are returned as they are.
std::string in_grammar(std::string_view name);

}  // namespace nanscope
