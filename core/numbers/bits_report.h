#pragma once
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
  Overflow overflow = Overflow::saturate;
  bool ascii = false;  ///< no character beyond ASCII
};

/// Text for a terminal of 100 columns, ending in a newline. Errors name the input and what is accepted.
Result<std::string> bits_text(const BitsOptions& options);

/// The same as JSON ("schema": "nanscope.bits/1"), ending in a newline. NaN and Inf are null in
/// number fields; the "decimal" fields spell them.
Result<std::string> bits_json(const BitsOptions& options);

}  // namespace nanscope
