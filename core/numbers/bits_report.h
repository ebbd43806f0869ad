#pragma once
#include <optional>
#include <span>
#include <string>

#include "core/numbers/format.h"
#include "core/result.h"

namespace nanscope {

/// What `nanscope bits` and the window's bit view show of a number.
struct BitsOptions {
  /// A value ("430", "-1e-3", "nan", "-inf", "0x1.8p3") or a code ("0x7e", "0b0_1111_110"). A code of
  /// eight hex digits with a narrower format is an f32 bit pattern that is cast to the format. With
  /// `table`, the format's name may stand here.
  std::string input;
  std::string format;      ///< name or alias; empty: every format
  bool table = false;      ///< the format's whole table instead of one number
  bool all_codes = false;  ///< with `table`: one line a code, also for 16-bit formats
  double scale = 1.0;      ///< real = code value x scale; finite and positive
  /// What becomes of values beyond the range; absent: each format's usual rule (`usual_overflow`).
  std::optional<Overflow> overflow;
  /// Subnormal f32 values become zero of their sign, before and after the division by the scale and where f32 is
  /// stored, as in code that nvcc compiled with -ftz=true.
  bool ftz = false;
  bool ascii = false;  ///< no character beyond ASCII
};

/// Text for a terminal of 100 columns, ending in a newline. Errors name the input and what is accepted.
Result<std::string> bits_text(const BitsOptions& options);

/// The same as JSON ("schema": "nanscope.bits/1"), ending in a newline. NaN and Inf are null in
/// number fields; the "decimal" fields spell them.
Result<std::string> bits_json(const BitsOptions& options);

/// A table of values that one format stores under one scale: the code, what is read back, the loss, and how many
/// distinct values are left. `options.input` is not used; `options.format` must be given. Errors name the value.
Result<std::string> bits_values_text(const BitsOptions& options, std::span<const std::string> values);

/// The same as JSON: the document of `bits_json` with "kind": "values", an "input" in each result, and "distinct".
Result<std::string> bits_values_json(const BitsOptions& options, std::span<const std::string> values);

/// What casts do by default beyond a format's range: formats of 8 bits and less, and those without Inf, saturate
/// (CUDA's conversions to 8 bits are satfinite); f16, bf16 and f32 overflow to Inf (IEEE 754).
Overflow usual_overflow(Format format);

}  // namespace nanscope
