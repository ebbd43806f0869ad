#pragma once
#include <cstdint>
#include <vector>

#include "gui/prepare/tensor_sheet.h"

/// What can be counted of the elements of a tensor, or of a part of it.
namespace nanscope::gui {

/// Values with |x| in [2^exponent, 2^(exponent + 1)).
struct ValueBin {
  int exponent = 0;
  std::uint64_t negative = 0;
  std::uint64_t positive = 0;
  std::uint64_t count() const { return negative + positive; }
};

/// Of the values as they are stored, scales left out; of rows that are nobody's nothing is counted.
struct TensorStatistics {
  FrontRange range;  ///< of the sheet's rows and columns
  bool whole = true;
  std::uint64_t elements = 0;
  std::uint64_t nan = 0;
  std::uint64_t positive_inf = 0;
  std::uint64_t negative_inf = 0;
  std::uint64_t clipped = 0;
  std::uint64_t zero = 0;
  // Of what is finite; nothing else means something when `finite` is 0.
  std::uint64_t finite = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  double deviation = 0;  ///< standard, of the elements themselves: sqrt(E[(x - mean)^2])
  double absmax = 0;
  std::vector<ValueBin> values;      ///< without gaps from the smallest to the largest magnitude; zeros are in none
  std::vector<std::uint64_t> codes;  ///< how many elements have each code, of wide formats each high byte
  int code_shift = 0;                ///< a code's bin is code >> code_shift
};

/// Of all elements of a sheet, of its head where it shows one; with a range, of what is in it. Nothing of a sheet
/// without elements.
TensorStatistics tensor_statistics(const TensorSheet& sheet, std::optional<FrontRange> range = std::nullopt);

}  // namespace nanscope::gui
