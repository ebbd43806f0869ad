#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Small things that producers read names with.
namespace nanscope {

inline std::vector<std::string_view> split_at(std::string_view text, std::string_view by) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(by, begin);
    parts.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + by.size();
  }
}

/// A whole number from 0 of at most 18 digits.
inline std::optional<std::int64_t> natural_number(std::string_view text) {
  std::int64_t value = 0;
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// The number that follows `word` at the beginning of `text`: "rank_3" and "rank" give 3.
inline std::optional<std::int64_t> number_after(std::string_view text, std::string_view word) {
  if (!text.starts_with(word)) return std::nullopt;
  text.remove_prefix(word.size());
  if (!text.empty() && (text.front() == '_' || text.front() == '-')) text.remove_prefix(1);
  return natural_number(text);
}

inline std::string joined_path(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

}  // namespace nanscope
