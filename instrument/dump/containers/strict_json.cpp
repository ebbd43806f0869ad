#include "instrument/dump/containers/strict_json.h"

#include "instrument/dump/containers/file_bytes.h"

namespace nanscope {

Result<JsonView> parse_strict_json(std::string_view text, std::string_view name, std::uint64_t offset,
                                   const JsonLimits& limits) {
  auto checked = check_json(text, limits);
  if (!checked) return refuse(name, offset + checked.error().offset, checked.error().what);
  return *checked;
}

}  // namespace nanscope
