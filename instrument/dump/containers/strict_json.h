#pragma once
#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "instrument/files/json_view.h"

namespace nanscope {

/// check_json() for files: an error is one line with file, offset and reason. `offset` is where the text begins in
/// `file`, `name` is what errors call it. The value is a view of `text`.
Result<JsonView> parse_strict_json(std::string_view text, std::string_view name, std::uint64_t offset,
                                   const JsonLimits& limits = {});

}  // namespace nanscope
