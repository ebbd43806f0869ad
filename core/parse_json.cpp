#include "core/parse_json.h"

#include <fmt/format.h>

#include <cstdlib>
#include <new>

#include "core/system_reason.h"

namespace nanscope {
namespace {

/// What a tree of a text takes at most, in bytes, while its lists grow and while it is taken apart.
std::size_t tree_bytes(std::string_view text) {
  std::size_t values = 1;
  std::size_t keys = 0;
  for (const char c : text) {
    values += c == ',' || c == '[' || c == '{';
    keys += c == ':';
  }
  return 64 * values + 160 * keys + 2 * text.size();
}

/// nlohmann's trees allocate while they are taken apart and end the program where that fails: whether there is memory
/// is known before.
bool has_memory(std::size_t bytes) {
  constexpr std::size_t kFew = std::size_t{1} << 20;
  if (bytes < kFew) return true;
  void* volatile room = std::malloc(bytes);  // volatile: else it may be left out
  const bool found = room != nullptr;
  std::free(room);
  return found;
}

}  // namespace

template <class Json>
Result<Json> parse_json(std::string_view text) {
  if (json_depth(text) > kMostJsonDepth) {
    return fail(
        fmt::format("nested too deeply, lists and objects stand more than {} deep in each other", kMostJsonDepth));
  }
  if (!has_memory(tree_bytes(text))) return fail(out_of_memory());
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
