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
    const std::size_t end = std::min(all.find('\n', at), all.size());
    const std::string_view line = all.substr(at, end - at);
    const std::uint64_t offset = at;
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = std::string(file) + ": line " + std::to_string(number);
    if (line.size() > kMaxJsonLine) {
      return refuse(where, offset,
                    std::to_string(line.size()) + " bytes in a line, expected at most " + std::to_string(kMaxJsonLine));
    }
    auto object = parse_strict_json(line, where, offset);
    if (!object) return tl::unexpected(object.error());
    if (!object->is_object()) return refuse(where, offset, "no JSON object, expected one in each line");
    auto taken = take({number, offset, *object});
    if (!taken) return taken;
  }
  return {};
}

}  // namespace nanscope
