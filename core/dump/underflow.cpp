#include "core/dump/underflow.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace nanscope {

Underflow underflow_of(std::span<const float> source, std::span<const float> codes, float smallest_normal) {
  Underflow out;
  std::vector<float> magnitudes;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const float magnitude = std::abs(source[i]);
    if (!std::isfinite(magnitude) || magnitude == 0) continue;
    ++out.nonzero;
    out.lost += codes[i] == 0 ? 1 : 0;
    out.coarse += codes[i] != 0 && std::abs(codes[i]) < smallest_normal ? 1 : 0;
    magnitudes.push_back(magnitude);
    if (double{magnitude} > out.largest) {
      out.largest = double{magnitude};
      out.at = i;
    }
  }
  if (magnitudes.empty()) return out;
  auto middle = magnitudes.begin() + static_cast<std::ptrdiff_t>(magnitudes.size() / 2);
  std::nth_element(magnitudes.begin(), middle, magnitudes.end());
  out.median = double{*middle};
  return out;
}

}  // namespace nanscope
