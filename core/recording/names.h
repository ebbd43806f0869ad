#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "core/recording/rows.h"

/// The words that stand for enumerators in a recording.
namespace nanscope::words {

inline constexpr std::array<std::string_view, 5> kStepKinds = {"prefill", "decode", "forward", "backward", "optimizer"};
inline constexpr std::array<std::string_view, 7> kAxes = {"rows", "live", "ends", "keys", "part", "slots", "none"};
inline constexpr std::array<std::string_view, 5> kScaleSources = {"checkpoint", "fixed", "calibrated", "sentinel",
                                                                  "none"};
inline constexpr std::array<std::string_view, 5> kKvActions = {"allocated", "written", "shared", "freed", "scrubbed"};
inline constexpr std::array<std::string_view, 3> kTokenSources = {"prompt", "image", "generated"};
inline constexpr std::array<std::string_view, 3> kRunStates = {"recording", "complete", "interrupted"};

template <class Enum, std::size_t N>
std::string_view word(const std::array<std::string_view, N>& words, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? words[index] : std::string_view{};
}

template <class Enum, std::size_t N>
std::optional<Enum> value(const std::array<std::string_view, N>& words, std::string_view word) {
  for (std::size_t i = 0; i < N; ++i) {
    if (words[i] == word) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace nanscope::words
