/// Ops that a model does alike, and layers whose attention it does in a way of its own: without a rotation, or over
/// another window.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

/// The module that a tensor is of, whatever its layer, step and rank.
std::string without_numbers(std::string_view name) {
  std::string left;
  for (const char c : name) {
    if (c < '0' || c > '9') left += c;
  }
  return left;
}

/// What an op states that tells it from its like in other layers: layers with a window may have angles of their own.
std::string stated_apart(const Op& op) {
  if (const auto* rope = op.get<RopeAttributes>(); rope != nullptr && rope->base)
    return fmt::format("|{}", *rope->base);
  const auto* softmax = op.get<SoftmaxAttributes>();
  return softmax != nullptr && softmax->window ? fmt::format("|{}", *softmax->window) : std::string();
}

}  // namespace

/// Kinds of ops that models with layers of several kinds do in several ways: with or without a rotation, over a window
/// or over all keys.
bool Recomputer::depends_on_layer(OpKind kind) {
  return kind == OpKind::rope || kind == OpKind::attention_scores || kind == OpKind::softmax ||
         kind == OpKind::attention;
}

bool Recomputer::of_attention(OpKind kind) {
  return depends_on_layer(kind) || kind == OpKind::kv_store || kind == OpKind::kv_read || kind == OpKind::attention_mix;
}

/// From which kinds of ops the inputs of an op come, and which of them were dumped: where a dump lacks a tensor of one
/// layer or step, the next tensor before it may be another thing than in the others.
std::string Recomputer::what_it_reads(const Op& op) const {
  std::string text;
  for (const Input& input : op.inputs) {
    const Tensor* in = facts_.run.tensor(input.tensor);
    const Op* maker = in != nullptr ? facts_.run.maker(*in) : nullptr;
    if (maker == nullptr) continue;
    text += fmt::format("{}={}{},", input.role, in->known ? "" : "no ", nanscope::name(maker->kind));
  }
  return text;
}

/// The modules of a layer up to its attention's output projection: layers that differ in them, as linear attention and
/// softmax attention do, compute their attention in ways of their own.
const std::string& Recomputer::attention_modules(const Op& op) {
  std::string& names = attention_modules_[{op.step, *op.layer}];
  if (!names.empty()) return names;
  std::set<std::string> found;
  for (const Op& other : facts_.run.content(op.step).ops) {
    // Copies compute nothing: what is a copy of the stream in other layers is the embedding in the first.
    if (other.layer != op.layer || other.kind == OpKind::copy) continue;
    found.insert(other.name);
    if (other.name.ends_with("o_proj")) break;
  }
  names = fmt::format("{}", fmt::join(found, "+"));
  return names;
}

/// Whether a layer's cache holds the last keys of a sequence alone: its first step behind a prefill has a probability
/// or a score for fewer keys than the context has.
bool Recomputer::keeps_window(std::int64_t layer) {
  if (window_layers_) return window_layers_->contains(layer);
  window_layers_.emplace();
  const auto later = [](const Step& step) {
    return !step.spans.empty() &&
           std::all_of(step.spans.begin(), step.spans.end(), [](const Span& span) { return span.first_token > 0; });
  };
  const auto steps = facts_.run.steps();
  const auto step = std::find_if(steps.begin(), steps.end(), later);
  if (step == steps.end()) return false;
  const auto shortest = std::min_element(step->spans.begin(), step->spans.end(),
                                         [](const Span& a, const Span& b) { return a.context < b.context; });
  const std::int64_t context = shortest->context;
  for (const Op& op : facts_.run.content(step->id).ops) {
    const bool over_keys = op.kind == OpKind::softmax || op.kind == OpKind::attention_scores;
    const Tensor* out = over_keys && op.layer ? facts_.run.result(op) : nullptr;
    if (out != nullptr && out->known && out->count() > 0 && out->width() < context) window_layers_->insert(*op.layer);
  }
  return window_layers_->contains(layer);
}

/// Whether a product's input is cast in a way that its checkpoint says: kernels differ in how.
bool Recomputer::casts_input(const Op& op) {
  const auto* product = op.get<GemmAttributes>();
  return product != nullptr && product->input_format.has_value();
}

/// Ops that a model does alike: those of one name, whatever their layer. An expert is like another.
std::string Recomputer::group_of(const Op& op, const Tensor& out) {
  if (decided(op.kind)) return fmt::format("{}|{}", op.id, out.id);
  std::string name = op.name;
  if (name.starts_with("expert")) {
    const std::size_t end = name.find('_');
    if (end != std::string::npos) name = name.substr(end + 1);
  }
  std::string apart = stated_apart(op);
  // What modules of other names do says nothing of these: a pooler's activation is none of an MLP.
  if (op.kind == OpKind::copy || op.kind == OpKind::activation) apart += '|' + without_numbers(out.name);
  if (op.layer && depends_on_layer(op.kind)) {
    apart += '|' + attention_modules(op);
    if (keeps_window(*op.layer)) apart += "|window";
  }
  if (of_attention(op.kind)) apart += '|' + what_it_reads(op);
  if (casts_input(op)) apart += kCastInputs;
  if (op.layer && depends_on_layer(op.kind) && layers_apart_.contains(*op.layer)) apart += "|of layers apart";
  return fmt::format("{}|{}|{}|{}{}", nanscope::name(op.kind), name, out.role, circumstance(op), apart);
}

/// What else makes an op one of a kind. A prefill goes over its own keys, before they are quantised or after, where a
/// decode goes over a cache, and so does a prefill behind a prefix that is there. The stream before the first layer may
/// be more than the embedding, where it is the layer before it everywhere else.
std::string_view Recomputer::circumstance(const Op& op) const {
  const Step* step = facts_.run.step(op.step);
  const bool over_keys = op.kind == OpKind::kv_read || op.kind == OpKind::attention || op.kind == OpKind::softmax;
  if (over_keys && step != nullptr) {
    if (step->kind == StepKind::decode) return "decode";
    const bool behind =
        op.kind == OpKind::kv_read &&
        std::any_of(step->spans.begin(), step->spans.end(), [](const Span& span) { return span.first_token > 0; });
    return behind ? "prefill behind a prefix" : "prefill";
  }
  if (op.kind == OpKind::layer_norm && facts_.run.input(op, "weight") == nullptr) return "no weight";
  const Tensor* x = op.kind == OpKind::copy ? facts_.run.input(op, "x") : nullptr;
  const Op* maker = x != nullptr ? facts_.run.maker(*x) : nullptr;
  return maker != nullptr && maker->kind == OpKind::embedding ? "embedding" : "";
}

void Recomputer::run(std::span<const StepId> steps) {
  run_once(steps);
  const std::map<std::int64_t, bool> right = layers_right();
  std::set<std::int64_t> apart;
  for (const auto& [layer, comes_out] : right) {
    if (!comes_out) apart.insert(layer);
  }
  if (apart.empty() || apart.size() == right.size() || options_.model.forms || options_.stop.stop_requested()) return;
  Recomputer other(facts_, values_.arithmetic(), options_);
  other.layers_apart_ = apart;
  other.run_once(steps);
  // Each of them has to come out: what could not be recomputed in this way does not.
  const std::map<std::int64_t, bool> then = other.layers_right();
  const bool all = std::all_of(apart.begin(), apart.end(), [&](std::int64_t layer) {
    const auto found = then.find(layer);
    return found != then.end() && found->second;
  });
  if (all && other.off() < off()) take(other);
}

/// What another one found, and how. What was computed on the way is computed again where it is asked for.
void Recomputer::take(Recomputer& other) {
  layers_apart_ = std::move(other.layers_apart_);
  groups_ = std::move(other.groups_);
  first_groups_ = std::move(other.first_groups_);  // points into groups_, whose nodes stay where they are
  chosen_ = std::move(other.chosen_);
  grouped_ = std::move(other.grouped_);
  judged_whole_ = std::move(other.judged_whole_);
  results_ = std::move(other.results_);
  by_tensor_ = std::move(other.by_tensor_);
  not_recomputed_ = std::move(other.not_recomputed_);
  values_.forget();
}

std::size_t Recomputer::off() const {
  return static_cast<std::size_t>(std::count_if(results_.begin(), results_.end(), deviates));
}

/// Layers whose attention was recomputed, and whether it came out in any step.
std::map<std::int64_t, bool> Recomputer::layers_right() const {
  std::map<std::int64_t, bool> right;
  for (const Recomputed& result : results_) {
    const Op* op = facts_.run.op(result.op);
    if (op == nullptr || !op->layer || !depends_on_layer(op->kind)) continue;
    right[*op->layer] = right[*op->layer] || !deviates(result);
  }
  return right;
}

}  // namespace nanscope
