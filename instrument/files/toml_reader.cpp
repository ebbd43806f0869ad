#include "instrument/files/toml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "instrument/files/near_names.h"

namespace nanscope {

std::string toml_location(const std::string& file, const toml::source_region& region) {
  return fmt::format("{}:{}:{}", file, region.begin.line, region.begin.column);
}

std::string_view toml_kind(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    case toml::node_type::none:
      return "nothing";
    default:
      return "a date or time";
  }
}

namespace {

std::string number_text(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end.ptr);
}

}  // namespace

Result<toml::table> parse_toml(std::string_view text, const std::string& file) {
  toml::parse_result parsed = toml::parse(text, file);
  if (parsed) return std::move(parsed).table();
  return fail(
      fmt::format("{}: {}", toml_location(file, parsed.error().source()), one_line(parsed.error().description())));
}

std::optional<std::string> knob_text(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return std::to_string(*number);
  if (const auto number = node.value_exact<double>()) return number_text(*number);
  if (const auto flag = node.value_exact<bool>()) return std::string(*flag ? "true" : "false");
  if (!node.is_array()) return std::nullopt;
  std::string joined;
  for (const toml::node& item : *node.as_array()) {
    const auto part = item.is_array() ? std::nullopt : knob_text(item);
    if (!part) return std::nullopt;
    joined += (joined.empty() ? "" : ",") + *part;
  }
  return joined;
}

TomlReader::TomlReader(const toml::table& table, std::string file, std::string label)
    : table_(table), file_(std::move(file)), label_(std::move(label)) {}

std::string TomlReader::where(const toml::node& node) const { return toml_location(file_, node.source()); }
std::string TomlReader::where() const { return toml_location(file_, table_.source()); }

void TomlReader::reject(const toml::node& node, const std::string& what) {
  if (!error_) error_ = Error{fmt::format("{}: {}", where(node), one_line(what))};
}

void TomlReader::reject(const std::string& what) {
  if (!error_) error_ = Error{fmt::format("{}: {}", where(), one_line(what))};
}

const toml::node* TomlReader::node(std::string_view key) {
  known_.emplace_back(key);
  return table_.get(key);
}

std::optional<std::string> TomlReader::text(std::string_view key) {
  const toml::node* found = node(key);
  if (!found) return std::nullopt;
  auto value = found->value_exact<std::string>();
  if (!value) reject(*found, fmt::format("{} in {} must be a string, found {}", key, label_, toml_kind(*found)));
  return value;
}

std::optional<std::int64_t> TomlReader::integer(std::string_view key, std::int64_t low, std::int64_t high) {
  const toml::node* found = node(key);
  if (!found) return std::nullopt;
  const auto value = found->value_exact<std::int64_t>();
  if (!value) {
    reject(*found, fmt::format("{} in {} must be an integer, found {}", key, label_, toml_kind(*found)));
  } else if (*value < low || *value > high) {
    reject(*found, fmt::format("{} in {} must be from {} to {}, found {}", key, label_, low, high, *value));
    return std::nullopt;
  }
  return value;
}

std::vector<std::string> TomlReader::texts(std::string_view key) {
  std::vector<std::string> values;
  const toml::array* list = array(key);
  if (!list) return values;
  for (const toml::node& item : *list) {
    const auto value = item.value_exact<std::string>();
    if (!value) {
      reject(item, fmt::format("{} in {} must hold strings, found {}", key, label_, toml_kind(item)));
      return {};
    }
    values.push_back(*value);
  }
  return values;
}

const toml::table* TomlReader::table(std::string_view key) {
  const toml::node* found = node(key);
  if (!found) return nullptr;
  if (!found->is_table()) {
    reject(*found, fmt::format("{} in {} must be a table, found {}", key, label_, toml_kind(*found)));
  }
  return found->as_table();
}

const toml::array* TomlReader::array(std::string_view key) {
  const toml::node* found = node(key);
  if (!found) return nullptr;
  if (!found->is_array()) {
    reject(*found, fmt::format("{} in {} must be an array, found {}", key, label_, toml_kind(*found)));
  }
  return found->as_array();
}

Status TomlReader::finish() {
  if (error_) return tl::unexpected(*error_);
  for (auto&& [key, value] : table_) {
    if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
    return fail(fmt::format("{}: unknown key '{}' in {}{}", toml_location(file_, key.source()), one_line(key.str()),
                            label_, did_you_mean(key.str(), known_)));
  }
  return {};
}

}  // namespace nanscope
