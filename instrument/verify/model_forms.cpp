#include "instrument/verify/model_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "instrument/model/family.h"
#include "instrument/model/rope_table.h"
#include "instrument/recompute/activations.h"
#include "instrument/recompute/keys.h"
#include "instrument/verify/tables.h"

namespace nanscope {
namespace {

std::string_view activation_name(kernels::ActivationKind kind) {
  switch (kind) {
    case kernels::ActivationKind::silu:
    case kernels::ActivationKind::swiglu:
      return "silu";
    case kernels::ActivationKind::gelu:
      return "gelu";
    case kernels::ActivationKind::gelu_tanh:
    case kernels::ActivationKind::geglu_tanh:
      return "gelu_tanh";
    case kernels::ActivationKind::relu_squared:
      return "relu squared";
    case kernels::ActivationKind::glu:
      return "sigmoid";
    case kernels::ActivationKind::swiglu_clamped:
      return "clamped swiglu";
  }
  return "silu";
}

/// Those of the recipe that `keep` says yes to.
template <class Keep>
std::vector<OpForm> some_of(std::vector<OpForm> forms, const Keep& keep) {
  std::erase_if(forms, [&](const OpForm& form) { return !keep(form); });
  return forms;
}

std::int64_t layer_of(const Op& op) { return op.layer.value_or(0); }

/// Whether the first rows of two tensors of the same width are known to be other numbers.
bool differ(Values& values, const Tensor& a, const Tensor& b) {
  if (!a.known || !b.known || a.tokens == 0 || b.tokens == 0 || a.channels != b.channels) return false;
  const auto first = values.run().row_values(a, 0);
  const auto second = values.run().row_values(b, 0);
  return first != nullptr && second != nullptr && *first != *second;
}

/// What the first layer is given, where that is dumped apart from the embedding's rows. Null: it is not.
const Tensor* copy_of_rows(Values& values, const Op& embedding) {
  const Tensor* made = values.run().result(embedding);
  for (const Op& op : values.run().content(embedding.step).ops) {
    if (made == nullptr || op.kind != OpKind::copy || op.input("x") != made->id) continue;
    const Tensor* copy = values.run().result(op);
    if (copy != nullptr && copy->known) return copy;
  }
  return nullptr;
}

/// Whether an embedding put out rows of its weight as they are: nearer to them than to them times `scale`.
bool holds_rows(Values& values, const Op& op, const Tensor& out, double scale) {
  const Tensor* weight = values.run().input(op, "weight");
  const Tensor* tokens = values.run().input(op, "tokens");
  if (weight == nullptr || tokens == nullptr || !out.known || out.tokens == 0 || weight->channels != out.channels)
    return false;
  const auto ids = values.run().values(*tokens);
  if (!ids || ids->empty() || !((*ids)[0] >= 0) || (*ids)[0] >= static_cast<float>(weight->tokens)) return false;
  const auto found = values.run().row_values(out, 0);
  const auto row = values.run().row_values(*weight, static_cast<std::int64_t>((*ids)[0]));
  if (found == nullptr || row == nullptr) return false;
  double plain = 0;
  double scaled = 0;
  for (std::size_t i = 0; i < found->size(); ++i) {
    plain += std::abs(double{(*found)[i]} - double{(*row)[i]});
    scaled += std::abs(double{(*found)[i]} - scale * double{(*row)[i]});
  }
  return plain < scaled;
}

/// The heads of the queries that attention is given: a rank of tensor parallelism has a part of the model's.
std::int64_t heads_given(Values& values, const Op& op, const ModelConfig& model) {
  const Tensor* q = values.run().input(op, "q");
  const bool whole = q != nullptr && q->channels > 0 && q->channels % model.head_dim == 0;
  return whole ? q->channels / model.head_dim : model.heads;
}

}  // namespace

int pairing(const ModelConfig& model) { return model.rope_pairs == RopePairs::neighbours ? kNeighbours : kHalves; }

int activation_variant(kernels::ActivationKind kind) {
  const auto all = activations();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Activation& one) { return one.name == activation_name(kind); });
  return static_cast<int>(found - all.begin());
}

std::int64_t ModelForms::window(const Op& op) const { return window_of(spec_.model, layer_of(op)); }

bool ModelForms::local(const Op& op) const { return spec_.model.local_rope_base > 0 && window(op) > 0; }

std::shared_ptr<const RopeAngles> ModelForms::angles(bool local, std::int64_t context) const {
  auto made = std::make_shared<RopeAngles>();
  RopeTable table = rope_table(spec_.model, spec_.rope, local, context);
  made->frequencies = std::move(table.frequencies);
  made->amplitude = table.amplitude;
  return made;
}

std::vector<OpForm> ModelForms::norm(Values& values, const Op& op) const {
  OpForm form;
  const bool layered = spec_.model.norm == kernels::NormKind::layer_norm;
  form.text = layered ? "layer norm" : "rms norm";
  form.variant = layered ? kLayer : kRms;
  form.number = double{spec_.norm_eps};
  const ModelFamily* family = find_family(spec_.model.family);
  const auto plus_one = [&](const WeightRule& rule) { return rule.offset != 0; };
  if (family != nullptr && std::any_of(family->parts.begin(), family->parts.end(), plus_one))
    form.scale_power = kOnePlus;
  const bool per_head = spec_.model.qk_norm && spec_.model.qk_norm_over == QkNormOver::head;
  if (per_head && (op.name == "q_norm" || op.name == "k_norm")) form.shift = static_cast<int>(spec_.model.head_dim);
  if (is_delta(spec_.model) && op.name == "inner_norm") {
    form.scale_power = 1;
    form.shift = static_cast<int>(spec_.model.delta_value_dim);
  }
  const Tensor* x = values.run().input(op, "x");
  if (x != nullptr && stands_for_scaled_rows(values, *x)) form.alpha = spec_.model.embedding_scale;
  std::vector<OpForm> forms{form};
  if (const auto served = values.served_format(op, "weight")) {
    form.weight_as = *served;
    form.text += fmt::format(", its weight rounded to {} when it was loaded", name(*served));
    forms.push_back(std::move(form));
  }
  add_unrounded_sums(values, op, forms);
  add_latent_eps(op, forms);
  return forms;
}

/// Norms on latents have an eps of their own in transformers, and that of all norms in vLLM.
void ModelForms::add_latent_eps(const Op& op, std::vector<OpForm>& forms) const {
  const double eps = spec_.model.latent_norm_eps;
  if (eps == 0 || eps == double{spec_.norm_eps} || (op.name != "q_a_norm" && op.name != "kv_a_norm")) return;
  std::vector<OpForm> own = forms;
  for (OpForm& form : own) {
    form.number = eps;
    form.text += fmt::format(" with an eps of {:g}", eps);
  }
  forms.insert(forms.begin(), own.begin(), own.end());
}

std::vector<OpForm> ModelForms::rope(Values& values, const Op& op) const {
  OpForm form;
  form.text = "the model's rotation";
  form.variant = pairing(spec_.model);
  const Tensor* x = values.run().input(op, "x");
  const std::int64_t channels = x != nullptr ? x->channels : 0;
  form.heads = channels > 0 ? std::max<std::int64_t>(1, channels / spec_.model.head_dim) : 0;
  if (form.heads == 0) form.heads = op.name.starts_with("k") ? spec_.model.kv_heads : spec_.model.heads;
  // Of latent attention the rotary parts may be alone: those of the queries, and what the heads of keys share.
  const bool parts = is_latent(spec_.model) && channels > 0 && op.name != "q_rope";
  if (!parts) form.rotated_from = spec_.model.rotated_from;
  if (parts) form.heads = std::max<std::int64_t>(1, channels / spec_.model.rotated);
  if (!is_rotary(spec_.model, layer_of(op))) form.variant = kNone;
  const bool given = values.run().input(op, "cos") != nullptr && values.run().input(op, "sin") != nullptr;
  if (given) form.rotated = rotated_channels(spec_.model);
  if (given) form.other = nearest_table(values, *this, op);
  if (given || form.variant == kNone) return {form};
  const Step* step = values.run().step(op.step);
  std::int64_t context = 0;
  for (std::size_t i = 0; step != nullptr && i < step->spans.size(); ++i)
    context = std::max(context, step->spans[i].context);
  form.angles = angles(local(op), context);
  return {form};
}

std::vector<OpForm> ModelForms::scores(Values& values, const Op& op, const Tensor& out) const {
  if (op.input("scores") != 0) return recipe_of(op.kind)->forms(values, op, out);
  OpForm form;
  form.text = "the model's scores";
  form.number = double{attention_scale(spec_.model, layer_of(op))};
  form.cap = spec_.model.attention_softcap;
  form.heads = heads_given(values, op, spec_.model);
  std::vector<OpForm> forms{form};
  add_own_keys(values, op, "k", forms);
  return forms;
}

std::vector<OpForm> ModelForms::softmax(const Op& op) const {
  OpForm form;
  form.text = "softmax of the scores that the model's mask leaves";
  form.variant = kCausal;
  form.window = window(op);
  return {form};
}

std::vector<OpForm> ModelForms::attention(Values& values, const Op& op) const {
  std::vector<OpForm> forms;
  for (const int rounded : {kUnrounded, kToActivations}) {
    OpForm form;
    form.text = rounded == kUnrounded ? "the model's attention" : "the model's attention, rounded on the way";
    form.variant = kCausal;
    form.window = window(op);
    form.heads = heads_given(values, op, spec_.model);
    form.number = double{attention_scale(spec_.model, layer_of(op))};
    form.cap = spec_.model.attention_softcap;
    form.rounded = rounded;
    forms.push_back(std::move(form));
  }
  add_own_keys(values, op, "k", forms);
  return forms;
}

std::vector<OpForm> ModelForms::embedding(Values& values, const Op& op) const {
  OpForm form;
  form.text = "the token's row";
  if (spec_.model.embedding_scale == 1 || op.name != "embed") return {form};
  OpForm scaled = form;
  scaled.number = spec_.model.embedding_scale;
  scaled.text = fmt::format("the token's row times {:.6g}", scaled.number);
  form.text += ", which is multiplied behind the module";
  // vLLM multiplies behind the module: what the first layer is given is no copy of the rows then.
  const Op* behind = values.run().find_op(op.step, std::nullopt, "embed_scaled");
  const Tensor* given = behind != nullptr ? values.run().result(*behind) : nullptr;
  if (given != nullptr && given->known) return {scaled, form};
  const Tensor* copy = copy_of_rows(values, op);
  // Without one the sum behind the first attention shows it: residual().
  if (copy == nullptr) return {scaled, form};
  return differ(values, *values.run().result(op), *copy) ? std::vector{form} : std::vector{scaled};
}

/// Of what the first layer is given where the embedding is multiplied behind its module, as Granite does it.
std::vector<OpForm> ModelForms::copied(Values& values, const Op& op, const Tensor& out,
                                       std::vector<OpForm> plain) const {
  const Tensor* x = values.run().input(op, "x");
  const Op* maker = x != nullptr ? values.run().maker(*x) : nullptr;
  const bool embedded = maker != nullptr && maker->kind == OpKind::embedding && maker->name == "embed";
  if (spec_.model.embedding_scale == 1 || !embedded || !differ(values, *x, out)) return plain;
  for (OpForm& form : plain) {
    form.number = spec_.model.embedding_scale;
    form.text = fmt::format("its input times {:.6g}", form.number);
  }
  return plain;
}

/// Whether a stream before the first layer is the embedding's rows as they are, so that what reads it was given them
/// times the model's factor: a dump without modules' inputs does not show that product.
bool ModelForms::stands_for_scaled_rows(Values& values, const Tensor& stream) const {
  const double scale = spec_.model.embedding_scale;
  const Op* maker = scale != 1 ? values.run().maker(stream) : nullptr;
  return maker != nullptr && maker->kind == OpKind::embedding && maker->name == "embed" &&
         holds_rows(values, *maker, stream, scale);
}

/// Factors are on what branches put out.
std::vector<OpForm> ModelForms::residual(Values& values, std::vector<OpForm> plain, const Op& op) const {
  if (op.name != "attn_residual" && op.name != "mlp_residual") return plain;
  const double factor = spec_.model.residual_scale;
  const double scale = spec_.model.embedding_scale;
  const Tensor* stream = values.run().input(op, "a");
  const bool rows = stream != nullptr && stands_for_scaled_rows(values, *stream);
  for (OpForm& form : plain) {
    if (factor != 1) form.number = factor;
    if (factor != 1) form.text += fmt::format(", the branch times {:.6g}", factor);
    if (rows) form.alpha = scale;
    if (rows) form.text += fmt::format(", the embedding times {:.6g}", scale);
  }
  return plain;
}

/// A product with the head, and behind its cap where one tensor stands for both, as what vLLM's LogitsProcessor puts
/// out.
std::vector<OpForm> ModelForms::head(std::vector<OpForm> plain, const Op& op) const {
  const double cap = spec_.model.logit_softcap;
  const double factor = spec_.model.logit_scale;
  if (op.name != "lm_head") return plain;
  const std::size_t count = plain.size();
  for (std::size_t i = 0; i < count && factor != 1; ++i) {
    OpForm scaled = plain[i];
    scaled.alpha = factor;
    scaled.text += fmt::format(", times {:.6g}", factor);
    plain.push_back(std::move(scaled));
  }
  if (cap <= 0) return plain;
  for (std::size_t i = 0; i < count; ++i) {
    OpForm capped = plain[i];
    capped.cap = cap;
    capped.text += fmt::format(", behind the cap of {:.6g}", cap);
    plain.push_back(std::move(capped));
  }
  return plain;
}

int ModelForms::halves(const Op& op, std::string_view fused) const {
  const ModelFamily* family = find_family(spec_.model.family);
  const auto in_turns = [](const WeightRule& rule) { return rule.part == WeightPart::gate_in_turns; };
  const bool turns = family != nullptr && std::any_of(family->parts.begin(), family->parts.end(), in_turns);
  return turns && op.input(fused) != 0 ? kInterleaved : kGateFirst;
}

std::vector<OpForm> ModelForms::clamped(std::vector<OpForm> forms) const {
  if (spec_.model.mlp != kernels::ActivationKind::swiglu_clamped) return forms;
  for (OpForm& form : forms) {
    form.alpha = spec_.model.swiglu_alpha;
    form.limit = spec_.model.swiglu_limit;
  }
  return forms;
}

/// With what chooses the experts, should the dump not say which. A bias of the router may be in no dump either.
std::vector<OpForm> ModelForms::routed(std::vector<OpForm> forms) const {
  if (spec_.moe.bias || spec_.moe.scale != 1 || spec_.moe.groups > 1) return forms;
  for (OpForm& form : forms) {
    form.top = spec_.model.experts_per_token;
    form.routed =
        (spec_.moe.score == kernels::RouterScore::sigmoid ? kSigmoid : 0) | (spec_.moe.normalise ? kNormed : 0);
  }
  return forms;
}

/// The sum of a mixture's chosen experts with the one that every token has. Where the dump does not show weights with
/// the model's factor in them, a server may multiply behind the chosen experts; or divide the shared one by it in f16,
/// where vLLM keeps the whole stream that much smaller (models/deepseek_v2.py of 0.32).
std::vector<OpForm> ModelForms::block_sum(Values& values, const Op& op, const Tensor& out) const {
  std::vector<OpForm> forms = recipe_of(op.kind)->forms(values, op, out);
  const Tensor* routed = values.run().input(op, "a");
  const Op* mixture = routed != nullptr ? values.run().maker(*routed) : nullptr;
  const Tensor* weights = mixture != nullptr ? values.run().input(*mixture, "weights") : nullptr;
  if (op.name != "shared_add") return forms;
  if (weights == nullptr || weights->known) return {forms.front()};
  const double factor = double{spec_.moe.scale};
  if (factor == 1) return forms;
  OpForm behind = forms.front();
  behind.variant = kFirstTimes;
  behind.number = factor;
  behind.text = fmt::format("the chosen experts times {:.6g}, and the shared one", factor);
  forms.push_back(behind);
  if (out.format != Format::f16) return forms;
  behind.variant = kSecondTimes;
  behind.number = 1 / factor;
  behind.text = fmt::format("the chosen experts, and the shared one divided by {:.6g}", factor);
  forms.push_back(std::move(behind));
  return forms;
}

bool ModelForms::decides(OpKind kind) {
  switch (kind) {
    case OpKind::layer_norm:
    case OpKind::rope:
    case OpKind::attention_scores:
    case OpKind::softmax:
    case OpKind::attention:
    case OpKind::embedding:
    case OpKind::activation:
    case OpKind::expert_mix:
    case OpKind::route:
    case OpKind::residual_add:
      return true;
    default:
      return false;
  }
}

std::vector<OpForm> ModelForms::of(Values& values, const Op& op, const Tensor& out) const {
  const Recipe* recipe = recipe_of(op.kind);
  if (recipe == nullptr) return {};
  const auto healthy = [&] { return recipe->forms(values, op, out); };
  const int activation = activation_variant(spec_.model.mlp);
  switch (op.kind) {
    case OpKind::layer_norm:
      return norm(values, op);
    case OpKind::rope:
      return rope(values, op);
    case OpKind::attention_scores:
      return scores(values, op, out);
    case OpKind::softmax:
      return softmax(op);
    case OpKind::attention:
      return attention(values, op);
    case OpKind::embedding:
      return embedding(values, op);
    case OpKind::gemm:
      return head(healthy(), op);
    case OpKind::copy:
      return copied(values, op, out, healthy());
    case OpKind::residual_add:
    case OpKind::gated_add:
      return op.name == "shared_add" ? block_sum(values, op, out) : residual(values, healthy(), op);
    case OpKind::activation: {
      const int none = static_cast<int>(activations().size()) - 1;
      const bool gates = op.name == "attn_gated";
      const int own = gates                     ? activation_variant(kernels::ActivationKind::glu)
                      : op.name == "delta_gate" ? activation_variant(kernels::ActivationKind::swiglu)
                                                : activation;
      return clamped(some_of(healthy(), [&](const OpForm& form) {
        return (form.variant == own || form.variant == none) && form.shift == halves(op, "gate_up");
      }));
    }
    case OpKind::expert_mix:
      return routed(clamped(some_of(healthy(), [&](const OpForm& form) {
        return op.input("expert_down") == 0 ||
               (form.variant == activation && form.shift == halves(op, "expert_gate_up"));
      })));
    case OpKind::route: {
      const bool sigmoid = spec_.moe.score == kernels::RouterScore::sigmoid;
      std::vector<OpForm> forms = some_of(healthy(), [&](const OpForm& form) {
        const bool scored = (form.variant & kAsGiven) != 0;
        return ((form.variant & kNormed) != 0) == spec_.moe.normalise &&
               (scored || ((form.variant & kSigmoid) != 0) == sigmoid);
      });
      for (OpForm& form : forms) form.number = double{spec_.moe.scale};
      return forms;
    }
    default:
      return healthy();
  }
}

}  // namespace nanscope
