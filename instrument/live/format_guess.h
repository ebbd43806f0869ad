#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "core/numbers/format.h"
#include "instrument/live/format_scan.h"

/// Which formats bytes may be in, from how their exponents spread.
///
/// The magnitudes of a tensor lie within few powers of two: the exponents of a normal distribution have a standard
/// deviation of about 1.6. Bytes that are read in a wrong format take mantissa bits for exponents and spread wide: f32
/// as bf16 by about 50, f16 as bf16 by 14, f32 as f16 by 6.5, f16 or bf16 as e4m3 by 3.4, e4m3 as e5m2 by 3.4.
namespace nanscope::live {

/// Bytes as one format.
struct FormatView {
  Format format = Format::f32;
  double spread = 0;       ///< standard deviation of the exponents of finite elements but zeros
  std::uint64_t bad = 0;   ///< NaN and +Inf. -Inf is not: masks are made of it
  bool plausible = false;  ///< the bytes may be in this format
};

using FormatViews = std::array<FormatView, kReadings>;

/// A format is plausible when its exponents spread no more than a tensor's do, none lies 2^40 above their mean, and
/// those of f32 and bf16 stay below 2^90. A plausible narrower format excludes the wider ones of which its elements are
/// parts, unless two fifths of those parts are zeros, as they are of a wider format with few bits set.
FormatViews view_formats(const ScanCounts& counts);

enum class Sickness : std::uint8_t {
  none,      ///< no plausible format holds NaN or +Inf, or no format is plausible
  possible,  ///< some plausible formats do
  certain,   ///< all do
};
Sickness sickness(const FormatViews& views);

/// The plausible format to show the bytes in: one that is bad before others, then the one that spreads most. A format
/// with fewer exponent bits squeezes exponents (bf16 as f16 spreads by 0.4), one with more that is wrong is not
/// plausible.
std::optional<Format> best_format(const FormatViews& views);

}  // namespace nanscope::live
