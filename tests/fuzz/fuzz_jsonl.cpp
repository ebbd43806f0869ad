#include <cstdlib>
#include <span>

#include "instrument/dump/containers/json_lines.h"

/// Seeds: tests/golden/dumps/raw/manifest.jsonl. Whatever is accepted is a row of objects that can be
/// written again, in the order of their lines.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t last = 0;
  static_cast<void>(nanscope::for_each_json_line(
      std::as_bytes(std::span(data, size)), "fuzz", [&](const nanscope::JsonLine& line) -> nanscope::Status {
        if (line.number <= last || line.offset >= size || !line.object.is_object()) std::abort();
        last = line.number;
        static_cast<void>(line.object.dump());
        return {};
      }));
  return 0;
}
