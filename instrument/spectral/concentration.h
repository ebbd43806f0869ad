#pragma once
#include <cstdint>
#include <span>
#include <string_view>

/// How far scores of random tokens stay below the largest that weights allow: the rank-aware tail of "Rank-Aware
/// Spectral Bounds on Attention Logits" (section 3.2). Its assumption: directions of tokens are independent and uniform
/// on the sphere. Equation numbers are the paper's.
namespace nanscope {

/// Shapes that the tail depends on.
struct TailShape {
  std::int64_t width = 0;     ///< of the model: d
  std::int64_t head_dim = 0;  ///< rank of a head's interaction: d_h
  std::int64_t heads = 0;     ///< query heads of all layers: N
  std::int64_t length = 0;    ///< tokens of a sequence: L
};

/// gamma: the smallest above 1 for which gamma - 1 - ln gamma >= (2 / d_h) ln(2 N L / delta) (12): with it the chance
/// that any key's projection is longer than sqrt(gamma d_h / d) is at most delta / 2.
double typicality(const TailShape& shape, double delta);

/// alpha_min = sqrt(2 gamma d_h ln(4 N L^2 / delta)) / d (13): a score is beyond alpha x the worst case with a chance
/// of at most delta, over all layers, heads and pairs of tokens.
double smallest_alpha(const TailShape& shape, double delta);

/// Of what a token's projection is along one direction, over the direction's length and the token's: beyond it with a
/// chance of at most delta, over all channels of queries and keys of all heads and tokens. sqrt(2 ln(4 N d_h L / delta)
/// / d): a cap of the sphere at height t has at most the part exp(-d t^2 / 2) of it (Ball 1997, "An Elementary
/// Introduction to Modern Convex Geometry", lemma 2.2). Not in the paper.
double smallest_element_alpha(const TailShape& shape, double delta);

/// The chance that (9) bounds by N (T1 + T2) (10, 11), for an alpha of one's own; at most 1. gamma is the one that
/// makes both terms equal: the sum is at most twice the smallest.
double overflow_chance(const TailShape& shape, double alpha);

/// A model of the paper's tables 2 and 3, with what they print.
struct PublishedShape {
  std::string_view name;
  std::int64_t layers, heads;
  TailShape shape;  ///< at the length of its table 8
  double gamma, alpha_min, alpha_used;
  double norm_mean, norm_max, norm_min;  ///< of its table 6
};
std::span<const PublishedShape> published_shapes();

}  // namespace nanscope
