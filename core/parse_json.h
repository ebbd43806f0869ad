#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/json_depth.h"
#include "core/result.h"

namespace nanscope {

/// Keys of an object whose order is kept: each is compared with all before it, so that these take less than a second.
inline constexpr std::size_t kMostOrderedKeys = std::size_t{1} << 13;

/// JSON that somebody else wrote, as a tree: nlohmann::json or nlohmann::ordered_json. Errors, without the file's name:
/// no JSON, nested deeper than kMostJsonDepth, an ordered object of more than kMostOrderedKeys, more than there is
/// memory for (a tree takes many times its text).
template <class Json = nlohmann::json>
Result<Json> parse_json(std::string_view text);
extern template Result<nlohmann::json> parse_json(std::string_view text);
extern template Result<nlohmann::ordered_json> parse_json(std::string_view text);

/// The same where it need not be any: a value that is_discarded() for what is none.
template <class Json = nlohmann::json>
Json parse_json_or_none(std::string_view text) {
  Result<Json> parsed = parse_json<Json>(text);
  return parsed ? std::move(*parsed) : Json(Json::value_t::discarded);
}

}  // namespace nanscope
