#include "instrument/train/backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "instrument/train/gradients.h"
#include "kernels/ops/residual_add.h"

namespace nanscope::train {

using kernels::TensorView;

GradientOf gradient_of(OpKind kind) {
  switch (kind) {
#define NANSCOPE_GRADIENT(name) \
  case OpKind::name:            \
    return &name##_gradient;
#include "instrument/train/gradients.def"
#undef NANSCOPE_GRADIENT
    default:
      return nullptr;
  }
}

void Backward::run(std::int64_t logits, const Live& gradient) {
  add(logits, gradient);
  const std::span<const TapedOp> ops = parts_.tape.ops();
  for (std::size_t i = ops.size(); i-- > 0 && emitter_.ok();) {
    const TapedOp& op = ops[i];
    parts_.scratch.reset();
    bool any = op.kind == OpKind::kv_store;
    for (const TapedTensor& one : op.outputs) any = any || gradients_.contains(one.id);
    // The rows that a cache took were given their gradients where it was read.
    if (!any || op.kind == OpKind::kv_store) continue;
    const GradientOf backward = gradient_of(op.kind);
    if (backward == nullptr) {
      return fail_with(
          fmt::format("op {}: kind {} has no gradient: such a model cannot be trained", op.name, name(op.kind)));
    }
    backward(*this, op);
  }
}

TensorView Backward::taken(Result<TensorView> matrix) {
  if (matrix) return *matrix;
  emitter_.check(tl::unexpected(matrix.error()));
  return {};
}

TensorView Backward::value(std::int64_t tensor) {
  const TapedTensor* found = parts_.tape.find(tensor);
  if (found != nullptr && found->view.given()) return found->view;
  fail_with(fmt::format("tensor {} of the forward pass was not kept", tensor));
  return {};
}

const TapedOp* Backward::maker(std::int64_t tensor) const {
  for (const TapedOp& op : parts_.tape.ops()) {
    for (const TapedTensor& one : op.outputs) {
      if (one.id == tensor) return &op;
    }
  }
  return nullptr;
}

const Weight* Backward::weight(std::string_view name) const {
  for (const Weight& one : parts_.model.weights) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

void Backward::at_rows() {
  if (sequences() == 1) {
    emitter_.set_place({0});
  } else {
    emitter_.set_place({0, Axis::rows, -1});
  }
}

void Backward::at_sequence(std::size_t index, Axis axis) {
  if (sequences() == 1) {
    emitter_.set_place({0, axis, -1});
  } else {
    emitter_.set_place({0, axis, static_cast<std::int64_t>(index)});
  }
}

void Backward::at_parameter() { emitter_.set_place({0, Axis::none, -1}); }

void Backward::emit(const TapedOp& op, OpKind kind, std::span<const ProbeInput> inputs,
                    std::span<const ProbeTensor> outputs, OpAttributes attributes) {
  OpPlan plan;
  plan.layer = op.layer;
  plan.name = op.name + "_grad";
  plan.kind = kind;
  plan.json = to_json(attributes);
  plan.attributes = std::move(attributes);
  emitter_.op(plan, inputs, outputs);
}

void Backward::add(std::int64_t tensor, const Live& gradient, const RowSelection* rows) {
  if (tensor != 0 && gradient.view.given()) gradients_[tensor].whole.push_back({gradient, rows});
}

const RowSelection* Backward::rows_of(const TapedTensor& tensor) const {
  const auto found = gradients_.find(tensor.id);
  if (found == gradients_.end() || found->second.whole.size() != 1 || !found->second.parts.empty()) return nullptr;
  return found->second.whole.front().rows;
}

void Backward::add_rows(std::int64_t tensor, std::int64_t first, const Live& part) {
  if (sequences() == 1) return add(tensor, part);
  if (tensor == 0 || !part.view.given()) return;
  Gradient& gradient = gradients_[tensor];
  if (!gradient.rows.view.given()) {
    const Span& last = parts_.spans.back();
    gradient.rows.view = memory(part.view.format, last.row + last.rows, part.view.columns);
  }
  if (!emitter_.ok()) return;
  const TensorView to = slice(gradient.rows.view, first, part.view.rows);
  const auto width = static_cast<std::size_t>(kernels::storage_size(part.view.format));
  emitter_.check(parts_.device.gather(
      to.data, part.view.data,
      {static_cast<std::size_t>(part.view.rows), static_cast<std::size_t>(part.view.columns) * width,
       static_cast<std::size_t>(part.view.stride) * width}));
  gradient.parts.push_back({"dx", part.id, {}});
}

void Backward::join_rows(const TapedOp& op, Gradient& gradient) {
  at_rows();
  const ProbeTensor out = output("dx", gradient.rows.view);
  TapedOp joined;
  joined.layer = op.layer;
  joined.name = op.name + "_rows";
  emit(joined, OpKind::gradient_rows, gradient.parts, std::span(&out, 1), NoAttributes{});
  gradient.whole.push_back({{gradient.rows.view, out.id}});
  gradient.parts.clear();
}

Live Backward::sum(const std::string& name, std::int64_t layer, const Live& a, const Live& b) {
  const TensorView out = memory(a.view.format, a.view.rows, a.view.columns);
  launch(kernels::ResidualAddArgs{.a = a.view, .b = b.view, .out = out});
  const ProbeTensor told = output("dx", out);
  TapedOp added;
  added.layer = layer;
  added.name = name + "_sum";
  const std::array inputs{ProbeInput{"a", a.id, {}}, ProbeInput{"b", b.id, {}}};
  emit(added, OpKind::gradient_sum, inputs, std::span(&told, 1), NoAttributes{});
  return {out, told.id};
}

Live Backward::gradient(const TapedTensor& tensor) {
  const auto found = gradients_.find(tensor.id);
  if (found == gradients_.end()) return {};
  Gradient& gradient = found->second;
  const TapedOp* op = maker(tensor.id);
  if (!gradient.parts.empty()) join_rows(*op, gradient);
  for (int sums = 1; gradient.whole.size() > 1 && emitter_.ok(); ++sums) {
    at_rows();
    // Each op of a layer has a place of its own.
    const std::string name = sums == 1 ? op->name : fmt::format("{}_{}", op->name, sums);
    gradient.whole[0] = {sum(name, op->layer, gradient.whole[0].live, gradient.whole[1].live)};
    gradient.whole.erase(gradient.whole.begin() + 1);
  }
  return gradient.whole.empty() ? Live{} : gradient.whole.front().live;
}

void Backward::add_to_weight(std::string_view name, const Live& gradient) {
  const auto found = weights_.find(name);
  if (found == weights_.end()) {
    weights_.emplace(name, gradient);
    return;
  }
  at_parameter();
  const std::string base(name.substr(0, name.find('@')));
  std::string place = base;
  std::replace(place.begin(), place.end(), '.', '_');
  const int sums = ++weight_sums_[base];
  if (sums > 1) place += fmt::format("_{}", sums);
  found->second = sum(place, -1, found->second, gradient);
}

}  // namespace nanscope::train
