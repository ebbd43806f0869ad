#include "instrument/model/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/text/safe_text.h"

namespace nanscope {

using nlohmann::json;

namespace {

constexpr std::size_t kMostItems = 1 << 16;

std::string shown(const json& value) {
  return shortened(one_line(value.dump(-1, ' ', false, json::error_handler_t::replace)), 60);
}

}  // namespace

ConfigReader::ConfigReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) status_ = fail(where_ + ": not a JSON object");
}

const json* ConfigReader::find(std::string_view key) {
  read_.emplace(key);
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::states(std::string_view key) {
  read_.emplace(key);
  return object_.is_object() && object_.contains(key);
}

bool ConfigReader::has(std::string_view key) { return find(key) != nullptr; }

void ConfigReader::reject(std::string_view key, std::string_view reason) {
  if (status_) status_ = fail(fmt::format("{}: {}: {}", where_, one_line(key), reason));
}

std::int64_t ConfigReader::integer(std::string_view key, std::int64_t otherwise, std::int64_t low, std::int64_t high) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > (std::uint64_t{1} << 62);
  if (!value->is_number_integer() || too_large) {
    reject(key, fmt::format("expected a whole number, found {}", shown(*value)));
    return otherwise;
  }
  const auto number = value->get<std::int64_t>();
  if (number >= low && number <= high) return number;
  reject(key, fmt::format("expected {} to {}, found {}", low, high, number));
  return otherwise;
}

std::int64_t ConfigReader::needed(std::string_view key, std::int64_t low, std::int64_t high) {
  if (!has(key)) reject(key, "is missing");
  return integer(key, low, low, high);
}

double ConfigReader::number(std::string_view key, double otherwise, double low, double high) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (number >= low && number <= high) return number;
  reject(key, fmt::format("expected a number from {} to {}, found {}", low, high, shown(*value)));
  return otherwise;
}

bool ConfigReader::flag(std::string_view key, bool otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  reject(key, fmt::format("expected true or false, found {}", shown(*value)));
  return otherwise;
}

std::string ConfigReader::text(std::string_view key, std::string_view otherwise) {
  const json* value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (value->is_string()) return value->get<std::string>();
  reject(key, fmt::format("expected a text, found {}", shown(*value)));
  return std::string(otherwise);
}

std::vector<double> ConfigReader::numbers(std::string_view key) {
  const json* value = find(key);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array() || value->size() > kMostItems) {
    reject(key, fmt::format("expected a list of at most {} numbers, found {}", kMostItems, shown(*value)));
    return numbers;
  }
  for (const json& item : *value) {
    const double number = item.is_number() ? item.get<double>() : std::nan("");
    if (!std::isfinite(number)) reject(key, fmt::format("expected finite numbers, found {}", shown(item)));
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view key) {
  std::vector<std::int64_t> whole;
  for (const double number : numbers(key)) {
    const bool is_whole = number == std::floor(number) && std::abs(number) <= 1e15;
    if (!is_whole) reject(key, "expected whole numbers");
    whole.push_back(is_whole ? static_cast<std::int64_t>(number) : 0);
  }
  return whole;
}

std::vector<std::int64_t> ConfigReader::integer_or_list(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr || value->is_array()) return integers(key);
  return {integer(key, 0, 0, std::int64_t{1} << 40)};
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  const json* value = find(key);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (!value->is_array() || value->size() > kMostItems) {
    reject(key, fmt::format("expected a list of at most {} texts, found {}", kMostItems, shown(*value)));
    return texts;
  }
  for (const json& item : *value) {
    if (!item.is_string()) reject(key, fmt::format("expected texts, found {}", shown(item)));
    texts.push_back(item.is_string() ? item.get<std::string>() : std::string());
  }
  return texts;
}

const json* ConfigReader::object(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  reject(key, fmt::format("expected an object, found {}", shown(*value)));
  return nullptr;
}

void ConfigReader::only(std::string_view key, bool value) {
  if (flag(key, value) != value) reject(key, fmt::format("{} is not supported", !value));
}

void ConfigReader::only_text(std::string_view key, std::string_view value) {
  const std::string found = text(key, value);
  if (found != value) reject(key, fmt::format("'{}' is not supported, only '{}' is", one_line(found), value));
}

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

Status ConfigReader::finish() {
  if (!status_) return status_;
  std::vector<std::string> unread;
  for (const auto& [key, value] : object_.items()) {
    if (!read_.contains(key)) unread.push_back(one_line(key));
  }
  if (unread.empty()) return {};
  const std::size_t shown_keys = std::min<std::size_t>(unread.size(), 8);
  return fail(fmt::format("{}: not supported: {}{}", where_,
                          fmt::join(unread.begin(), unread.begin() + static_cast<std::ptrdiff_t>(shown_keys), ", "),
                          unread.size() > shown_keys ? " and more" : ""));
}

}  // namespace nanscope
