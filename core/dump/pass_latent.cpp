/// Multi-head latent attention: queries, keys and values out of low-rank latents.
#include <algorithm>
#include <utility>

#include "core/dump/pass_builder.h"

namespace nanscope {

/// Only a configuration says how the channels of the latents are divided.
bool PassBuilder::knows_latents() {
  const Geometry& g = geometry_[scope_.tower];
  return g.shared > 0 && g.heads > 0 && g.width > g.shared && seen("kv_a_proj");
}

std::vector<PassBuilder::Index> PassBuilder::of_width(std::vector<Index> dumped, std::int64_t channels) {
  std::erase_if(dumped, [&](Index index) { return describe(index, "x").channels != channels; });
  return dumped;
}

/// Of what was not dumped.
void PassBuilder::settle_width(TensorId made, std::int64_t channels, std::int64_t heads) {
  Tensor& one = *tensor_of(made);
  if (one.known || channels <= 0) return;
  one.channels = channels;
  one.heads = heads;
}

std::tuple<TensorId, TensorId, TensorId> PassBuilder::latents(TensorId x) {
  const Geometry& g = geometry_[scope_.tower];
  TensorId q = x;
  if (seen("q_a_proj")) q = linear("q_a_proj", x, "q_a");
  if (seen("q_a_norm")) q = norm("q_a_norm", q);
  q = linear("q_proj", q, "q", of_width(states("q"), g.heads * g.width));
  settle_width(q, g.heads * g.width, g.heads);
  q = rotated_queries(q);
  const TensorId both = linear("kv_a_proj", x, "kv_a");
  const std::int64_t rank = std::max<std::int64_t>(0, run_.tensor(both)->channels - g.shared);
  const TensorId latent = norm("kv_a_norm", part_of(both, "kv_latent", "kv_latent", 0, rank));
  settle_width(latent, rank, 1);
  const TensorId kv = expanded(latent);
  const std::int64_t own = g.width - g.shared;
  const std::int64_t values = run_.tensor(kv)->channels - g.heads * own;
  const TensorId v = emit("v_split", OpKind::split, {{"x", kv, {}}}, {"v", of_width(states("v"), values)},
                          SplitAttributes{own, g.heads});
  settle_width(v, values, g.heads);
  const TensorId k = emit("k_join", OpKind::join, {{"x", kv, {}}, {"shared", shared_keys(both, rank), {}}},
                          {"k_rot", given_to_attention("k", 1)}, JoinAttributes{g.heads});
  settle_width(k, g.heads * g.width, g.heads);
  return {q, k, v};
}

/// Whole queries or keys behind the rotation, and no part of them: vLLM rotates the rotary parts alone.
std::vector<PassBuilder::Index> PassBuilder::given_to_attention(std::string_view letter, int index) {
  const Geometry& g = geometry_[scope_.tower];
  std::vector<Index> given = find_role(std::string(letter) + "_rot");
  for (const Index one : find(letter, Port::output)) given.push_back(one);
  given = of_width(std::move(given), g.heads * g.width);
  return given.empty() ? of_width(find("attention", Port::input, Form::value, index), g.heads * g.width) : given;
}

TensorId PassBuilder::rotated_queries(TensorId q) {
  const Geometry& g = geometry_[scope_.tower];
  RopeAttributes form;
  form.rotated = g.shared;
  form.rotated_from = g.width - g.shared;
  Inputs inputs = rotation_of(q);
  const TensorId out = emit("q_rope", OpKind::rope, std::move(inputs), {"q_rot", given_to_attention("q", 0)}, form);
  settle_width(out, g.heads * g.width, g.heads);
  return out;
}

/// The part of keys that all heads share, rotated.
TensorId PassBuilder::shared_keys(TensorId both, std::int64_t rank) {
  const std::int64_t width = geometry_[scope_.tower].shared;
  const TensorId shared = part_of(both, "k_shared", "k_shared", rank, width);
  settle_width(shared, width, 1);
  RopeAttributes form;
  form.rotated = width;
  Inputs inputs = rotation_of(shared);
  const TensorId out = emit("k_rope", OpKind::rope, std::move(inputs), {"k_shared_rot"}, form);
  settle_width(out, width, 1);
  return out;
}

/// Keys and values of the step's rows. Where the cache keeps latents, a step expands those of its whole context: that
/// product stands for itself, and the step's own rows are made of the step's own latents.
TensorId PassBuilder::expanded(TensorId latent) {
  const std::vector<Index> outs = find("kv_b_proj", Port::output);
  const auto of_step = [&](Index index) { return describe(index, "kv").axis == Axis::rows; };
  if (outs.empty() || of_step(outs.front())) return linear("kv_b_proj", latent, "kv");
  const std::vector<Index> read = find("kv_b_proj", Port::input);
  TensorId context = latent;
  if (!read.empty()) {
    context = emit("kv_latent_read", OpKind::dumped, {{"x", latent, {}}}, {"kv_latent_read", read});
  }
  Inputs inputs{{"x", context, {}}};
  const std::optional<Index> weight = parameter("kv_b_proj", "weight");
  give_parameter(inputs, "weight", weight);
  emit("kv_b_read", OpKind::gemm, inputs, {"kv", outs}, product_with(weight));
  inputs.front().tensor = latent;
  const TensorId own = emit("kv_b_proj", OpKind::gemm, std::move(inputs), {"kv"}, product_with(weight));
  settle_width(own, describe(outs.front(), "kv").channels, 1);
  return own;
}

}  // namespace nanscope
