#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "instrument/diff/diff.h"
#include "tests/unit/core/dump/memory_dump.h"

namespace nanscope::testing {

/// What a small model computes of a token at a position of a sequence: any number that depends on all of these.
inline double served(int tensor, std::int64_t token, std::int64_t position, std::int64_t channel) {
  return std::sin(static_cast<double>(token * 31 + position * 17 + channel * 7 + tensor * 3));
}

/// Changes a number of a tensor, by position and channel.
using Change = std::function<double(std::int64_t position, std::int64_t channel, double value)>;

inline double unchanged(std::int64_t, std::int64_t, double value) { return value; }

/// Off by noise of a size, other for each element.
inline Change noise(double size, const Change& first = unchanged) {
  return [size, first](std::int64_t position, std::int64_t channel, double value) {
    const auto seed = static_cast<std::uint32_t>(position * 7919 + channel * 104729 + 1) * 2654435761U;
    return first(position, channel, value) * (1 + size * (static_cast<double>(seed >> 8) / 0x1p23 - 1));
  };
}

inline constexpr std::int64_t kChannels = 16;
inline constexpr const char* kDown = "model.layers.0.mlp.down_proj.output";
inline constexpr const char* kNext = "model.layers.1.mlp.down_proj.output";

/// Dumps of a model of two layers, by the steps in which it was run.
struct Served {
  MemoryDump dump;
  int steps = 0;
  std::string folder;  ///< before a step's

  /// Rows [first, end) of one sequence.
  void step(const std::vector<std::int64_t>& tokens, std::int64_t first, std::int64_t end,
            const Change& change = unchanged, const char* dtype = "f32") {
    const std::string name = folder + "step_" + std::to_string(steps++) + "/";
    std::vector<double> ids;
    for (std::int64_t at = first; at < end; ++at)
      ids.push_back(static_cast<double>(tokens[static_cast<std::size_t>(at)]));
    dump.add(name + "input_ids", "i64", {1, end - first}, ids);
    dump.add(name + "past_length", "i64", {1}, {static_cast<double>(first)});
    for (int tensor = 0; tensor < 2; ++tensor) {
      std::vector<double> values;
      for (std::int64_t at = first; at < end; ++at)
        add(values, tensor, tokens[static_cast<std::size_t>(at)], at, change);
      dump.add(name + (tensor == 0 ? kDown : kNext), dtype, {1, end - first, kChannels}, values);
    }
  }

  /// Sequences side by side, padded to `length` before or behind.
  void batch(const std::vector<std::vector<std::int64_t>>& sequences, std::int64_t length, bool left,
             const Change& change = unchanged) {
    const std::string name = folder + "step_" + std::to_string(steps++) + "/";
    const auto count = static_cast<std::int64_t>(sequences.size());
    std::vector<double> ids, mask, positions;
    std::vector<double> values[2];
    for (const auto& tokens : sequences) {
      const std::int64_t pad = left ? length - std::ssize(tokens) : 0;
      for (std::int64_t row = 0; row < length; ++row) {
        const std::int64_t at = row - pad;
        const bool live = at >= 0 && at < std::ssize(tokens);
        ids.push_back(live ? static_cast<double>(tokens[static_cast<std::size_t>(at)]) : 0);
        mask.push_back(live ? 1 : 0);
        positions.push_back(live ? static_cast<double>(at) : 0);
        for (int tensor = 0; tensor < 2; ++tensor) {
          // What padding holds is nobody's.
          if (live) add(values[tensor], tensor, tokens[static_cast<std::size_t>(at)], at, change);
          for (std::int64_t i = 0; !live && i < kChannels; ++i) values[tensor].push_back(left ? 77 : -99);
        }
      }
    }
    dump.add(name + "input_ids", "i64", {count, length}, ids);
    dump.add(name + "attention_mask", "i64", {count, length}, mask);
    dump.add(name + "position_ids", "i64", {count, length}, positions);
    dump.add(name + kDown, "f32", {count, length, kChannels}, values[0]);
    dump.add(name + kNext, "f32", {count, length, kChannels}, values[1]);
  }

  static void add(std::vector<double>& values, int tensor, std::int64_t token, std::int64_t at, const Change& change) {
    for (std::int64_t i = 0; i < kChannels; ++i) values.push_back(change(at, i, served(tensor, token, at, i)));
  }
};

inline std::vector<std::int64_t> tokens_of(std::int64_t count, std::int64_t seed = 1) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(1 + (i * i * 7 + i * seed * 13 + seed) % 97);
  return tokens;
}

inline DiffReport diff_of(MemoryDump& a, MemoryDump& b, const DiffOptions& options = {}) {
  const auto left = a.run();
  const auto right = b.run();
  Result<DiffReport> found = diff(*left, *right, options);
  return found ? *std::move(found) : DiffReport{};
}

}  // namespace nanscope::testing
