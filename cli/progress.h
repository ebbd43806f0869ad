#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace nanscope::cli {

/// Shows progress, rate and remaining time on standard error. On a terminal: one line, which the destructor removes.
/// Elsewhere: nothing, or with `asked_for` a new line every two seconds, for logs.
class ProgressLine {
 public:
  /// `unit`: plural of the counted thing, such as "ops" or "runs".
  explicit ProgressLine(std::string unit, bool asked_for = false);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Removes the line, so that other text can be printed.
  void clear();
  void show(std::int64_t done, std::int64_t total, std::string_view label);

 private:
  using Clock = std::chrono::steady_clock;
  std::string unit_;
  bool terminal_;
  bool enabled_;
  bool shown_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

/// "12 of 40 runs, 3.1/s, 9 s left  kv.format=bf16". `total` 0: unknown. `seconds`: since the start.
std::string progress_text(std::int64_t done, std::int64_t total, double seconds, std::string_view unit,
                          std::string_view label);

}  // namespace nanscope::cli
