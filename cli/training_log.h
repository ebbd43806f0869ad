#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/progress.h"
#include "core/files/output_file.h"
#include "core/result.h"
#include "instrument/train/trainer.h"

namespace nanscope::cli {

/// The curves of a training run as CSV: one row per step, written when the step ends.
class TrainingCurves {
 public:
  /// Creates the file. With `resume`, keeps an existing file's rows of steps before `first_step`: the run computes the
  /// later ones again. Errors: the file exists without `resume` or `force`; it is not a file of curves; it has a row of
  /// step `end_step` or later, which this run cannot have written; it cannot be written.
  static Result<TrainingCurves> open(const std::filesystem::path& path, std::int64_t first_step, std::int64_t end_step,
                                     bool resume, OutputOptions output);

  /// Errors: the disk is full.
  Status add(const train::StepReport& report, double seconds);

 private:
  explicit TrainingCurves(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  std::ofstream file_;
};

/// Progress of a training run on standard error: one changing line on a terminal, else a new line every `every` steps.
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
