#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/numbers/bits_report.h"
#include "core/numbers/rounding.h"
#include "core/result.h"

namespace nanscope::bits {

enum class InputKind : std::uint8_t {
  value,     ///< a real number, NaN or Inf
  code,      ///< a code of the wanted format, or of any format of that width
  f32_bits,  ///< an f32 bit pattern, to be cast
};

/// What the user typed, understood.
struct Input {
  InputKind kind = InputKind::value;
  double value = 0;        ///< kind value
  std::uint32_t bits = 0;  ///< kinds code and f32_bits
  int width = 0;           ///< kind code: bits that the typed digits can hold
};

/// A checked request.
struct Request {
  Input input;
  std::optional<Format> format;  ///< absent: every format
};

/// Reads the options of a request for one number. Errors are one line.
Result<Request> parse_request(const BitsOptions& options);

/// Reads the format of a table request: -f, or the input.
Result<Format> parse_table_format(const BitsOptions& options);

/// The rule that the request asks for, or the format's usual one.
Overflow overflow_of(const BitsOptions& options, Format format);

/// The cast that the request asks for: value / scale (divided in f32, as kernels do), then to `format`.
Rounding cast_input(const Input& input, Format format, const BitsOptions& options);

/// "0x7d" with as many digits as the format has nibbles.
std::string code_text(Format format, std::uint32_t code);
/// "0_1111_101": the fields of a code.
std::string field_text(Format format, std::uint32_t code);

}  // namespace nanscope::bits
