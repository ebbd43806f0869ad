/// Layers whose attention a model does in a way of its own: without a rotation, or over another window.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "instrument/recompute/recompute.h"

namespace nanscope {

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
