#include <algorithm>

#include "instrument/train/gradients.h"

/// Codes and what they stand for have the gradient of what they were made of (straight-through, Bengio et al. 2013).
namespace nanscope::train {
namespace {

void pass(Backward& backward, const TapedOp& op) {
  const RowSelection* rows = backward.rows_of(op.outputs.front());
  const Live gradient = backward.gradient(op.outputs.front());
  const std::int64_t x = op.inputs.front().tensor;
  const TapedTensor* from = backward.parts().tape.find(x);
  // One sequence of a tensor of all, as queries are quantized.
  const bool part = from != nullptr && from->view.given() && from->view.rows != gradient.view.rows;
  if (!part) return backward.add(x, gradient, rows);
  backward.add_rows(x, backward.parts().spans[backward.sequence_of(op.outputs.front())].row, gradient);
}

}  // namespace

void quantise_gradient(Backward& backward, const TapedOp& op) { pass(backward, op); }
void dequantise_gradient(Backward& backward, const TapedOp& op) { pass(backward, op); }
void block_quantise_gradient(Backward& backward, const TapedOp& op) { pass(backward, op); }
void quantise_columns_gradient(Backward& backward, const TapedOp& op) { pass(backward, op); }
void block_dequantise_gradient(Backward& backward, const TapedOp& op) { pass(backward, op); }

/// Keys and values that are read are those of the step, which the layer's cache took before.
void kv_read_gradient(Backward& backward, const TapedOp& op) {
  const TapedOp* store = nullptr;
  for (const TapedOp& one : backward.parts().tape.ops()) {
    if (one.kind == OpKind::kv_store && one.layer == op.layer) store = &one;
  }
  if (store == nullptr) return backward.fail_with("op " + op.name + " reads keys that no op of the step stored");
  const std::size_t index = backward.sequence_of(op.outputs.front());
  const std::int64_t first = backward.parts().spans[index].row;
  // Whole blocks of the cache are read: what lies behind the last token is nobody's.
  Live dk = backward.gradient(op.outputs[0]);
  Live dv = backward.gradient(op.outputs[1]);
  for (Live* one : {&dk, &dv}) one->view.rows = std::min(one->view.rows, backward.parts().spans[index].rows);
  backward.add_rows(store->input("k"), first, dk);
  backward.add_rows(store->input("v"), first, dv);
}

}  // namespace nanscope::train
