/// Layers whose residual stream is added elsewhere than behind their branches.
#include <algorithm>
#include <utility>

#include "core/dump/pass_builder.h"

namespace nanscope {

/// Whether a module that does more than its last part gives the stream itself, as BLOOM's attention does, which adds
/// the residual inside: the next norm reads what it gave.
bool PassBuilder::holds_residual(TensorId branch, std::string_view next) {
  const Tensor* made = run_.tensor(branch);
  const Op* op = made != nullptr && made->known ? run_.maker(*made) : nullptr;
  const std::vector<Index> reads = find(next, Port::input);
  return op != nullptr && op->kind == OpKind::block && !reads.empty() && same_bytes(*made, reads.front());
}

TensorId PassBuilder::mlp_layer(TensorId x, std::vector<Index> outs) {
  const TensorId given = input_of("self_attn", normed("attn_norm", x));
  const TensorId branch = whole("self_attn", has_mixture() ? mixture(given) : gated(given));
  return residual("mlp_residual", x, branch, std::move(outs));
}

/// Whether the layer's norms add the residual stream themselves, as vLLM's and SGLang's do: the second one has two
/// inputs, or two outputs.
bool PassBuilder::adds_in_norm() const {
  const auto given = [this](Port port) {
    const std::vector<Index> all = find("mlp_norm", port, Form::value, 1);
    return std::any_of(all.begin(), all.end(), [this](Index one) { return tensor(one).shape.size() <= 3; });
  };
  return given(Port::input) || given(Port::output);
}

/// A layer that is given a branch and the stream, and gives its MLP's output and, as its second output, the stream
/// before that.
TensorId PassBuilder::fused_layer(TensorId x, const std::vector<Index>& outs) {
  Fused first{x, 0};
  if (residual_ != 0) {
    first = fused_norm("attn_norm", "residual_in", residual_, x, {});
  } else {
    first.normed = normed("attn_norm", x);
  }
  TensorId branch = attention(first.normed);
  if (seen("attn_post_norm")) branch = norm("attn_post_norm", branch);
  const Fused second =
      fused_norm("mlp_norm", "attn_residual", first.sum, branch, find("layer", Port::output, Form::value, 1));
  branch = mlp(second.normed);
  if (seen("mlp_post_norm")) branch = norm("mlp_post_norm", branch);
  for (const Index index : outs) copy(branch, index, "layer");
  residual_ = second.sum;
  return branch;
}

/// A norm that adds a branch to the residual stream first: `normed` is of the sum, and the sum is its second output.
/// Kernels that do so in place leave both results in what hooks see as inputs; such inputs are not what was read.
PassBuilder::Fused PassBuilder::fused_norm(std::string_view op, std::string_view sum_name, TensorId stream,
                                           TensorId branch, std::vector<Index> sums) {
  const std::vector<Index> given = find(op, Port::input);
  const std::vector<Index> outs = find(op, Port::output);
  const bool in_place = !given.empty() && !outs.empty() && same_bytes(given.front(), outs.front());
  if (!in_place) {
    branch = input_of(op, branch);
    stream = input_of(op, stream, 1);
  }
  for (const Index index : find(op, Port::output, Form::value, 1)) sums.insert(sums.begin(), index);
  const TensorId sum = residual(sum_name, stream, branch, std::move(sums));
  return {sum, norm_of(op, sum)};
}

/// The stream behind layers of which nothing was dumped.
TensorId PassBuilder::through_undumped(TensorId x) {
  residual_ = 0;
  return emit("layers_not_dumped", OpKind::block, {{"x", x, {}}}, {"resid"});
}

/// Tensors of unknown names that were stored before what runs behind the layers ran before it.
void PassBuilder::leftovers_before_head() {
  const auto members = members_.find(scope_);
  if (members == members_.end()) return;
  std::optional<Index> head;
  std::vector<Index> unknown;
  for (const auto& [key, index] : members->second) {
    const TensorName& at = tensor(index).at;
    if (!at.known) unknown.push_back(index);
    const bool heads = at.op == "final_norm" || at.op == "lm_head" || at.role == "logits";
    if (at.known && heads && at.port == Port::output) head = std::min(index, head.value_or(index));
  }
  std::sort(unknown.begin(), unknown.end());
  for (const Index index : unknown) {
    if (head && index < *head) place_leftover(index);
  }
}

}  // namespace nanscope
