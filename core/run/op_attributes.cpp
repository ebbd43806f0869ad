#include "core/run/op_attributes.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace nanscope {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json json_of(const T& value) {
  return value;
}

Json json_of(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

void read(const Json& json, std::optional<std::string>& into) {
  if (json.is_string()) into = json.get<std::string>();
}

void read(const Json& json, std::optional<bool>& into) {
  if (json.is_boolean()) into = json.get<bool>();
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

std::string_view name(OpKind kind) {
  switch (kind) {
#define NANSCOPE_OP_KIND(enumerator, word, rows, attributes) \
  case OpKind::enumerator:                                   \
    return word;
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  }
  return {};
}

std::optional<OpKind> op_kind(std::string_view word) {
#define NANSCOPE_OP_KIND(enumerator, text, rows, attributes) \
  if (word == text) return OpKind::enumerator;
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  return std::nullopt;
}

bool by_row(OpKind kind) {
  enum class Rows : std::uint8_t { by_row, mixed };
  switch (kind) {
#define NANSCOPE_OP_KIND(enumerator, word, rows, attributes) \
  case OpKind::enumerator:                                   \
    return Rows::rows == Rows::by_row;
#include "core/run/op_kinds.def"
#undef NANSCOPE_OP_KIND
  }
  return false;
}

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

std::string to_json(const OpAttributes& attributes) {
  Json object = Json::object();
  std::visit(
      [&](const auto& one) {
        one.fields(one, [&](const char* key, const auto& value) {
          if (value) object[key] = json_of(*value);
        });
      },
      attributes);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

OpAttributes attributes_from_json(OpKind kind, std::string_view text) {
  OpAttributes attributes = attributes_of(kind);
  const Json object = Json::parse(text, nullptr, false);
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

}  // namespace nanscope
