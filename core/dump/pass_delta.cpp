/// Gated delta nets in the place of attention, as Qwen3-Next and its descendants name them; and gates of attention.
#include <utility>

#include "core/dump/pass_builder.h"

namespace nanscope {

/// Convolutions and the delta rule are one op: nothing between them is a module's.
TensorId PassBuilder::delta_net(TensorId x) {
  const DeltaGeometry& d = geometry_[scope_.tower].delta;
  const bool known = d.key_heads > 0;
  const bool fused = seen("gdn_gate_proj");
  DeltaAttributes form;
  if (known) {
    form.key_heads = d.key_heads, form.value_heads = d.value_heads;
    form.key_width = d.key_width, form.value_width = d.value_width;
    form.by_heads = fused;
  }
  const TensorId qkv = linear("gdn_qkv_proj", x, "qkv");
  Inputs inputs{{"qkv", qkv, {}}};
  TensorId z = 0;
  if (fused) {
    inputs.push_back({"gates", linear("gdn_gate_proj", x, "gdn_gates"), {}});
  } else {
    z = linear("gdn_z_proj", x, "gdn_z");
    inputs.push_back({"b", linear("gdn_b_proj", x, "gdn_b"), {}});
    inputs.push_back({"a", linear("gdn_a_proj", x, "gdn_a"), {}});
  }
  give_parameter(inputs, "conv", parameter("gdn_conv", "weight"));
  give_parameter(inputs, "a_log", parameter("self_attn", "weight"));
  give_parameter(inputs, "dt_bias", parameter("self_attn", "bias"));
  const std::int64_t width = d.value_heads * d.value_width;
  const TensorId made =
      emit("delta", OpKind::delta_rule, std::move(inputs), {"out", find("inner_norm", Port::input)}, form);
  if (known) settle_width(made, width, d.value_heads);
  const std::vector<Index> gates = find("inner_norm", Port::input, Form::value, 1);
  if (fused && known) {
    const std::int64_t before = 2 * d.key_width + width / d.key_heads;
    z = emit("z_proj", OpKind::split, {{"x", qkv, {}}}, {"gate", gates}, SplitAttributes{before, d.key_heads});
    settle_width(z, width, d.value_heads);
  } else if (fused) {
    z = emit("z_proj", OpKind::dumped, {{"x", qkv, {}}}, {"gate", gates});
  } else {
    for (const Index one : gates) copy(z, one, "z_proj");
  }
  Inputs of_norm{{"x", made, {}}};
  give_parameter(of_norm, "weight", parameter("inner_norm", "weight"));
  const TensorId normed = emit("inner_norm", OpKind::layer_norm, std::move(of_norm), {"norm_out"});
  if (known) settle_width(normed, width, d.value_heads);
  const TensorId gated = emit("delta_gate", OpKind::activation, {{"gate", z, {}}, {"up", normed, {}}},
                              {"out", find("inner_norm", Port::output)});
  if (known) settle_width(gated, width, d.value_heads);
  return whole("self_attn", linear("o_proj", gated, "out", {}));
}

/// Each head's query, and behind it what its output is multiplied by the sigmoid of.
std::pair<TensorId, TensorId> PassBuilder::query_and_gate(TensorId both) {
  const Geometry& g = geometry_[scope_.tower];
  const auto part = [&](std::string_view op, std::string_view role, std::int64_t first) {
    const TensorId id =
        emit(std::string(op), OpKind::split, {{"x", both, {}}}, {std::string(role)}, SplitAttributes{first, g.heads});
    settle_width(id, g.heads * g.width, g.heads);
    return id;
  };
  const TensorId q = part("q_split", "q", 0);
  return {q, part("attn_gate", "gate", g.width)};
}

}  // namespace nanscope
