#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "core/numbers/format.h"
#include "instrument/live/format_scan.h"

/// Which formats bytes may be in, and whether a NaN in them is one or chance made it.
///
/// The magnitudes of a tensor lie within few powers of two: the exponents of a normal distribution have a standard
/// deviation of about 1.6, and its elements at even places are like those at odd ones. Bytes that are read in a format
/// that is too narrow have mantissa bits at the even places, which are any exponent as often as any other (a standard
/// deviation of 9.2 in f16, 74 in bf16, 4.6 in e4m3, 9.2 in e5m2), or zeros where the mantissas were rounded.
namespace nanscope::live {

/// Bytes as one format.
struct FormatView {
  Format format = Format::f32;
  double spread = 0;       ///< standard deviation of the exponents of finite elements but zeros
  std::uint64_t bad = 0;   ///< NaN and +Inf. -Inf is not: masks are made of it
  std::uint64_t made = 0;  ///< of these, what arithmetic makes: a NaN with a payload is memory of something else
  bool plausible = false;  ///< the bytes may be in this format, or `integers`
  bool integers = false;   ///< or scales of one byte: no tensor of this format has such exponents, and nothing is bad
  bool certain = false;    ///< bits of any kind would not look like this by chance: what is bad is meant
};

using FormatViews = std::array<FormatView, kReadings>;

/// A format is plausible when its exponents spread no more than a tensor's do, at even places, at odd places and over
/// all, none lies 2^40 above their mean, those of f32 and bf16 stay below 2^90, and most of its NaN are such as
/// arithmetic makes. f32 and bf16 whose exponents are hardly above 0 are integers, and so are bytes that are hardly
/// below the highest. A plausible narrower format excludes the wider ones of which its elements are parts where it fits
/// the exponents better; where its even or odd places are zero far more often than the others, they exclude it.
FormatViews view_formats(const ScanCounts& counts);

enum class Sickness : std::uint8_t {
  none,      ///< no plausible format holds NaN or +Inf, or no format is plausible
  possible,  ///< some plausible formats do, or chance explains what they hold
  certain,   ///< all do, and chance does not
};
Sickness sickness(const FormatViews& views);

/// The plausible format to show the bytes in: one that is certainly bad before others, then one that is bad, then the
/// one that spreads most. A format with fewer exponent bits squeezes exponents (bf16 as f16 spreads by 0.4), one with
/// more that is wrong is not plausible.
std::optional<Format> best_format(const FormatViews& views);

}  // namespace nanscope::live
