#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "instrument/recompute/values.h"

/// Functions that models put between the products of an MLP. Internal to the recipes.
namespace nanscope {

struct Activation {
  std::string_view name;
  double (*function)(double);
};

/// The usual ones first, "no activation" last.
std::span<const Activation> activations();
/// The one of an OpForm::variant; of a number that is none, the nearest.
const Activation& activation_at(int variant);

/// How steep a function is at most, there.
double slope(const Activation& form, double x);

/// Whether it holds gate and up, and adds 1 to that, as gpt-oss's does.
bool is_clamped(const Activation& form);

/// An element between the products of an MLP: its value is active * other.
struct Gated {
  double gate = 0;    ///< what the function was given
  double active = 0;  ///< what it made of that
  double other = 1;
  double slope = 1.2;    ///< of `active` by the gate, at most
  double roundings = 0;  ///< of values of this size, besides that of the function and that of the product
};

/// `form` is that of an activation or of a mixture; without `up` the gate stands alone.
Gated gated_element(const OpForm& form, double gate, std::optional<double> up);
/// How far gelu_tanh is off when each of its steps is rounded: 1 + tanh loses all digits where tanh is near -1.
double gelu_tanh_error(double x, double u);

/// OpForm::shift of an activation: how gate and up lie in a fused projection.
enum Halves : int { kGateFirst = 0, kUpFirst = 1, kInterleaved = 2 };

/// Where element `at` of the gate, or of up, lies in a fused row of two times `width` elements.
constexpr std::int64_t place_in_halves(int halves, bool gate, std::int64_t at, std::int64_t width) {
  if (halves == kInterleaved) return 2 * at + (gate ? 0 : 1);
  return gate == (halves != kUpFirst) ? at : width + at;
}

}  // namespace nanscope
