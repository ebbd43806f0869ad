#pragma once
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "core/recording/reader.h"
#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/engine.h"
#include "instrument/recorder/weight_facts.h"
#include "instrument/tokenizer/tokenizer.h"
#include "instrument/train/trainer.h"
#include "kernels/device.h"

namespace nanscope::scenarios {

/// A device with the last model that was loaded on it, so that runs of one model (replays,
/// counterfactuals) load it once. Use it from one thread.
class Workbench {
 public:
  /// `device` as kernels::make_device() names it; threads 0: one a core. Its engines refuse runs beyond the limits, and
  /// models, before they are loaded.
  static Result<std::unique_ptr<Workbench>> open(const std::string& device, int threads, const RunLimits& limits = {});
  static Result<std::unique_ptr<Workbench>> open(const EngineConfig& config, const RunLimits& limits = {});

  /// An engine of `config`; it borrows the workbench's device. `stop` ends the load of a model. Errors name the knob
  /// or the file.
  Result<std::unique_ptr<Engine>> engine(const EngineConfig& config, std::stop_token stop = {}) {
    return engine(config, *device_, std::move(stop));
  }
  /// One that launches its ops on `device`, which stands for the workbench's own: its memory is the same.
  Result<std::unique_ptr<Engine>> engine(const EngineConfig& config, kernels::Device& device,
                                         std::stop_token stop = {});

  /// Loads the model of `config` and compares its weights with those of a recording of such a run: what changes one
  /// setting of a recorded run has to change nothing else. Errors: as of engine(); a weight that is missing or has
  /// other bytes.
  Status load_recorded(const EngineConfig& config, const Recording& recording, const std::stop_token& stop = {});

  /// Trains the model of `config` from where its weights stand, step by step; it borrows the workbench's device. `stop`
  /// ends the load of a model. Errors: as of engine(), and those of the text and of Trainer::create().
  Result<std::unique_ptr<train::Trainer>> trainer(const EngineConfig& config, std::stop_token stop = {});

  kernels::Device& device() { return *device_; }
  const RunLimits& limits() const { return limits_; }
  /// Of the last engine's model; null before there was one.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  /// Of the model that the last engine uses.
  WeightFacts& weights() { return weights_; }

 private:
  Workbench(std::unique_ptr<kernels::Device> device, const RunLimits& limits)
      : device_(std::move(device)), limits_(limits), weights_(*device_) {}
  Status load_tokenizer(const ModelConfig& model);
  /// Tokenizer and model, where the last ones are others.
  Status load(const EngineConfig& config, std::stop_token stop);

  std::unique_ptr<kernels::Device> device_;
  RunLimits limits_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string tokenizer_path_;
  std::shared_ptr<const LoadedModel> model_;
  WeightFacts weights_;
};

}  // namespace nanscope::scenarios
