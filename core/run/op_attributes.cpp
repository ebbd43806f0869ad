#include "core/run/op_attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/parse_json.h"

namespace nanscope {
namespace {

using Json = nlohmann::ordered_json;

void append(std::string& json, const std::string& text) {
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; });
  json += plain ? '"' + text + '"' : Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append(std::string& json, bool value) { json += value ? "true" : "false"; }

void append(std::string& json, std::int64_t value) { json += std::to_string(value); }

void append(std::string& json, double value) {
  json += std::isfinite(value) ? fmt::format("{}", value)
          : std::isnan(value)  ? "\"nan\""
          : value > 0          ? "\"inf\""
                               : "\"-inf\"";
}

void append(std::string& json, const std::vector<std::int64_t>& values) {
  json += fmt::format("[{}]", fmt::join(values, ","));
}

void read(const Json& json, std::optional<std::string>& into) {
  if (json.is_string()) into = json.get<std::string>();
}

void read(const Json& json, std::optional<bool>& into) {
  if (json.is_boolean()) into = json.get<bool>();
  if (json == "true" || json == "false") into = json == "true";  // as schema 1 has some of them
}

void read(const Json& json, std::optional<std::int64_t>& into) {
  if (json.is_number_integer()) into = json.get<std::int64_t>();
}

void read(const Json& json, std::optional<double>& into) {
  if (json.is_number()) into = json.get<double>();
  if (json == "nan") into = std::nan("");
  if (json == "inf" || json == "-inf") into = json == "inf" ? INFINITY : -INFINITY;
}

void read(const Json& json, std::optional<std::vector<std::int64_t>>& into) {
  if (!json.is_array()) return;
  std::vector<std::int64_t> values;
  for (const Json& item : json) {
    if (!item.is_number_integer()) return;
    values.push_back(item.get<std::int64_t>());
  }
  into = std::move(values);
}

}  // namespace

OpAttributes::OpAttributes() = default;
OpAttributes::OpAttributes(const OpAttributes& other) = default;
OpAttributes::OpAttributes(OpAttributes&& other) noexcept = default;
OpAttributes& OpAttributes::operator=(const OpAttributes& other) = default;
OpAttributes& OpAttributes::operator=(OpAttributes&& other) noexcept = default;
OpAttributes::~OpAttributes() = default;

// Cases of a table may say the same.
// NOLINTBEGIN(bugprone-branch-clone, bugprone-macro-parentheses)
OpAttributes attributes_of(OpKind kind) {
  switch (kind) {
#define NANSCOPE_OP_KIND(enumerator, word, rows, attributes) \
  case OpKind::enumerator:                                   \
    return attributes{};
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  }
  return NoAttributes{};
}
// NOLINTEND(bugprone-branch-clone, bugprone-macro-parentheses)

std::string to_json(const OpAttributes& attributes) {
  // An engine writes thousands a second: no tree is built.
  std::string json = "{";
  std::visit(
      [&](const auto& one) {
        one.fields(one, [&](const char* key, const auto& value) {
          if (!value) return;
          json += json.size() > 1 ? ",\"" : "\"";
          json += key;
          json += "\":";
          append(json, *value);
        });
      },
      attributes);
  return json += '}';
}

OpAttributes attributes_from_json(OpKind kind, std::string_view text) {
  OpAttributes attributes = attributes_of(kind);
  const Json object = parse_json_or_none<Json>(text);
  if (!object.is_object()) return attributes;
  std::visit(
      [&](auto& one) {
        one.fields(one, [&](const char* key, auto& value) {
          if (const auto found = object.find(key); found != object.end()) read(*found, value);
        });
      },
      attributes);
  return attributes;
}

std::int64_t whole_channel(const SplitAttributes& split, std::int64_t channel, std::int64_t part, std::int64_t whole) {
  constexpr std::int64_t kBeyond = std::int64_t{1} << 40;  // what a file states may be any number
  const std::int64_t first = std::clamp<std::int64_t>(split.first_channel.value_or(0), 0, kBeyond);
  const std::int64_t heads = std::max<std::int64_t>(1, split.heads.value_or(1));
  const std::int64_t width = part / heads;
  if (heads == 1 || width == 0) return first + channel;
  return channel / width * (whole / heads) + first + channel % width;
}

}  // namespace nanscope
