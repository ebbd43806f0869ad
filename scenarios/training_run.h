#pragma once
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/files/output_file.h"
#include "core/result.h"
#include "instrument/train/trainer.h"
#include "scenarios/run_spec.h"
#include "scenarios/workbench.h"

namespace nanscope::scenarios {

/// Where a training run is recorded; nowhere without a path.
struct TrainingRecord {
  std::filesystem::path path;
  OutputOptions output{.mode = 0644};
  std::string capture = "none";  ///< a CapturePolicy's text
};

/// The loss of a text that is not trained on: means over the targets of consecutive sequences, in nats.
struct HeldOutLoss {
  double parallel = 0;        ///< all positions at once
  double autoregressive = 0;  ///< token by token
  std::int64_t sequences = 0;
  std::int64_t length = 0;  ///< targets of each: train.length
};

/// Trains step by step, and keeps what a later one needs to go on. Use it from one thread.
class TrainingRun {
 public:
  /// The workbench outlives it. `stop` ends the load of the model. Errors: those of Workbench::trainer(), a recording
  /// that cannot be begun.
  static Result<std::unique_ptr<TrainingRun>> create(Workbench& workbench, const RunSpec& spec,
                                                     const TrainingRecord& record = {}, std::stop_token stop = {});
  virtual ~TrainingRun() = default;

  /// Goes on from a checkpoint of the same run, before the first step. Errors: those of load_checkpoint(), and a run
  /// that is recorded, whose recording would lack its beginning.
  virtual Status resume(const std::filesystem::path& folder) = 0;
  virtual Result<train::StepReport> step() = 0;
  /// Of the first sequences of the text, at most `most`, by the model as it is now. Errors: a text shorter than one
  /// sequence and its last target.
  virtual Result<HeldOutLoss> held_out(std::string_view text, std::int64_t most) = 0;
  /// Training steps that are done.
  virtual std::int64_t done() const = 0;
  /// As train::save_checkpoint() writes it.
  virtual Status save(const std::filesystem::path& folder, bool replace) = 0;
  /// Ends the recording as one that is complete; without it, it counts as interrupted.
  virtual Status finish() = 0;
};

}  // namespace nanscope::scenarios
