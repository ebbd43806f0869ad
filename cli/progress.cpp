#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace nanscope::cli {

namespace {

constexpr std::chrono::milliseconds kBetweenLines{100};
constexpr std::chrono::milliseconds kBetweenLogLines{2000};

std::string left_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s left", seconds);
  return fmt::format("{:.0f} min left", seconds / 60);
}

}  // namespace

std::string progress_text(std::int64_t done, std::int64_t total, double seconds, std::string_view unit,
                          std::string_view label) {
  std::string text = total > 0 ? fmt::format("{} of {} {}", done, total, unit) : fmt::format("{} {}", done, unit);
  if (done > 0 && seconds > 0) {
    const double rate = static_cast<double>(done) / seconds;
    text += fmt::format(", {:.3g}/s", rate);
    if (total > done) text += ", " + left_text(static_cast<double>(total - done) / rate);
  }
  return label.empty() ? text : fmt::format("{}  {}", text, label);
}

ProgressLine::ProgressLine(std::string unit, bool asked_for)
    : unit_(std::move(unit)),
      terminal_(isatty(STDERR_FILENO) == 1),
      enabled_(terminal_ || asked_for),
      start_(Clock::now()) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::clear() {
  if (shown_ && terminal_) std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

void ProgressLine::show(std::int64_t done, std::int64_t total, std::string_view label) {
  const auto now = Clock::now();
  if (!enabled_ || (shown_ && now - last_ < (terminal_ ? kBetweenLines : kBetweenLogLines))) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string text = progress_text(done, total, seconds, unit_, label);
  const std::string line = terminal_ ? "\r\x1b[K" + text : text + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace nanscope::cli
