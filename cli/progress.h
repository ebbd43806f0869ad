#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace nanscope::cli {

/// One line on standard error that says how far long work is, its rate and the time that is left.
/// Silent unless standard error is a terminal, where the line is removed when the work is done, or it is asked for:
/// then it is a new line every other second, for logs.
class ProgressLine {
 public:
  /// `unit` is what is counted: "ops", "runs".
  explicit ProgressLine(std::string unit, bool asked_for = false);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Takes the line away, for something else to be printed there.
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

/// "12 of 40 runs, 3.1/s, 9 s left  kv.format=bf16".
std::string progress_text(std::int64_t done, std::int64_t total, double seconds, std::string_view unit,
                          std::string_view label);

}  // namespace nanscope::cli
