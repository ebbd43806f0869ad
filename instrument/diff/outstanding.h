#pragma once
#include <optional>
#include <string>

#include "instrument/diff/diff.h"
#include "instrument/diff/floor.h"

namespace nanscope::align {

/// What of a pair stands out, and what those rows have in common; nothing when nothing does.
std::optional<Outstanding> outstanding(Side& a, Side& b, const Measured& pair);

/// A sentence without its subject. `at`: a row, with a channel and its values.
std::string text(const Outstanding& found, const std::string& at, std::int64_t channel, const std::string& values);

}  // namespace nanscope::align
