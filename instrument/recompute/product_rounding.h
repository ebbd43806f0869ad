#pragma once
#include <span>
#include <vector>

#include "core/numbers/format.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/values.h"

namespace nanscope {

/// A product of rows of x with a weight.
struct Products {
  std::vector<float> sums;      ///< rows x outputs
  std::vector<float> squares;   ///< of the weights of an output
  std::vector<double> squared;  ///< rows x outputs: the sum of the squares of the products; empty: not wanted
};

/// How a product rounds: its output, its sums and its operands.
struct Rounding {
  double output = 0;
  Format kept = Format::f32;
  double inner = kF32;
  double operand = 0;

  /// In a narrow output, its own rounding hides that of the sums.
  bool by_deviation() const { return output <= kF32 && inner <= kF32; }
};

/// The values, bounds and deviations of a product with a weight. `biases`: one an output, or none.
void put_products(const Block& x, const Products& made, std::span<const double> biases, const Rounding& rounding,
                  Prediction& into);

}  // namespace nanscope
