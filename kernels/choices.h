#pragma once
/// What a configuration may choose of an op: of its formula, its order of sums, or one of the ways in which production
/// kernels go wrong. The op's header says what each choice computes. Who holds a choice need not know the kernels.
#include <cstdint>

namespace nanscope::kernels {

// kernels/ops/activation.h
enum class ActivationKind : std::uint8_t {
  silu,
  gelu,
  gelu_tanh,
  relu_squared,
  swiglu,
  geglu_tanh,
  swiglu_clamped,
  glu
};

/// Whether the kind reads a second input, `up`.
constexpr bool is_gated(ActivationKind kind) {
  return kind == ActivationKind::swiglu || kind == ActivationKind::geglu_tanh ||
         kind == ActivationKind::swiglu_clamped || kind == ActivationKind::glu;
}

// kernels/ops/layer_norm.h
enum class NormKind : std::uint8_t { layer_norm, rms_norm };
/// one_pass: E[x^2] - E[x]^2. two_pass: E[(x - mean)^2]. welford: running mean and M2 (Welford 1962).
enum class VarianceForm : std::uint8_t { one_pass, two_pass, welford };
/// Order of the sums over a row. sequential: one accumulator, ascending. warp: 32 strided
/// accumulators, then the butterfly. pairwise: a balanced binary tree over the row (split at the
/// largest power of two below n), as a recursive pairwise sum.
enum class SumOrder : std::uint8_t { sequential, warp, pairwise };

// kernels/ops/softmax.h
/// additive: s + 0 or s + (-Inf): a NaN score stays NaN under the mask. select: masked scores are
/// replaced by -Inf. multiply: exp of the raw score times 1 or 0, the row maximum runs over all keys.
enum class MaskMode : std::uint8_t { additive, select, multiply };
/// What a maximum does with NaN. propagate: any NaN gives NaN (torch). ignore: NaN is passed over
/// (fmax, PTX max): a NaN in the row then hides until the sum.
enum class NanRule : std::uint8_t { propagate, ignore };

// kernels/ops/kv_read.h
/// How often a reader applies the scale: right, dropped (vllm PR #42580), folded in twice (vllm #39407; the
/// product of two scales is one factor, as in vllm-omni PR #5262), or its reciprocal.
enum class ScaleUse : std::uint8_t { once, none, twice, inverse };

// kernels/ops/block_quantise.h
enum class ScalePacking : std::uint8_t { rounded, unmasked };

// kernels/ops/tile_mix.h
enum class Diagonal : std::uint8_t { quantized, exact, past };

// kernels/ops/route.h
/// What makes a gate of a logit.
enum class RouterScore : std::uint8_t { sigmoid, softmax, softmax_of_chosen };
/// What a chosen expert is weighed by.
enum class RouterValue : std::uint8_t { gate, choice_minus_bias };
/// What a group of experts is chosen by: the sum of its two largest choices, or the largest.
enum class GroupScore : std::uint8_t { top_two, best };

// kernels/ops/all_reduce.h
enum class AllReduceOrder : std::uint8_t { rank, ring, tree };

// kernels/ops/argmax.h
/// first_greater: best = 0, then strictly greater wins: an all-NaN row gives 0. propagate: the first
/// NaN wins (torch.argmax). refuse: -1 for a row that holds a NaN.
enum class ArgmaxNan : std::uint8_t { first_greater, propagate, refuse };

}  // namespace nanscope::kernels
