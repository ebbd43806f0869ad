#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

/// What the benchmarks share.
namespace nanscope {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Wall clock of one call.
double seconds(const auto& work) {
  const auto begin = Clock::now();
  work();
  return seconds_since(begin);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Prints a line of a table of what was measured, and gives `ok` back.
inline bool row(std::string_view measure, std::string_view value, std::string_view limit, bool ok) {
  fmt::print("| {:<56} | {:>28} | {:>10} | {:<3} |\n", measure, value, limit, ok ? "ok" : "NO");
  std::fflush(stdout);
  return ok;
}

/// Prints the error and exits with 2 when there is one.
inline void must(const Status& status) {
  if (status) return;
  fmt::print(stderr, "{}\n", status.error().message);
  std::exit(2);
}

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(2);
}

}  // namespace nanscope
