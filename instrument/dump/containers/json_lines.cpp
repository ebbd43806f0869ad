#include "instrument/dump/containers/json_lines.h"

#include <algorithm>
#include <string>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/strict_json.h"
#include "instrument/files/file.h"

namespace nanscope {

Status for_each_json_line(std::span<const std::byte> text, std::string_view file,
                          const std::function<Status(const JsonLine&)>& take) {
  const std::string_view all = as_text(text);
  std::uint64_t number = 0;
  for (std::size_t at = 0; at < all.size();) {
    ++number;
    const std::string where = std::string(file) + ": line " + std::to_string(number);
    const std::uint64_t offset = at;
    // No further than a line may go: a file of zeros may be terabytes long.
    const std::string_view head = all.substr(at, kMaxJsonLine + 1);
    const std::size_t size = std::min(head.find('\n'), head.size());
    if (size > kMaxJsonLine)
      return refuse(where, offset, "more than " + std::to_string(kMaxJsonLine) + " bytes in a line");
    const std::string_view line = head.substr(0, size);
    at += size + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto object = parse_strict_json(line, where, offset);
    if (!object) return tl::unexpected(object.error());
    if (!object->is_object()) return refuse(where, offset, "no JSON object, expected one in each line");
    auto taken = take({number, offset, *object});
    if (!taken) return taken;
  }
  return {};
}

}  // namespace nanscope
