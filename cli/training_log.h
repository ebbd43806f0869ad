#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/progress.h"
#include "core/result.h"
#include "instrument/train/trainer.h"

namespace nanscope::cli {

/// The curves of a training run as CSV, a row a step, each written when its step is done.
class TrainingCurves {
 public:
  /// Begins the file, or, of a run that goes on, cuts it behind the rows of steps before `first_step`: what comes
  /// after them is made again. Errors: it exists and neither `resume` nor `force` is set, it is no such file, it has a
  /// step from `end_step` on, which the run cannot have done, it cannot be written.
  static Result<TrainingCurves> open(const std::filesystem::path& path, std::int64_t first_step, std::int64_t end_step,
                                     bool resume, bool force);

  /// Errors: the disk is full.
  Status add(const train::StepReport& report, double seconds);

 private:
  explicit TrainingCurves(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  std::ofstream file_;
};

/// What a training run says on standard error: a line that changes on a terminal, else one every so many steps.
class TrainingLog {
 public:
  /// `every` 0: twenty lines in all.
  TrainingLog(std::int64_t first_step, std::int64_t steps, std::int64_t every, std::int64_t tokens_a_step);
  void show(const train::StepReport& report);
  void clear() { line_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t first_step_;
  std::int64_t steps_;
  std::int64_t every_;
  std::int64_t tokens_;
  bool terminal_;
  ProgressLine line_;
  Clock::time_point start_;
};

/// "loss 5.1324, gradient norm 0.91, learning rate 0.001, loss scale 65536".
std::string step_text(const train::StepReport& report);

}  // namespace nanscope::cli
