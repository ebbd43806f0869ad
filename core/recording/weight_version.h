#pragma once
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

/// A weight that changes while a run goes on has a row of each of its versions, and an op reads a version by its name:
/// NAME is the weight that the run began with, NAME@STEP the one from StepRow::id STEP on.
namespace nanscope {

inline constexpr char kVersionMark = '@';

inline std::string weight_version(std::string_view name, std::int64_t step) {
  return fmt::format("{}{}{}", name, kVersionMark, step);
}

/// Which weight it is, whatever its version.
inline std::string_view weight_of_version(std::string_view name) { return name.substr(0, name.find(kVersionMark)); }

/// StepRow::id of the first step that reads the version; 0 of what the run began with, or where none is stated.
inline std::int64_t first_step_of_version(std::string_view name) {
  const std::size_t mark = name.find(kVersionMark);
  std::int64_t step = 0;
  if (mark != std::string_view::npos) std::from_chars(name.data() + mark + 1, name.data() + name.size(), step);
  return step;
}

inline bool is_later_version(std::string_view name) { return name.find(kVersionMark) != std::string_view::npos; }

}  // namespace nanscope
