#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/result.h"

/// Norms of what makes attention's scores: S = x_i' M x_j x factor, M = W_Q W_K' of a head. Spectral norms throughout.
namespace nanscope {

/// A layer's projections as they stand behind its norm, out x in, row-major: the norm's gain is folded into the
/// columns, what its bias and the projections' own biases add stands apart.
struct QueryKeyWeights {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::vector<float> q;       ///< (heads * head_dim, width)
  std::vector<float> k;       ///< (kv_heads * head_dim, width)
  std::vector<float> q_bias;  ///< (heads * head_dim), or empty
  std::vector<float> k_bias;

  std::int64_t group() const { return heads / kv_heads; }
};

/// One query head with the key head that it reads.
struct HeadNorms {
  double interaction = 0;  ///< of M
  double query = 0;        ///< of W_Q
  double key = 0;          ///< of W_K
  double trace = 0;        ///< of M: what x' M x is on average, of tokens of norm sqrt(d) that point anywhere
  double spread = 0;       ///< standard deviation of the same: sqrt(2) times the Frobenius norm of (M + M') / 2
  double rotated = 0;      ///< the largest of M under the rotations asked for; 0: none was
  double query_bias = 0;   ///< Euclidean norm
  double key_bias = 0;
  double bias_terms = 0;    ///< norm(W_Q b_k) + norm(W_K b_q): times norm(x), what biases add at most
  double bias_product = 0;  ///< abs(b_q . b_k)
};

/// Angles of a rotary embedding by pair of channels (i, i + rotated / 2), radians a position; and the distances between
/// query and key that are tried.
struct RotationProbe {
  std::vector<float> frequencies;
  std::vector<std::int64_t> offsets;
};

/// Exact, from Gram matrices: norm(M)^2 is the largest eigenvalue of (W_K' W_K)(W_Q' W_Q), head_dim x head_dim; in
/// double. Time O(width x head_dim^2) a head. `threads` 0: one a core. Fails only when it was stopped.
Result<std::vector<HeadNorms>> head_norms(const QueryKeyWeights& weights, const RotationProbe& rotations, int threads,
                                          std::stop_token stop = {});

/// Power iteration on the layer's interaction, all heads side by side, M = W_Q Repeat(W_K)' (17 to 19): keys are not
/// repeated, a group's parts are added up. Scalar is float or double. What it gives is a lower bound that grows.
template <class Scalar>
class InteractionIteration {
 public:
  /// `start`: width values, not all 0.
  InteractionIteration(const QueryKeyWeights& weights, std::span<const Scalar> start, int threads = 0);
  /// One iteration; the norm so far: norm(M' u) with u = M v / norm(M v).
  double step();

 private:
  const QueryKeyWeights& weights_;
  int threads_;
  std::vector<Scalar> v_;
};
extern template class InteractionIteration<float>;
extern template class InteractionIteration<double>;

/// The start that cold iterations have here: fixed, and not along any axis.
std::vector<double> cold_start(std::int64_t width);

/// What power iterations come to, by Lanczos' method in f32: of the layer's interaction, all heads side by side, and
/// norm(W_Q) x norm(W_K repeated) (5). To about five digits.
double layer_norm_of(const QueryKeyWeights& weights, int threads = 0);
double naive_layer_norm(const QueryKeyWeights& weights, int threads = 0);

}  // namespace nanscope
