#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "core/result.h"
#include "instrument/files/json_view.h"

namespace nanscope {

/// One line of a file of JSON lines.
struct JsonLine {
  std::uint64_t number;  ///< from 1
  std::uint64_t offset;  ///< of its first byte
  JsonView object;       ///< a view of the file
};

inline constexpr std::uint64_t kMaxJsonLine = 4 << 20;

/// Reads a file of one JSON object a line (jsonlines.org), as servers write logs of calls: FlashInfer's
/// session.jsonl and metadata.jsonl, manifests. One line is in memory at a time. Empty lines are passed
/// over. Refused, with line and offset: what is no object, keys that occur twice, lines beyond
/// kMaxJsonLine. `take` may refuse a line itself, which ends the reading.
Status for_each_json_line(std::span<const std::byte> text, std::string_view file,
                          const std::function<Status(const JsonLine&)>& take);

}  // namespace nanscope
