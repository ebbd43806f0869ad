#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/result.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace nanscope {

/// Every buffer of a forward pass. Each holds one op's output; layers reuse them.
enum class Slot : std::uint8_t {
  tokens,
  patch_rows,
  kv_slots,
  blocks,
  key_slots,
  rope_table,
  local_rope_table,
  patches,
  patch_out,
  embed,
  attn_norm,
  stats,
  q,
  k,
  v,
  q_a,
  q_a_norm,
  kv_a,
  kv_latent,
  kv_a_norm,
  kv_b,
  k_shared,
  k_join,
  v_split,
  head_rows,
  token_rows,
  q_norm,
  k_norm,
  q_stats,
  k_stats,
  q_rope,
  k_rope,
  k_scales,
  v_scales,
  k_absmax,
  v_absmax,
  k_kept_scales,
  v_kept_scales,
  k_zeros,
  v_zeros,
  q_hadamard,
  k_hadamard,
  v_hadamard,
  k_leaving,
  v_leaving,
  leaving_slots,
  k_codes,
  v_codes,
  k_read,
  v_read,
  k_read_rope,
  scores,
  score_absmax,
  score_codes,
  exact_scores,
  tile_max,
  tile_sum,
  block_max,
  block_sum,
  mix_partials,
  q_block_codes,
  q_block_scales,
  q_block_read,
  k_block_codes,
  k_block_scales,
  k_block_read,
  v_block_codes,
  v_block_scales,
  v_block_read,
  p_block_codes,
  p_block_scales,
  p_block_read,
  score_scale,
  score_read,
  query_codes,
  query_scale,
  query_read,
  key_codes,
  key_scale,
  key_read,
  probs,
  mix,
  mix_hadamard,
  inner_norm,
  attn_codes,
  attn_scales,
  attn_read,
  o_codes,
  o_scales,
  o_read,
  o_proj,
  parts,
  reduced,
  attn_post_norm,
  attn_residual,
  recurrent_in,
  recurrent,
  recurrent_out,
  delta_z,
  delta_b,
  delta_a,
  q_conv,
  k_conv,
  v_conv,
  delta,
  delta_norm,
  delta_gate,
  attn_gate,
  attn_gated,
  mlp_norm,
  mlp_codes,
  mlp_scales,
  mlp_read,
  gate,
  up,
  act,
  act_codes,
  act_scales,
  act_read,
  down,
  router,
  expert_weights,
  expert_ids,
  experts,
  shared_expert,
  shared_gate,
  shared_sum,
  mlp_post_norm,
  mlp_residual,
  final_norm,
  logits,
  scaled_logits,
  logit_rows,
  capped_logits,
  token_mask,
  token_probs,
  argmax,
  end_rows,
  ends,
  pad_state,
  count_
};

/// Rows [first, first + rows) of a matrix.
inline kernels::TensorView slice(kernels::TensorView view, std::int64_t first, std::int64_t rows) {
  const std::int64_t row_bytes = view.stride * kernels::storage_size(view.format);
  if (view.given()) view.data = static_cast<std::byte*>(view.data) + first * row_bytes;
  view.rows = rows;
  return view;
}

/// Columns [first, first + columns) of a matrix.
inline kernels::TensorView columns_of(kernels::TensorView view, std::int64_t first, std::int64_t columns) {
  if (view.given()) view.data = static_cast<std::byte*>(view.data) + first * kernels::storage_size(view.format);
  view.columns = columns;
  return view;
}

/// Of rows without gaps: head h of token t as row t * heads + h, columns [first, first + width) of its own.
inline kernels::TensorView heads_of(kernels::TensorView view, std::int64_t heads, std::int64_t first,
                                    std::int64_t width) {
  view.rows *= heads;
  view.columns /= heads;
  view.stride = view.columns;
  return columns_of(view, first, width);
}

/// Device memory of a forward pass, kept between ops, steps and runs. A buffer grows when a step
/// needs more and is never cleared: every op writes its output whole.
class Workspace {
 public:
  explicit Workspace(kernels::Device& device) : device_(&device) {}
  /// Takes its buffers from `arena` while they fit, in the order of their first use.
  Workspace(kernels::Device& device, kernels::Buffer arena) : device_(&device), arena_(std::move(arena)) {}

  /// A contiguous rows x columns matrix in the slot's memory; what the slot held is lost.
  Result<kernels::TensorView> matrix(Slot slot, Format format, std::int64_t rows, std::int64_t columns);

 private:
  struct Memory {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    kernels::Buffer owner;
  };

  kernels::Device* device_;
  kernels::Buffer arena_;
  std::size_t used_ = 0;
  std::array<Memory, static_cast<std::size_t>(Slot::count_)> slots_;
};

}  // namespace nanscope
