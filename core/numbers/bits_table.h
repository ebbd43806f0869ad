#pragma once
#include <string>

#include "core/numbers/format.h"
#include "core/result.h"

namespace nanscope::bits {

/// The format's values: a grid (exponent down, mantissa across) for formats of at most 8 bits, a line
/// for each power of two for wider ones. `all_codes` prints one line a code instead; wider than 16
/// bits it is refused.
Result<std::string> table_text(Format format, bool all_codes);

}  // namespace nanscope::bits
