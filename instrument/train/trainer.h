#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/engine/engine.h"
#include "instrument/engine/score_book.h"
#include "instrument/train/text_batches.h"

/// Training as a run: every training step is three steps of the run (forward, backward, optimizer), whose ops are told
/// to a probe like those of an answer.
namespace nanscope::train {

/// What one training step came to.
struct StepReport {
  std::int64_t step = 0;     ///< from 0
  double loss = 0;           ///< mean cross-entropy of the targets, in nats
  double gradient_norm = 0;  ///< of all weights, unscaled, before it is clipped
  double learning_rate = 0;
  double loss_scale = 1;  ///< that the gradients were made with
  std::int64_t targets = 0;
  bool skipped = false;                    ///< the gradients were not finite, and no weight was changed
  std::vector<ScoreBook::StepUse> scores;  ///< scales of attention's scores, queries and keys, where they are quantized
};

/// The optimizer's state of a weight, row-major, in train.state_format's values.
struct Moments {
  std::vector<float> first, second;
};

/// All that a training run needs to go on where it stopped, besides its configuration.
struct TrainState {
  std::int64_t step = 0;  ///< done so far
  double loss_scale = 1;
  std::int64_t steady_steps = 0;                      ///< since the last overflow, or the last growth
  std::map<std::string, std::vector<float>> weights;  ///< by name, the f32 master copies
  std::map<std::string, std::vector<float>> rounded;  ///< those that the model has in f16 or bf16, as it has them
  std::map<std::string, Moments> moments;
  ScoreMemory scores;  ///< what scores.policy has seen; empty where nothing of attention is quantized
};

/// Counts of a run so far.
struct RunTotals {
  std::int64_t ops = 0;
  std::int64_t tensors = 0;
  std::int64_t steps = 0;  ///< of the run, three a training step
};

/// Refuses what has no gradient, or would be trained as something else, in one line that names the knob.
Status check_trainable(const EngineConfig& config);

/// Trains a model from where it stands. Bits depend on the configuration, the weights and the text alone.
class Trainer {
 public:
  /// `device` and `probe` outlive it. Errors name the knob, or the kind of op or weight that has no gradient.
  static Result<std::unique_ptr<Trainer>> create(const EngineConfig& config, kernels::Device& device,
                                                 const std::shared_ptr<const LoadedModel>& model,
                                                 std::shared_ptr<const Tokenizer> tokenizer, TrainingText text);
  virtual ~Trainer() = default;

  /// The next training step. Whoever calls tells nobody else of the same run in between.
  virtual Result<StepReport> step(Probe& probe, const RunControl& control) = 0;
  /// Mean loss of sequences: of all positions at once, as they are trained (parallel), or token by token as they are
  /// generated (autoregressive), one sum in double each. Told to nobody.
  virtual Result<double> evaluate(const std::vector<std::vector<std::int32_t>>& sequences, bool autoregressive) = 0;

  virtual Result<TrainState> state() = 0;
  /// Errors: a weight that is missing, or of another shape.
  virtual Status restore(const TrainState& state) = 0;
  /// The model as it is now; weights that were changed are called by their versions (weight_version()).
  virtual std::shared_ptr<const LoadedModel> model() const = 0;
  virtual RunTotals totals() const = 0;
};

/// An engine whose run is a training run of config.train.steps steps; requests are refused. Runs that would take more
/// than `limits` are, too.
Result<std::unique_ptr<Engine>> make_training_engine(const EngineConfig& config, kernels::Device& device,
                                                     std::shared_ptr<const LoadedModel> model,
                                                     std::shared_ptr<const Tokenizer> tokenizer,
                                                     const RunLimits& limits = {});

}  // namespace nanscope::train
