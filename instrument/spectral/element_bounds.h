#pragma once
#include <cstdint>
#include <span>
#include <vector>

/// How large an element of a query or a key can become, from the weights alone: what fp8 attention casts before the
/// product.
namespace nanscope {

/// Of any element of a head.
struct ElementBounds {
  double worst_case = 0;  ///< norm(w) sqrt(d) and the bias, w being the row that makes the element
  double calibrated = 0;  ///< alpha norm(w) sqrt(d), and the bias
  double scale = 0;       ///< calibrated / (eta x largest): elements are divided by it
};

/// What becomes of a head's channels between projection and product.
struct ElementForm {
  std::int64_t head_dim = 0;
  std::int64_t pairs = 0;  ///< a rotary embedding turns channels i and i + pairs into each other
  double amplitude = 1;    ///< and multiplies them by this
  bool all_mixed = false;  ///< an orthonormal transform of the head follows
};

/// Of tokens of norm sqrt(width). Rows (heads * head_dim, width), row-major; bias (heads * head_dim), or empty. An
/// element of a pair is a unit combination of two rows w1, w2 at any position: its norm is at most the spectral norm of
/// [w1; w2]; of channels that are all mixed, at most that of the head's rows (by Frobenius' norm, which is above it).
std::vector<ElementBounds> element_bounds(std::span<const float> rows, std::span<const float> bias, std::int64_t width,
                                          const ElementForm& form, double alpha);

/// Behind a norm of queries or keys with that gain: of each head (head_dim of them), or over all (heads * head_dim).
/// A row of it has the norm sqrt(size) before the gain; nothing random is assumed.
std::vector<ElementBounds> element_bounds_of_norm(std::span<const float> gain, std::int64_t heads,
                                                  const ElementForm& form);

}  // namespace nanscope
