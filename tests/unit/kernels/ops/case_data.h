#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/numbers/format.h"

namespace nanscope::kernels::cases {

/// Deterministic values in [-1, 1), multiples of 2^-23: s = s * 6364136223846793005 +
/// 1442695040888963407 mod 2^64, value = (s >> 40) * 2^-23 - 1.
class Sequence {
 public:
  explicit Sequence(std::uint64_t seed) : state_(seed) {}
  float next();

 private:
  std::uint64_t state_;
};

/// What a tensor holds. ordinary: finite values. zoo: ordinary rows with one special value each,
/// then a row of nothing else. wide: finite values over forty binades, whose sums round at almost every step.
enum class Fill : std::uint8_t { ordinary, zoo, wide };

/// The specials of a format, as codes: several NaNs, infinities, signed zeros, smallest and largest
/// subnormal, smallest normal, largest finite, 1 and its neighbours, where the format has them.
std::vector<std::uint32_t> specials(Format format);

/// rows * columns codes; ordinary values lie in (-amplitude, amplitude).
std::vector<std::uint32_t> fill(Fill kind, Format format, std::int64_t rows, std::int64_t columns, std::uint64_t seed,
                                float amplitude = 4.0F);

/// A shape with its name: every op is run over each.
struct Shape {
  std::string name;
  Fill fill;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t padding;
};

/// ordinary 4 x 64, ragged 3 x 77 with padded rows, wide 2 x 1000, zoo (one row a special, and one of all) x 45.
const std::vector<Shape>& shapes();

/// Weight rows of a product: not a multiple of 32, so that the last panel is ragged.
inline constexpr std::int64_t kOutputs = 83;

}  // namespace nanscope::kernels::cases
