#include "core/parse_json.h"

#include <fmt/format.h>

#include <new>

#include "core/system_reason.h"

namespace nanscope {

template <class Json>
Result<Json> parse_json(std::string_view text) {
  if (json_depth(text) > kMostJsonDepth) {
    return fail(
        fmt::format("nested too deeply, lists and objects stand more than {} deep in each other", kMostJsonDepth));
  }
  try {
    Json parsed = Json::parse(text, nullptr, false);
    if (parsed.is_discarded()) return fail("not a JSON text");
    return parsed;
  } catch (const std::bad_alloc&) {
    return fail(out_of_memory());
  }
}

template Result<nlohmann::json> parse_json(std::string_view text);
template Result<nlohmann::ordered_json> parse_json(std::string_view text);

}  // namespace nanscope
