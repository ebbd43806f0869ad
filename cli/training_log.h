#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/progress.h"
#include "core/files/output_file.h"
#include "core/result.h"
#include "instrument/train/trainer.h"

namespace nanscope::cli {

/// What the rows of a CSV file of a training run hold; each begins with its step.
enum class CurvesOf : std::uint8_t {
  steps,   ///< one row a step: loss, norm, rates
  scales,  ///< one row a scale of attention's scores, queries and keys
};

/// The curves of a training run as CSV, written when a step ends.
class TrainingCurves {
 public:
  /// Creates the file. With `resume`, keeps an existing file's rows of steps before `first_step`: the run computes the
  /// later ones again. Errors: the file exists without `resume` or `force`; it is not a file of curves; it has a row of
  /// step `end_step` or later, which this run cannot have written; it cannot be written.
  static Result<TrainingCurves> open(CurvesOf what, const std::filesystem::path& path, std::int64_t first_step,
                                     std::int64_t end_step, bool resume, OutputOptions output);

  /// Errors: the disk is full.
  Status add(const train::StepReport& report, double seconds);

 private:
  TrainingCurves(CurvesOf what, std::filesystem::path path) : what_(what), path_(std::move(path)) {}
  CurvesOf what_;
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

/// How much of an 8-bit format the scores, queries and keys of a training run used.
class ScaleUsage {
 public:
  void add(const train::StepReport& report);
  /// "scales of attention: 3 of 160 uses overflowed; used of the format: median 78.2 %, ..."; empty where nothing of
  /// attention is quantized.
  std::string text() const;

 private:
  static constexpr std::size_t kParts = 1000;  ///< of the format, and one for what overflows
  double at(double part) const;
  std::array<std::int64_t, kParts + 1> counts_{};
  std::int64_t uses_ = 0;
  double sum_ = 0;  ///< of uses that are finite, an overflow counting as the whole format
};

/// "loss 5.1324, gradient norm 0.91, learning rate 0.001, loss scale 65536".
std::string step_text(const train::StepReport& report);

}  // namespace nanscope::cli
