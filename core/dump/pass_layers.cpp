/// The order of a transformer: what each op of a layer is made of.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/dump/pass_builder.h"

namespace nanscope {
namespace {

constexpr std::string_view kAttentionOps[] = {"q_proj", "k_proj",  "v_proj",    "qkv_proj", "o_proj",   "q",
                                              "k",      "v",       "k_cache",   "v_cache",  "kv_cache", "scores",
                                              "probs",  "softmax", "attention", "attn_out", "q_rot",    "k_rot",
                                              "k_read", "v_read",  "q_a_proj",  "kv_a_proj"};
constexpr std::string_view kSides[] = {".input", ".output", ".kwargs."};

}  // namespace

void PassBuilder::build_tower(const std::string& name) {
  residual_ = 0;
  scope_ = {name, {}, {}};
  for (const std::string_view role : {"tokens", "positions", "mask", "seq_lens", "query_start_loc", "query_lens",
                                      "past_length", "slot_mapping", "block_table", "inv_freq"}) {
    for (const Index index : find_role(role)) {
      const TensorId id = emit_parameter(index);
      if (role == "positions") positions_ = id;
    }
    if (role == "positions" && positions_ == 0) {
      if (const auto given = parameter(role, role)) positions_ = emit_parameter(*given);
    }
  }
  take_tower_tables();
  const auto tokens = parameter("tokens", "tokens");
  Inputs inputs;
  give_parameter(inputs, "tokens", tokens);
  give_parameter(inputs, "weight", parameter("embed", "weight"));
  const std::string first = seen("patch_embed") ? "patch_embed" : "embed";
  TensorId x = emit(first, OpKind::embedding, inputs, {"out", find(first, Port::output)});
  if (seen("embed_scaled") && !find("embed_scaled", Port::output).empty())
    x = emit("embed_scaled", OpKind::dumped, {{"x", x, {}}}, {"out", find("embed_scaled", Port::output)});
  // Gemma's, by the root of the width, where nothing says how it is.
  if (!seen("embed_scaled") && seen("mlp_post_norm") && seen("attn_norm") && !geometry_[scope_.tower].embedding_scale)
    x = emit("embed_scaled", OpKind::block, {{"x", x, {}}}, {"out"});
  for (const std::string_view more : {"type_embed", "pos_embed"}) {
    const bool unnamed = find(more, Port::output).empty();
    if (unnamed && !parameter(more, "weight")) continue;
    const std::vector<Index> ids = find(more, Port::input);
    Inputs rows{{"tokens", ids.empty() ? (more == "pos_embed" ? positions_ : 0) : emit_parameter(ids.front()), {}}};
    give_parameter(rows, "weight", parameter(more, "weight"));
    x = residual(more == "pos_embed" ? "embed_sum" : "embed_type_sum", x,
                 emit(std::string(more), OpKind::embedding, std::move(rows), {"out", find(more, Port::output)}));
  }
  x = summed(x);
  if (seen("pre_norm")) x = norm("pre_norm", x);
  std::set<std::optional<std::int64_t>> layers;
  for (const auto& [scope, members] : members_) {
    if (scope.tower == name && scope.layer) layers.insert(scope.layer);
  }
  // A dump of one layer may not say which; its tensors stand among those outside of layers.
  const bool unnumbered =
      layers.empty() && std::any_of(std::begin(kAttentionOps), std::end(kAttentionOps), [&](std::string_view op) {
        return !find(op, Port::output).empty() || !find(op, Port::state).empty();
      });
  if (unnumbered) layers.insert(std::nullopt);
  std::int64_t next = 0;
  for (const std::optional<std::int64_t>& number : layers) {
    scope_ = {name, number, {}};
    if (number && *number > next) x = through_undumped(x);
    x = layer(x);
    if (number) leftovers(scope_);
    if (number) next = *number + 1;
  }
  scope_ = {name, {}, {}};
  if (layers.empty() || next < geometry_[name].layers) x = through_undumped(x);
  leftovers_before_head();
  head(x);
  for (const auto& [scope, members] : members_) {
    if (scope.tower == name) leftovers(scope);
  }
}

/// The stream before the first layer, under a name of its own: embeddings and whatever else was added to them.
TensorId PassBuilder::summed(TensorId embedded) {
  const std::vector<Index> sums = find("embed_sum", Port::output);
  const Tensor* before = run_.tensor(embedded);
  if (sums.empty() || before == nullptr) return embedded;
  if (before->known && same_bytes(*before, sums.front())) {
    for (const Index one : sums) copy(embedded, one, "embed_sum");
    return embedded;
  }
  return emit("embed_sum", OpKind::dumped, {{"x", embedded, {}}}, {"resid", sums});
}

/// What says where a layer's rows stand and how they are rotated.
void PassBuilder::take_layer_parameters() {
  for (const std::string_view role : {"positions", "mask", "slot_mapping", "block_table", "seq_lens"}) {
    for (const Index index : find_role(role)) {
      const TensorId id = emit_parameter(index);
      if (role == "positions") positions_ = id;
    }
  }
  take_layer_tables();
}

/// Whether most norms behind attention were given something else than what attention put out; nothing where no layer
/// has both.
std::optional<bool> PassBuilder::norms_other_than_branch() {
  const auto known = norms_other_.find(scope_.tower);
  if (known != norms_other_.end()) return known->second;
  const Scope before = scope_;
  int same = 0;
  int other = 0;
  for (const auto& [scope, members] : members_) {
    if (scope.tower != before.tower || !scope.layer || scope.expert) continue;
    scope_ = scope;
    const std::vector<Index> given = find("attn_post_norm", Port::input);
    std::vector<Index> branch = find("self_attn", Port::output);
    for (const Index index : find("o_proj", Port::output)) branch.push_back(index);
    if (given.empty() || branch.empty()) continue;
    const bool equal =
        std::any_of(branch.begin(), branch.end(), [&](Index index) { return same_bytes(index, given.front()); });
    ++(equal ? same : other);
  }
  scope_ = before;
  return norms_other_[before.tower] = same + other == 0 ? std::nullopt : std::optional(other > same);
}

/// Whether the norm behind attention is of the sum with the residual, as BERT's, MPNet's and GTE's: what it was given
/// decides, else its name, where the layer's attention ends with it.
bool PassBuilder::norms_sum() {
  const std::vector<Index> norms = find("attn_post_norm", Port::output);
  if (norms.empty()) return false;
  if (const auto other = norms_other_than_branch()) return *other;
  if (seen("attn_norm")) return false;
  const std::string& name = tensor(norms.front()).name;
  return name.find(".attention.") != std::string::npos ||
         name.find("output", name.rfind('/') + 1) < name.rfind("output");
}

/// A norm of the layer. One that no layer dumps is there all the same, where the model has none behind its branches.
TensorId PassBuilder::normed(std::string_view op, TensorId x) {
  if (seen(op)) return norm(op, x);
  const bool after = seen("attn_post_norm") || seen("mlp_post_norm");
  return after ? x : emit(std::string(op), OpKind::block, {{"x", x, {}}}, {"out"});
}

/// What attention gave beside its output, where the layer hands it on (Falcon).
void PassBuilder::take_probabilities_of_layer() {
  const std::vector<Index> own = outputs_of("softmax", "probs");
  for (const Index index : find("layer", Port::output, Form::value, 1)) {
    if (own.empty() || tensor(index).shape.size() != 4 || tensor(index).shape != tensor(own.front()).shape) continue;
    const auto roles = roles_.find(scope_);
    std::erase_if(roles->second, [&](const auto& one) { return one.second == index; });
    run_.dump_.tensors[index].at.role = "probs";
    roles->second.emplace(std::pair{std::string("probs"), Form::value}, index);
  }
}

TensorId PassBuilder::layer(TensorId x) {
  take_layer_parameters();
  take_probabilities_of_layer();
  x = input_of("layer", x);
  if (is_here("pre_norm")) x = norm("pre_norm", x);  // of the first layer alone, RWKV
  std::vector<Index> outs = outputs_of("layer", "resid");
  std::erase_if(outs, [&](Index index) { return tensor(index).at.op != "layer" && tensor(index).at.op != "resid"; });
  const bool inside = seen_any(kAttentionOps) || seen_any(kMlpOps) || seen_any(kMixtureOps) ||
                      seen_any({"self_attn", "mlp", "attn_norm", "mlp_norm"});
  if (!inside) return emit("layer", OpKind::block, {{"x", x, {}}}, {"resid", outs});
  if (is_mlp_alone()) return mlp_layer(x, std::move(outs));
  if (residual_ != 0 || adds_in_norm()) return fused_layer(x, outs);
  const bool before_alone = norms_before_alone();
  const auto behind = [&](std::string_view op) { return seen(op) && !before_alone; };
  const bool sandwich = (behind("attn_post_norm") || behind("mlp_post_norm")) && !norms_sum();
  const TensorId attention_in = normed("attn_norm", x);
  TensorId branch = attention(attention_in);
  const TensorId attention_out = branch;
  TensorId middle = 0;
  if (sandwich) {
    if (behind("attn_post_norm")) branch = norm("attn_post_norm", branch);
    middle = residual("attn_residual", x, branch);
  } else if (holds_residual(branch, "mlp_norm")) {
    middle = branch;
  } else {
    middle = residual("attn_residual", x, branch);
    if (behind("attn_post_norm")) middle = norm("attn_post_norm", middle);
  }
  // Where the sum of both branches has a name they stand side by side, as in GPT-NeoX: the second one's norm reads what
  // the first one's does.
  const bool parallel = seen("branch_sum") && !find("branch_sum", Port::output).empty();
  const bool reads_stream = parallel || geometry_[scope_.tower].parallel;
  const bool shares_norm = reads_stream && seen("attn_norm") && !seen("mlp_norm");
  branch = mlp(shares_norm ? attention_in : normed("mlp_norm", reads_stream ? x : middle));
  if (sandwich && behind("mlp_post_norm")) branch = norm("mlp_post_norm", branch);
  // What vLLM calls a layer's output is its MLP's, with the sum beside it.
  std::erase_if(outs, [&](Index index) {
    const Tensor* made = run_.tensor(branch);
    if (made == nullptr || !made->known || !same_bytes(*made, index)) return false;
    copy(branch, index, "layer");
    return true;
  });
  for (const Index index : find("layer", Port::output, Form::value, 1)) {
    if (tensor(index).shape.size() <= 3) outs.push_back(index);
  }
  if (parallel) return residual("mlp_residual", x, residual("branch_sum", attention_out, branch), outs);
  const bool norm_last = !sandwich && behind("mlp_post_norm");
  TensorId out = residual("mlp_residual", middle, branch, norm_last ? std::vector<Index>{} : outs);
  if (!norm_last) return out;
  out = norm("mlp_post_norm", out);
  for (const Index index : outs) copy(out, index, "layer");
  return out;
}

/// Whether the layer is an MLP and nothing else, as every second one of Nemotron-H: what looks like its attention gives
/// what the MLP's last product gives, or holds a router or experts.
bool PassBuilder::is_mlp_alone() {
  const std::vector<Index> whole = find("self_attn", Port::output);
  if (whole.empty() || std::any_of(std::begin(kAttentionOps), std::end(kAttentionOps),
                                   [this](std::string_view op) { return is_here(op); }))
    return false;
  const std::vector<Index> down = find("down_proj", Port::output);
  if (!down.empty() && same_bytes(whole.front(), down.front())) return true;
  const std::string inside = tensor(whole.front()).at.module + '.';
  const auto within = [&](std::string_view op) {
    const std::vector<Index> parts = find(op, Port::output);
    return !parts.empty() && tensor(parts.front()).at.module.starts_with(inside);
  };
  return within("router") || within("experts");
}

/// Whether anything of an op was dumped in the layer.
bool PassBuilder::is_here(std::string_view op) const {
  return !find(op, Port::output).empty() || !find(op, Port::input).empty() || !find(op, Port::state).empty();
}

/// Whether the layer has its norms before both branches and none behind, where others of the model have some: OLMo
/// Hybrid's layers without attention.
bool PassBuilder::norms_before_alone() const {
  return is_here("attn_norm") && is_here("mlp_norm") && !is_here("attn_post_norm") && !is_here("mlp_post_norm");
}

TensorId PassBuilder::norm(std::string_view op, TensorId x) { return norm_of(op, input_of(op, x)); }

TensorId PassBuilder::norm_of(std::string_view op, TensorId x) {
  Inputs inputs{{"x", x, {}}};
  give_parameter(inputs, "weight", parameter(op, "weight"));
  give_parameter(inputs, "bias", parameter(op, "bias"));
  std::vector<Index> outs = find(op, Port::output);
  if (op == "q_norm" || op == "k_norm") {
    for (const Index index : find_role(op == "q_norm" ? "q_normed" : "k_normed")) outs.push_back(index);
  }
  return emit(std::string(op), OpKind::layer_norm, std::move(inputs), {"out", outs});
}

/// What a weight's checkpoint says of the product with it.
OpAttributes PassBuilder::product_with(std::optional<Index> weight) const {
  const auto said = weight ? tensor(*weight).product : nullptr;
  return said != nullptr ? *said : GemmAttributes{};
}

/// A scale or a zero point of what an op reads: of the pass, or a checkpoint's for all passes.
std::optional<PassBuilder::Index> PassBuilder::of_input(std::string_view op, Form form) {
  if (const std::vector<Index> own = find(op, Port::input, form); !own.empty()) return own.front();
  return parameter(op, "x", form);
}

TensorId PassBuilder::linear(std::string_view op, TensorId x, std::string_view role, const std::vector<Index>& more,
                             bool own_output) {
  const Operand in = with_forms(op, Port::input, input_of(op, x));
  Inputs inputs{
      {"x", in.x, {}}, {"codes", in.codes, {}}, {"x_scale", in.scale, {}}, {"x_zero_point", in.zero_point, {}}};
  // Scales of a cast whose codes were not dumped; a module of another kind of scale has that one beside its output.
  if (in.scale == 0 && find(op, Port::input, Form::dequantised).empty()) {
    give_parameter(inputs, "x_scale", of_input(op, Form::scale));
    give_parameter(inputs, "x_zero_point", of_input(op, Form::zero_point));
  }
  const std::optional<Index> weight = parameter(op, "weight");
  const OpAttributes product = product_with(weight);
  give_parameter(inputs, "weight", weight);
  give_parameter(inputs, "bias", parameter(op, "bias"));
  if (weight && tensor(*weight).decoded) {
    give_parameter(inputs, "weight_served", parameter(op, "weight", Form::dequantised));
  } else {
    give_parameter(inputs, "weight_scale", parameter(op, "weight", Form::scale));
    give_parameter(inputs, "weight_scale_2", parameter(op, "weight", Form::second_scale));
  }
  std::vector<Index> outs = own_output ? find(op, Port::output) : std::vector<Index>{};
  for (const Index index : more) {
    if (std::find(outs.begin(), outs.end(), index) == outs.end()) outs.push_back(index);
  }
  // A rank's part of a sum, and the sum.
  const std::vector<Index> partial = find(op, Port::output, Form::partial);
  if (!partial.empty()) {
    const TensorId part = emit(std::string(op), OpKind::gemm, std::move(inputs), {"partial", partial}, product);
    return emit(std::string(op) + "_all_reduce", OpKind::all_reduce, {{"x", part, {}}}, {std::string(role), outs});
  }
  const TensorId out = emit(std::string(op), OpKind::gemm, std::move(inputs), {std::string(role), outs}, product);
  return with_forms(op, Port::output, out).x;
}

TensorId PassBuilder::residual(std::string_view op, TensorId a, TensorId b, std::vector<Index> more) {
  std::vector<Index> outs = find(op, Port::output);
  outs.insert(outs.end(), more.begin(), more.end());
  // Its width is known though it may not be dumped.
  const TensorId out = emit(std::string(op), OpKind::residual_add, {{"a", a, {}}, {"b", b, {}}}, {"out", outs});
  Tensor& made = *tensor_of(out);
  const Tensor* left = run_.tensor(a);
  const Tensor* right = run_.tensor(b);
  if (!made.known) made.channels = std::max(left ? left->channels : 0, right ? right->channels : 0);
  return out;
}

TensorId PassBuilder::mlp(TensorId x) {
  const auto outs = find("mlp", Port::output);
  TensorId out = 0;
  if (!seen_any(kMlpOps) && !seen_any(kMixtureOps)) {
    return emit("mlp", OpKind::block, {{"x", input_of("mlp", x), {}}}, {"mlp_out", outs});
  }
  x = input_of("mlp", x);
  out = has_mixture() ? with_shared_expert(mixture(x)) : gated(x);
  return whole("mlp", out);
}

/// What a module of modules puts out: what its last part did, what else it did, or a sum over ranks.
TensorId PassBuilder::whole(std::string_view op, TensorId inner) {
  for (const Index index : find(op, Port::output)) {
    const Tensor* made = run_.tensor(inner);
    const Tensor described = describe(index, made->role);
    const bool alike = described.axis == made->axis && (made->channels == 0 || made->channels == described.channels);
    if (!made->known && alike) {
      bind(inner, index);
    } else if (made->known && (made->stated || same_bytes(*made, index))) {
      copy(inner, index, op);
    } else if (!appears_elsewhere(index)) {
      inner = emit(std::string(op), run_.has_ranks_ ? OpKind::all_reduce : OpKind::block, {{"x", inner, {}}},
                   {"out", {index}});
    }
  }
  return inner;
}

/// Whether another tensor of the pass, not placed yet, holds the same: BERT's attention ends with its norm.
bool PassBuilder::appears_elsewhere(Index index) {
  const DumpTensor& one = tensor(index);
  const auto members = members_.find(scope_);
  return std::any_of(members->second.begin(), members->second.end(), [&](const auto& member) {
    const DumpTensor& other = tensor(member.second);
    return member.second != index && !placed_.contains(member.second) && other.shape == one.shape &&
           other.health.absmax == one.health.absmax && one.health.min < one.health.max &&
           same_bytes(member.second, index);
  });
}

/// What an activation without a gate is given: the projection before it, under the name of its input or under its own.
TensorId PassBuilder::ungated(TensorId projected) {
  const std::vector<Index> given = find("act", Port::input);
  const Tensor* want = run_.tensor(projected);
  if (given.empty() || want == nullptr) return projected;
  // Another's bytes are those of a gate whose projection was not dumped.
  const bool same = !want->known || same_bytes(*want, given.front());
  return same ? input_of("act", projected) : projected;
}

TensorId PassBuilder::gated(TensorId x) {
  ActivationAttributes form;
  Inputs inputs;
  if (seen("gate_up_proj")) {
    inputs.push_back({"gate_up", linear("gate_up_proj", x, "gate_up"), {}});
  } else {
    const bool gate = seen("gate_proj") || seen("gate");
    if (gate) inputs.push_back({"gate", linear("gate_proj", x, "gate", find_role("gate")), {}});
    inputs.push_back({gate ? "up" : "x", linear("up_proj", x, "up", find_role("up")), {}});
  }
  std::vector<Index> acts = outputs_of("act", "act");
  std::erase_if(acts, [&](Index index) { return tensor(index).at.port == Port::input; });
  // The activation module of a gated MLP puts out act(gate) alone; its product with `up` goes into the next one.
  const std::vector<Index> products = find("down_proj", Port::input);
  TensorId active = 0;
  const bool of_module = !acts.empty() && tensor(acts.front()).at.kind == OpKind::activation;
  if (of_module && products.empty() && inputs.size() == 2) {
    // Which of the two it is shows in its numbers, and in what comes after.
    const TensorId act =
        emit("act", OpKind::activation, {{"x", inputs.front().tensor, {}}, {"maybe_up", inputs.back().tensor, {}}},
             {"out", acts});
    active =
        emit("act_mul", OpKind::activation, {{"product", act, {}}, {"maybe_up", inputs.back().tensor, {}}}, {"out"});
  } else if (of_module && !products.empty() && inputs.size() == 2 && !same_bytes(acts.front(), products.front())) {
    const TensorId gate = input_of("act", inputs.front().tensor);
    const TensorId alone = emit("act", OpKind::activation, {{"x", gate, {}}}, {"out", acts});
    active = emit("act_mul", OpKind::activation, {{"product", alone, {}}, {"up", inputs.back().tensor, {}}}, {"out"});
  } else if (of_module && !products.empty() && inputs.front().role == "gate_up" &&
             !same_bytes(acts.front(), products.front())) {
    const TensorId gate = input_of("act", 0);
    const TensorId alone =
        emit("act", OpKind::activation, {{"x", gate, {}}, {"half_of", inputs.front().tensor, {}}}, {"out", acts});
    active =
        emit("act_mul", OpKind::activation, {{"product", alone, {}}, {"half_of", inputs.front().tensor, {}}}, {"out"});
  } else if (of_module && products.empty() && inputs.front().role == "gate_up" && find("act", Port::input).empty()) {
    // Of half of what is fused transformers' module makes act(gate), and vLLM's the product with the other half.
    active = emit("act", OpKind::activation, std::move(inputs), {"out"}, form);
    emit("act_module", OpKind::dumped, {{"x", active, {}}}, {"out", acts});
  } else {
    if (inputs.size() == 1 && inputs.front().role == "x") inputs.front().tensor = ungated(inputs.front().tensor);
    active = emit("act", OpKind::activation, std::move(inputs), {"out", acts}, form);
  }
  return linear("down_proj", active, "mlp_out", find_role("mlp_out"));
}

/// What a dump calls raw is the product; what has the plain name beside it is behind the cap, unless it is the same.
TensorId PassBuilder::logits_of(TensorId x) {
  const std::vector<Index> raw = find_role("raw_logits");
  if (raw.empty()) return linear("lm_head", x, "logits", find_role("logits"));
  std::vector<Index> plain = find("lm_head", Port::output);
  for (const Index index : find_role("logits")) {
    if (std::find(plain.begin(), plain.end(), index) == plain.end()) plain.push_back(index);
  }
  std::vector<Index> uncapped = raw;
  std::vector<Index> capped;
  for (const Index index : plain) (same_bytes(raw.front(), index) ? uncapped : capped).push_back(index);
  const TensorId made = linear("lm_head", x, "logits", uncapped, false);
  return capped.empty() ? made : emit("logits_softcap", OpKind::dumped, {{"x", made, {}}}, {"logits", capped});
}

/// The rows that logits are made of, where a module is given them and computes the product itself: vLLM's
/// LogitsProcessor has the last row of each request, and lm_head has no hook.
TensorId PassBuilder::selected(TensorId x) {
  const std::vector<Index> given = find("logits_processor", Port::input);
  const Tensor* stream = run_.tensor(x);
  if (given.empty() || stream == nullptr || !find("lm_head", Port::input).empty()) return x;
  return describe(given.front(), stream->role).channels == stream->channels ? input_of("logits_processor", x) : x;
}

void PassBuilder::head(TensorId x) {
  if (residual_ != 0) {
    const TensorId stream = std::exchange(residual_, 0);
    x = seen("final_norm") ? fused_norm("final_norm", "residual_out", stream, x, {}).normed
                           : residual("residual_out", stream, x);
  } else if (seen("final_norm")) {
    x = norm("final_norm", x);
  }
  if (!seen_any({"lm_head", "logits", "logits_processor"})) return;
  const TensorId logits = logits_of(selected(x));
  for (const Index index : find("logits_processor", Port::output)) copy(logits, index, "logits_processor");
  TensorId chosen_by = logits;
  // Penalties, a grammar, a temperature: which of them is not said.
  for (const Index index : find_role("processed_logits"))
    chosen_by = emit("processed_logits", OpKind::dumped, {{"x", chosen_by, {}}}, {"processed_logits", {index}});
  for (const Index index : find_role("scaled_logits")) {
    Inputs inputs{{"x", chosen_by, {}}};
    give_parameter(inputs, "temperature", parameter("temperature", "temperature"));
    chosen_by = emit("scaled_logits", OpKind::token_softmax, std::move(inputs), {"scaled_logits", {index}});
  }
  for (const Index index : find_role("token_probs")) {
    chosen_by = emit("token_softmax", OpKind::token_softmax, {{"logits", chosen_by, {}}}, {"probs", {index}});
  }
  const std::vector<Index> sampled = outputs_of("sampler", "sampled");
  if (!sampled.empty()) emit("argmax", OpKind::argmax, {{"logits", chosen_by, {}}}, {"token", sampled});
}

/// What has no place in the graph stands behind what was dumped before it.
void PassBuilder::leftovers(const Scope& scope) {
  const auto members = members_.find(scope);
  if (members == members_.end()) return;
  const Scope before = scope_;
  scope_ = scope;
  std::vector<Index> left;
  for (const auto& [key, index] : members->second) {
    if (!placed_.contains(index)) left.push_back(index);
  }
  place_in_order(std::move(left));
  scope_ = before;
}

/// As their names order them.
void PassBuilder::place_in_order(std::vector<Index> left) {
  std::sort(left.begin(), left.end(), [&](Index a, Index b) {
    const TensorName& x = tensor(a).at;
    const TensorName& y = tensor(b).at;
    return std::pair(x.order, a) < std::pair(y.order, b);
  });
  for (const Index index : left) place_leftover(index);
}

/// What a module of an unknown name does, by its weights: of two dimensions that lead from its input's width to its
/// output's, or of one.
OpKind PassBuilder::kind_by_shapes(const Inputs& inputs, const Tensor& out) {
  const Tensor* x = nullptr;
  const Tensor* weight = nullptr;
  for (const Input& one : inputs) {
    if (one.role == "x") x = run_.tensor(one.tensor);
    if (one.role == "weight") weight = run_.tensor(one.tensor);
  }
  if (x == nullptr || x->axis != out.axis || x->tokens != out.tokens) return OpKind::dumped;
  if (weight == nullptr) return x->channels == out.channels ? OpKind::activation : OpKind::dumped;
  if (weight->count() == x->channels * out.channels && weight->tokens > 1) return OpKind::gemm;
  return weight->count() == out.channels && x->channels == out.channels ? OpKind::layer_norm : OpKind::dumped;
}

/// What a module of a known name does, unless its weight says otherwise: a norm of rows has an element of it for each
/// channel of a row, one of queries or keys for each channel of a head. GroupNorm of an image is called norm1 too.
OpKind PassBuilder::kind_by_name(const TensorName& at, const Inputs& inputs, const Tensor& out) {
  if (at.kind != OpKind::layer_norm) return at.kind;
  const bool of_heads = at.op == "q_norm" || at.op == "k_norm";
  for (const Input& one : inputs) {
    const Tensor* weight = one.role == "weight" ? run_.tensor(one.tensor) : nullptr;
    if (weight == nullptr || weight->count() == 0 || weight->count() == out.channels) continue;
    if (!of_heads || out.channels % weight->count() != 0) return OpKind::dumped;
  }
  return at.kind;
}

/// Whether a name says which side of a module a tensor is: what the module does shows then.
bool PassBuilder::names_a_side(Index index) const {
  const std::string& name = run_.dump_.tensors[index].name;
  return std::any_of(std::begin(kSides), std::end(kSides),
                     [&](std::string_view side) { return name.find(side) != std::string::npos; });
}

void PassBuilder::note_unknown_name(Index index, std::string_view elements) {
  run_.not_understood_.push_back(
      {tensor(index).name, fmt::format("{}; its elements are {}", RunNote::kUnknownName, elements)});
}

void PassBuilder::place_leftover(Index index) {
  if (placed_.contains(index) || !placing_.insert(index).second) return;
  place_loose(index);
  placing_.erase(index);
}

void PassBuilder::place_loose(Index index) {
  const TensorName& at = tensor(index).at;
  if (is_parameter(tensor(index)) || is_given_integer(index)) {
    emit_parameter(index);
    return;
  }
  Inputs inputs;
  OpAttributes product = GemmAttributes{};
  const bool module = at.kind == OpKind::block;
  if (at.port == Port::input || !at.known || module) {
    auto same = same_bytes_before(index, 0);
    if (!same && at.port == Port::input) same = put_out_elsewhere(index);
    if (same) {
      emit(at.op + "_input", OpKind::copy, {{"x", *same, {}}}, {at.role, {index}});
      run_.last_op().by_name = at.known;
      if (!at.known && !names_a_side(index)) note_unknown_name(index, "equal to a tensor before it");
      return;
    }
  }
  // Of a module whose inputs were dumped, those; else whatever ran before.
  if (at.port == Port::output && at.form == Form::value) {
    for (auto [one, end] = shortcuts_[scope_].inputs.equal_range(at.module); one != end; ++one) {
      const auto& [number, other] = one->second;
      place_leftover(other);
      if (!emitted_.contains(other)) continue;
      const Form form = tensor(other).at.form;
      std::string role = number == 0 ? "x" : fmt::format("x{}", number);
      if (form == Form::scale) role += "_scale";
      if (form == Form::zero_point) role += "_zero_point";
      inputs.push_back({std::move(role), emitted_[other], {}});
    }
    const std::optional<Index> weight = parameter(at.known ? at.op : at.module, "weight");
    product = product_with(weight);
    give_parameter(inputs, "weight", weight);
    if (weight && tensor(*weight).decoded)
      give_parameter(inputs, "weight_served", parameter(at.known ? at.op : at.module, "weight", Form::dequantised));
    give_parameter(inputs, "bias", parameter(at.known ? at.op : at.module, "bias"));
  }
  const bool fed =
      std::any_of(inputs.begin(), inputs.end(), [](const Input& one) { return one.role.starts_with('x'); });
  if (!fed) inputs.push_back({"before", last_, {}});
  if (!at.known) note_unknown_name(index, "scanned");
  const Tensor out = describe(index, at.role);
  // What a module with submodules computes on its own is not known.
  const auto& modules = shortcuts_[scope_].inputs;
  const auto inside = modules.lower_bound(at.module + '.');
  const bool holds = inside != modules.end() && inside->first.starts_with(at.module + '.');
  const OpKind by_shape = at.known ? kind_by_name(at, inputs, out)
                          : !holds ? kind_by_shapes(inputs, out)
                                   : OpKind::block;
  const OpKind kind = fed ? by_shape : OpKind::dumped;
  const TensorId last = last_;
  emit(at.op, kind, std::move(inputs), {at.role, {index}},
       kind == OpKind::gemm ? product : OpAttributes(NoAttributes{}));
  run_.last_op().by_name = at.known;
  // The next op is not made of what is not understood.
  if (!at.known) last_ = last;
}

}  // namespace nanscope
