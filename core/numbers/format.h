#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace nanscope {

/// Storage formats of one element. `e4m3` is the OCP "fn" kind: no infinity, one NaN per sign.
/// `i32` carries token ids and indices; it has no NaN and is never rounded.
enum class Format : std::uint8_t { f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, e3m2, e2m3, e2m1, e8m0, int8, i32 };

inline constexpr int kFormatCount = 13;

/// What a cast does with values beyond the largest finite one.
enum class Overflow : std::uint8_t {
  saturate,  ///< clamp to the largest finite value of the sign; Inf too
  overflow,  ///< become Inf, or NaN where the format has no Inf
};

/// How a format spends its codes on non-finite values.
enum class Specials : std::uint8_t {
  ieee,  ///< all-ones exponent: mantissa 0 is Inf, else NaN (f32 f16 bf16 e5m2)
  fn,    ///< only all-ones exponent with all-ones mantissa is NaN, no Inf (e4m3)
  fnuz,  ///< the code of -0 is the only NaN, no Inf, no -0 (e4m3fnuz e5m2fnuz)
  none,  ///< every code is a finite number (e3m2 e2m3 e2m1 int8 i32)
  e8m0,  ///< unsigned power of two, 0xff is NaN, no zero
};

/// One row of the format table: everything that decode, encode and anatomy need.
struct FormatInfo {
  Format format;
  std::string_view name;
  std::string_view spec;  ///< where the format is defined
  int bits;               ///< width of a code; storage is the next whole byte for the 4 and 6 bit formats
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_sign;
  Specials specials;
  std::uint32_t max_finite_code;     ///< positive
  std::uint32_t canonical_nan_code;  ///< the one NaN that computed values store; 0 when the format has none
  float max_finite;
  float min_normal;
  float min_subnormal;  ///< 0 when the format has none

  /// Bytes one element takes in memory: sub-byte formats are held one code per byte.
  constexpr std::size_t storage_bytes() const { return static_cast<std::size_t>((bits + 7) / 8); }
};

/// The table, indexed by Format.
std::span<const FormatInfo> formats();
const FormatInfo& info(Format format);
std::string_view name(Format format);
/// Finds a format by its name; also accepts the field's aliases (fp16, float8_e4m3fn, F8_E4M3, ...).
std::optional<Format> format_from_name(std::string_view name);

}  // namespace nanscope
