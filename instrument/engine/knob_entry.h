#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/numbers/format.h"
#include "instrument/engine/knobs.h"

/// A knob out of a field of the configuration: its text, and what may stand there.
namespace nanscope::knob_entry {

/// The allowed values of a setting that is on or off, and of a count.
inline constexpr const char* kBool = "false|true";
inline constexpr const char* kCount = "1..1048576";

/// Texts of an enumeration, in the order of its values.
template <class E>
struct Texts;
template <>
struct Texts<Overflow> {
  static constexpr std::array<std::string_view, 2> names{"saturate", "overflow"};
};

template <class T>
concept Enumeration = std::is_enum_v<T>;
template <class T>
concept Number = std::integral<T> || std::floating_point<T>;

inline std::string to_text(bool value) { return value ? "true" : "false"; }
inline std::string to_text(const std::string& value) { return value; }
inline std::string to_text(Format value) { return std::string(name(value)); }
template <Number T>
std::string to_text(T value) {
  return fmt::format("{}", value);
}
template <Enumeration E>
std::string to_text(E value) {
  return std::string(Texts<E>::names[static_cast<std::size_t>(value)]);
}
template <Number T>
std::string to_text(const std::vector<T>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}
template <class T>
std::string to_text(const std::optional<T>& value) {
  return value ? to_text(*value) : std::string();
}

inline bool parse(std::string_view text, std::string& value) {
  value = text;
  return true;
}
inline bool parse(std::string_view text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
inline bool parse(std::string_view text, Format& value) {
  const std::optional<Format> format = format_from_name(text);
  if (format) value = *format;
  return format.has_value();
}
template <Number T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}
template <Enumeration E>
bool parse(std::string_view text, E& value) {
  const auto& names = Texts<E>::names;
  const auto found = std::find(names.begin(), names.end(), text);
  value = static_cast<E>(found - names.begin());
  return found != names.end();
}
template <Number T>
bool parse(std::string_view text, std::vector<T>& value) {
  value.clear();
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    if (!parse(item, value.emplace_back())) return false;
    text.remove_prefix(std::min(text.size(), item.size() + 1));
  }
  return true;
}
template <class T>
bool parse(std::string_view text, std::optional<T>& value) {
  if (text.empty()) {
    value.reset();
    return true;
  }
  return parse(text, value.emplace());
}

/// Whether `text` is one of "a|b|c".
inline bool is_listed(std::string_view text, std::string_view allowed) {
  while (true) {
    const std::string_view item = allowed.substr(0, allowed.find('|'));
    if (item == text) return true;
    if (item.size() == allowed.size()) return false;
    allowed.remove_prefix(item.size() + 1);
  }
}

template <class T>
struct Plain {
  using type = T;
};
template <class T>
struct Plain<std::optional<T>> {
  using type = T;
};

/// Whether the parsed value is one of those that `allowed` lists, or in its range.
template <class T>
bool in_range(std::string_view text, const T& value, std::string_view allowed) {
  using Value = typename Plain<T>::type;
  if constexpr (Number<Value> && !std::same_as<Value, bool>) {
    const std::size_t dots = allowed.find("..");
    if (dots == std::string_view::npos) return true;
    Value low{};
    Value high{};
    if (!parse(allowed.substr(0, dots), low) || !parse(allowed.substr(dots + 2), high)) return false;
    if constexpr (std::same_as<Value, T>) return value >= low && value <= high;
    return true;
  }
  return allowed.find('|') == std::string_view::npos || is_listed(text, allowed);
}

/// One line of the registry: `access` returns a reference to the field, const or not.
template <class Access>
Knob knob(std::string name, std::string allowed, std::string doc, Access, bool numerics = true) {
  return {std::move(name),
          std::move(doc),
          std::move(allowed),
          numerics,
          [](const EngineConfig& config) { return to_text(Access{}(config)); },
          [](EngineConfig& config, std::string_view text, std::string_view values) {
            auto value = Access{}(config);
            if (!parse(text, value) || !in_range(text, value, values)) return false;
            Access{}(config) = std::move(value);
            return true;
          }};
}

}  // namespace nanscope::knob_entry
