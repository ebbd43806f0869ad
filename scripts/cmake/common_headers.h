#pragma once
// What most sources include, precompiled (NanscopeHeaders.cmake).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <tl/expected.hpp>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/run/run_view.h"
#include "instrument/files/file.h"

namespace nanscope {

/// No code calls these two functions. The templates that they use are instantiated with this header, once for all
/// sources.
template <class Json>
std::string instantiated(Json json, const std::string& text, std::int64_t number, std::size_t size,
                         const std::vector<std::string>& words) {
  json = {{"text", text},   {"number", number},     {"size", size}, {"value", 0.5},
          {"words", words}, {"literal", "literal"}, {"flag", true}, {"nested", json}};
  json["text"] = text;
  json["number"] = number;
  json["size"] = size;
  json["words"] = words;
  json["value"] = 0.5;
  json["literal"] = "literal";
  json["nested"] = Json::array();
  json.push_back({{"text", text}});
  for (const auto& [key, value] : json.items()) json[key] = value.is_object() && value.contains(key);
  const auto found = json.find("text");
  return fmt::format("{} {:.4g} {}", found->template get<std::string>(), found->template get<double>(), json.dump(2)) +
         fmt::format("{}", fmt::join(words, ", ")) + fmt::format("{}", text) + fmt::format("{} {}", text, number) +
         fmt::format("{} {}", text, text) + fmt::format("{}", number) + fmt::format("{}", size);
}
inline std::string instantiated(const nlohmann::json& json, const nlohmann::ordered_json& ordered) {
  return instantiated(json, {}, 0, 0, {}) + instantiated(ordered, {}, 0, 0, {});
}

}  // namespace nanscope
