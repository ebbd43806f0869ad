/// Parts of heads that latent attention takes apart and puts together.
#include <algorithm>
#include <array>
#include <vector>

#include "instrument/engine/workspace.h"
#include "instrument/train/gradients.h"
#include "instrument/train/row_selection.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/embedding_gradient.h"

namespace nanscope::train {
namespace {

using kernels::TensorView;

/// Whose rows they are: numbers of heads over `share`.
TensorView row_numbers(Backward& backward, std::int64_t heads, std::int64_t share) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(heads));
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<std::int32_t>(i) / static_cast<std::int32_t>(share);
  return uploaded(backward, rows);
}

/// Zeros with `part` in columns of each head.
TensorView spread(Backward& backward, const TensorView& part, std::int64_t heads, std::int64_t columns,
                  std::int64_t first) {
  const TensorView out = zeros(backward, part.rows / heads, columns);
  backward.launch(kernels::EmbeddingArgs{.tokens = row_numbers(backward, part.rows, 1),
                                         .patch_rows = {},
                                         .table = part,
                                         .patches = {},
                                         .positions = {},
                                         .out = heads_of(out, heads, first, part.columns)});
  return out;
}

}  // namespace

/// Of the columns that are in no part, the gradient is 0.
void split_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const TapedTensor* x = backward.parts().tape.find(op.input("x"));
  const auto* split = std::get_if<SplitAttributes>(&op.attributes);
  if (x == nullptr || split == nullptr) return backward.fail_with("op " + op.name + " does not say what it splits");
  const std::int64_t heads = std::max<std::int64_t>(1, split->heads.value_or(1));
  const TensorView parts = heads_of(dout.view, heads, 0, dout.view.columns / heads);
  const TensorView dx = spread(backward, parts, heads, x->view.columns, split->first_channel.value_or(0));
  backward.at_rows();
  const ProbeTensor out = backward.output("dx", dx);
  const std::array inputs{ProbeInput{"dout", dout.id, {}}};
  backward.emit(op, OpKind::split_gradient, inputs, std::span(&out, 1), op.attributes);
  backward.add(op.input("x"), {dx, out.id});
}

/// What all heads share has the sum of their gradients, the first head's first.
void join_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const TapedTensor* x = backward.parts().tape.find(op.input("x"));
  const TapedTensor* shared = backward.parts().tape.find(op.input("shared"));
  const auto* join = std::get_if<JoinAttributes>(&op.attributes);
  if (x == nullptr || shared == nullptr || join == nullptr || join->heads.value_or(0) < 1) {
    return backward.fail_with("op " + op.name + " does not say what it joins");
  }
  const std::int64_t heads = *join->heads;
  const std::int64_t width = shared->view.columns;
  const std::int64_t own = dout.view.columns / heads - width;
  const TensorView dx = spread(backward, heads_of(dout.view, heads, 0, own), heads, x->view.columns, 0);
  const TensorView dshared = backward.memory(Format::f32, dout.view.rows, width);
  backward.launch(kernels::EmbeddingGradientArgs{.tokens = row_numbers(backward, dout.view.rows * heads, heads),
                                                 .dout = heads_of(dout.view, heads, own, width),
                                                 .out = dshared});
  backward.at_rows();
  const std::array outputs{backward.output("dx", dx), backward.output("dshared", dshared)};
  const std::array inputs{ProbeInput{"dout", dout.id, {}}};
  backward.emit(op, OpKind::join_gradient, inputs, outputs, op.attributes);
  backward.add(op.input("x"), {dx, outputs[0].id});
  backward.add(op.input("shared"), {dshared, outputs[1].id});
}

}  // namespace nanscope::train
