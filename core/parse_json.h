#pragma once
#include <fmt/format.h>

#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/json_depth.h"
#include "core/result.h"
#include "core/system_reason.h"

namespace nanscope {

/// JSON that somebody else wrote, as a tree. Errors, without the file's name: no JSON, nested deeper than
/// kMostJsonDepth, more than there is memory for (a tree takes many times its text).
template <class Json = nlohmann::json>
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

/// The same where it need not be any: a value that is_discarded() for what is none.
template <class Json = nlohmann::json>
Json parse_json_or_none(std::string_view text) {
  Result<Json> parsed = parse_json<Json>(text);
  return parsed ? std::move(*parsed) : Json(Json::value_t::discarded);
}

}  // namespace nanscope
