#include "core/parse_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <type_traits>

#include "core/system_reason.h"

namespace nanscope {
namespace {

/// What a tree of a text takes at most, in bytes, while its lists grow and while it is taken apart.
std::size_t tree_bytes(std::string_view text) {
  // A value's 16 bytes: three times while a list of them grows, once more where it is taken apart; and the 64 with
  // which malloc() holds an empty object, the 48 of a short text or the 32 of a list.
  constexpr std::size_t kValue = 128;
  // In a node of a map, or three times 48 bytes while a list of keys and values grows.
  constexpr std::size_t kKey = 160;
  std::size_t values = 1;
  std::size_t keys = 0;
  for (const char c : text) {
    values += c == ',' || c == '[' || c == '{';
    keys += c == ':';
  }
  return kValue * values + kKey * keys + 2 * text.size();
}

/// Of the object that has most of them. The text is nested at most kMostJsonDepth deep.
std::size_t most_keys(std::string_view text) {
  std::array<std::size_t, kMostJsonDepth + 1> keys{};
  std::size_t depth = 0;
  std::size_t most = 0;
  outside_strings(text, [&](char c) {
    if (c == ':') {
      most = std::max(most, ++keys[depth]);
    } else if (c == '[' || c == '{') {
      keys[++depth] = 0;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  });
  return most;
}

/// nlohmann's trees allocate while they are taken apart and end the program where that fails: whether there is memory
/// is known before.
bool has_memory(std::size_t bytes) {
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
  if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
    if (most_keys(text) > kMostOrderedKeys)
      return fail(fmt::format("has more than {} keys in an object", kMostOrderedKeys));
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
