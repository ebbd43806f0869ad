#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "instrument/engine/workspace.h"
#include "instrument/train/gradients.h"
#include "instrument/train/row_selection.h"
#include "kernels/ops/expert_mix_gradient.h"
#include "kernels/ops/gated_add_gradient.h"
#include "kernels/ops/route_gradient.h"

/// A mixture of experts (Shazeer et al. 2017): the forward pass computes every token by every expert, the backward pass
/// an expert's tokens alone.
namespace nanscope::train {
namespace {

using kernels::TensorView;

/// Chosen experts of each token, (tokens, k) row-major.
std::vector<std::int32_t> downloaded(Backward& backward, const TensorView& ids) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(ids.elements()));
  if (!backward.ok()) return values;
  const Status done = backward.parts().device.download(std::as_writable_bytes(std::span(values)), ids.data);
  if (!done) backward.fail_with(done.error().message);
  return values;
}

std::vector<std::int32_t> tokens_of(std::span<const std::int32_t> ids, std::int64_t chosen, std::int64_t expert) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == expert) tokens.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(i) / chosen));
  }
  return tokens;
}

/// Outputs of all experts, one expert's rows behind the other's.
TensorView joined(Backward& backward, std::span<const std::int64_t> experts, std::int64_t tokens) {
  TensorView all;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const TensorView one = backward.value(experts[e]);
    if (!backward.ok()) return {};
    if (e == 0) all = backward.scratch(one.format, std::ssize(experts) * tokens, one.columns);
    if (!backward.ok()) return {};
    const auto bytes = static_cast<std::size_t>(one.elements() * kernels::storage_size(one.format));
    const TensorView to = slice(all, static_cast<std::int64_t>(e) * tokens, tokens);
    if (Status done = backward.parts().device.copy(to.data, one.data, bytes); !done) {
      backward.fail_with(done.error().message);
    }
  }
  return all;
}

}  // namespace

/// out = sum over the chosen of weight * expert: dweight = dout . expert, dexpert = weight * dout.
void expert_mix_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const std::int64_t weights = op.input("weights");
  const std::int64_t ids = op.input("ids");
  std::vector<ProbeInput> inputs{{"dout", dout.id, {}}, {"weights", weights, {}}, {"ids", ids, {}}};
  std::vector<std::int64_t> experts;
  for (const TapedInput& input : op.inputs) {
    if (input.role != "expert") continue;
    experts.push_back(input.tensor);
    inputs.push_back({"expert", input.tensor, {}});
  }
  const TensorView ids_value = backward.value(ids);
  const TensorView weights_value = backward.value(weights);
  const std::int64_t tokens = dout.view.rows;
  const TensorView all = joined(backward, experts, tokens);
  if (!backward.ok()) return;
  const Format format = backward.config().train.gradient_format;
  const TensorView dweights = backward.memory(format, tokens, ids_value.columns);
  const TensorView dexperts = backward.memory(format, all.rows, all.columns);
  backward.launch(kernels::ExpertMixGradientArgs{.experts = all,
                                                 .weights = weights_value,
                                                 .ids = ids_value,
                                                 .dout = dout.view,
                                                 .weights_out = dweights,
                                                 .experts_out = dexperts});
  const std::vector<std::int32_t> chosen = downloaded(backward, ids_value);
  backward.at_rows();
  std::vector<ProbeTensor> outputs{backward.output("dweights", dweights)};
  std::vector<std::string> roles;
  for (std::size_t e = 0; e < experts.size(); ++e) roles.push_back(fmt::format("dexpert{}", e));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    outputs.push_back(backward.output(roles[e], slice(dexperts, static_cast<std::int64_t>(e) * tokens, tokens)));
  }
  backward.emit(op, OpKind::expert_mix_gradient, inputs, outputs, op.attributes);
  backward.add(weights, {dweights, outputs.front().id});
  for (std::size_t e = 0; e < experts.size() && backward.ok(); ++e) {
    const auto own = tokens_of(chosen, ids_value.columns, static_cast<std::int64_t>(e));
    backward.add(experts[e], {outputs[e + 1].view, outputs[e + 1].id}, &select_rows(backward, own, tokens));
  }
}

/// What chooses the experts, a bias of the choice among it, has no gradient.
void route_gradient(Backward& backward, const TapedOp& op) {
  const Live dweights = backward.gradient(op.outputs.front());
  if (op.outputs.size() < 2) return backward.fail_with("op " + op.name + " does not say whom it chose");
  const std::int64_t logits = op.input("logits");
  const Weight* bias = backward.weight(op.weight("bias"));
  const TensorView value = backward.value(logits);
  const TensorView ids = backward.value(op.outputs[1].id);
  if (!backward.ok()) return;
  const EngineConfig& config = backward.config();
  const TensorView dlogits = backward.memory(config.train.gradient_format, value.rows, value.columns);
  backward.launch(kernels::RouteGradientArgs{.logits = value,
                                             .bias = bias != nullptr ? bias->view : TensorView{},
                                             .ids = ids,
                                             .dweights = dweights.view,
                                             .out = dlogits,
                                             .score = config.moe.score,
                                             .value = config.moe.weights,
                                             .normalise = config.moe.normalise,
                                             .eps = config.moe.eps,
                                             .scale = config.moe.scale});
  backward.at_rows();
  const ProbeTensor out = backward.output("dlogits", dlogits);
  const std::array inputs{ProbeInput{"dout", dweights.id, {}}, ProbeInput{"logits", logits, {}},
                          ProbeInput{"ids", op.outputs[1].id, {}}, ProbeInput{"bias", 0, op.weight("bias")}};
  backward.emit(op, OpKind::route_gradient, std::span(inputs).first(bias != nullptr ? 4 : 3), std::span(&out, 1),
                op.attributes);
  backward.add(logits, {dlogits, out.id});
}

/// out = a + sigmoid(gate) b: da is dout.
void gated_add_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const std::int64_t b = op.input("b");
  const std::int64_t gate = op.input("gate");
  const TensorView b_value = backward.value(b);
  const TensorView gate_value = backward.value(gate);
  if (!backward.ok()) return;
  const Format format = backward.config().train.gradient_format;
  const TensorView db = backward.memory(format, b_value.rows, b_value.columns);
  const TensorView dgate = backward.memory(format, gate_value.rows, gate_value.columns);
  backward.launch(kernels::GatedAddGradientArgs{
      .b = b_value, .gate = gate_value, .dout = dout.view, .b_out = db, .gate_out = dgate});
  backward.at_rows();
  const std::array outputs{backward.output("db", db), backward.output("dgate", dgate)};
  const std::array inputs{ProbeInput{"dout", dout.id, {}}, ProbeInput{"b", b, {}}, ProbeInput{"gate", gate, {}}};
  backward.emit(op, OpKind::gated_add_gradient, inputs, outputs, op.attributes);
  backward.add(op.input("a"), dout);
  backward.add(b, {db, outputs[0].id});
  backward.add(gate, {dgate, outputs[1].id});
}

}  // namespace nanscope::train
