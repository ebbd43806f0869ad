/// The MLP of a layer as a mixture of experts: what the router chose, and what the experts made of it.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "core/dump/pass_builder.h"

namespace nanscope {

/// Whether the layer has a mixture. Models have dense layers too: there, parts of an MLP and none of a mixture stand.
bool PassBuilder::has_mixture() const {
  if (!seen_any(kMixtureOps)) return false;
  const auto members = members_.find(scope_);
  if (members == members_.end()) return true;
  bool dense = false;
  for (const auto& [key, index] : members->second) {
    const TensorName& at = tensor(index).at;
    if (std::find(std::begin(kMixtureOps), std::end(kMixtureOps), at.op) != std::end(kMixtureOps)) return true;
    const bool part = std::find(std::begin(kMlpOps), std::end(kMlpOps), at.op) != std::end(kMlpOps);
    dense = dense || (part && at.module.find("shared_expert") == std::string::npos);
  }
  return !dense;
}

TensorId PassBuilder::mixture(TensorId x) {
  const TensorId logits = linear("router", x, "router_logits", find_role("router_logits"));
  const std::vector<Index> scores = find_role("router_scores");
  TensorId chosen_by = logits;
  if (!scores.empty()) {
    Inputs inputs{{"x", logits, {}}};
    give_parameter(inputs, "bias", parameter("router_bias", "router_bias"));
    chosen_by = emit("router_scores", OpKind::route, std::move(inputs), {"router_scores", scores});
  }
  // What the experts were given is a copy of what the router gave.
  std::vector<Index> weights = outputs_of("topk", "router_weights");
  for (const Index index : find_role("router_weights")) {
    if (tensor(index).at.port == Port::input) weights.push_back(index);
  }
  Inputs choice{{"logits", chosen_by, {}}};
  give_parameter(choice, "bias", parameter("router_bias", "router_bias"));
  const TensorId routed = emit("route", OpKind::route, std::move(choice), {"router_weights", weights});
  std::vector<Index> ids = find_role("router_ids");
  std::stable_partition(ids.begin(), ids.end(), [this](Index at) { return tensor(at).at.port != Port::input; });
  const TensorId chosen =
      ids.empty() ? 0 : emit("route_ids", OpKind::route, {{"logits", chosen_by, {}}}, {"router_ids", ids});
  std::set<std::int64_t> experts;
  for (const auto& [scope, members] : members_) {
    if (scope.tower == scope_.tower && scope.layer == scope_.layer && scope.expert) experts.insert(*scope.expert);
  }
  Inputs parts{{"x", input_of("experts", x), {}}, {"weights", routed, {}}, {"ids", chosen, {}}};
  if (const Tensor* of = tensor_of(logits); of->known) parts.push_back({"logits", logits, {}});
  const std::size_t before = parts.size();
  const Scope whole = scope_;
  for (const std::int64_t expert : experts) {
    scope_.expert = expert;
    if (!find("down_proj", Port::output).empty() || !find("up_proj", Port::output).empty() ||
        !find("gate_proj", Port::output).empty()) {
      parts.push_back({"expert", gated(x), {}});
    }
    scope_ = whole;
  }
  if (parts.size() == before) give_experts(parts, tensor_of(logits)->channels);
  // An expert that every token has stands beside the chosen ones, and is not the same again.
  std::vector<Index> outs = find("experts", Port::output);
  const auto shared = [this](Index index) {
    return tensor(index).at.module.find("shared_expert") != std::string::npos;
  };
  const bool summed = !find("mlp", Port::output).empty();
  if (summed || !std::all_of(outs.begin(), outs.end(), shared)) std::erase_if(outs, shared);
  return emit("experts", OpKind::expert_mix, std::move(parts), {"mlp_out", outs});
}

/// What the block of a mixture puts out, where an expert that every token has stands beside the chosen ones: the sum of
/// both, with that expert's part behind a gate of its own in Qwen's models. `routed` where there is no such sum.
TensorId PassBuilder::with_shared_expert(TensorId routed) {
  const auto is_shared = [this](Index index) {
    return tensor(index).at.module.find("shared_expert") != std::string::npos;
  };
  std::vector<Index> sums = find("mlp", Port::output);
  std::vector<Index> given = find("experts", Port::output);
  std::erase_if(given, [&](Index index) { return !is_shared(index); });
  // What several outputs of a module are of one is not known, and neither is which part of a sum a rank has.
  const bool apart = find("experts", Port::output, Form::value, 1).empty() && !run_.has_ranks_;
  if (sums.empty() || given.empty() || !apart) return routed;
  const std::vector<Index> gate = find("shared_expert_gate", Port::output);
  std::vector<Index> parts;
  for (const auto& [key, index] : members_.find(scope_)->second) {
    if (!placed_.contains(index) && is_shared(index)) parts.push_back(index);
  }
  place_in_order(std::move(parts));
  Inputs terms{{"a", routed, {}}, {"b", emitted_[given.front()], {}}};
  if (!gate.empty()) terms.push_back({"gate", emitted_[gate.front()], {}});
  return emit("shared_add", gate.empty() ? OpKind::residual_add : OpKind::gated_add, std::move(terms),
              {"out", {sums.front()}});
}

/// The weights of all experts, in one tensor or in one each; none where some are missing.
void PassBuilder::give_experts(Inputs& inputs, std::int64_t experts) {
  static constexpr std::int64_t kMostExperts = 4096;  // statistics state any width of a router
  const Scope whole = scope_;
  Inputs found;
  for (const std::string_view part : {"gate_up", "gate", "up", "down"}) {
    const std::string op = std::string(part) + "_proj";
    const std::string role = "expert_" + std::string(part);
    std::vector<Index> each;
    for (std::int64_t expert = 0; expert < std::min(experts, kMostExperts); ++expert) {
      scope_.expert = expert;
      if (const auto own = parameter(op, "weight")) each.push_back(*own);
    }
    scope_ = whole;
    const auto together = each.empty() ? parameter(op, "weight") : std::nullopt;
    if (together) each = {*together};
    if (!together && static_cast<std::int64_t>(each.size()) != experts) continue;
    for (const Index index : each) give_parameter(found, role, index);
    std::vector<Index> biases;
    for (std::int64_t expert = 0; !together && expert < std::min(experts, kMostExperts); ++expert) {
      scope_.expert = expert;
      if (const auto own = parameter(op, "bias")) biases.push_back(*own);
    }
    scope_ = whole;
    if (const auto all = together ? parameter(op, "bias") : std::nullopt) biases = {*all};
    for (const Index index : biases) give_parameter(found, role + "_bias", index);
  }
  inputs.insert(inputs.end(), found.begin(), found.end());
}

}  // namespace nanscope
