#pragma once
#include <cstddef>
#include <cstdint>

#include "instrument/train/backward.h"

/// What the backward products of attention read. Where attention is on blocks and train.attention_blocks is on, each
/// operand is quantized anew along what its product sums over: the mix's dout and v along channels for dp, p and dout
/// along queries for dv, ds along keys and k along tokens for dq, ds and q along queries for dk. Blocks along tokens
/// let a later token decide on the scale of an earlier one; attention.diagonal other than `quantized` keeps the tile
/// that a token lies in itself unquantized, as in the forward pass.
namespace nanscope::train {

/// Probabilities of a sequence, (rows, heads * keys): those of the tape, or, of a tiled softmax, which leaves them
/// without their sum, made again from the scores.
Live probabilities(Backward& backward, std::int64_t probs);

/// The last key that the first row of a sequence sees.
std::int64_t last_key_of_first_row(const Backward& backward, std::int64_t keys);

/// The op under the name that it has of one sequence.
TapedOp of_sequence(const Backward& backward, const TapedOp& op, std::size_t index);

struct MixOperands {
  Live dout_channels, v_channels;  ///< of dp
  Live dout_tokens, probs;         ///< of dv
  bool exact_diagonal = false;
};
MixOperands mix_operands(Backward& backward, const TapedOp& op, std::size_t index, const Live& dout, const Live& p,
                         const Live& v);

struct ScoresOperands {
  Live ds_keys, k_tokens;    ///< of dq
  Live ds_tokens, q_tokens;  ///< of dk
  bool exact_diagonal = false;
  bool tiled = false;
};
ScoresOperands scores_operands(Backward& backward, const TapedOp& op, std::size_t index, const Live& ds, const Live& q,
                               const Live& k);
/// dq = factor ds k into `out`.
void query_gradient(Backward& backward, const TapedOp& op, const ScoresOperands& read, const Live& ds, const Live& k,
                    float factor, const kernels::TensorView& out);

}  // namespace nanscope::train
