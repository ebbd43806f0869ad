#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/recording/rows.h"
#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/cost.h"
#include "instrument/engine/request.h"
#include "instrument/engine/transient.h"
#include "instrument/engine/weight_source.h"
#include "instrument/probe.h"
#include "kernels/device.h"

namespace nanscope {

class Tokenizer;
struct LoadedModel;

/// A model's weights, uploaded and packed once. Engines on the same device whose `model.*` knobs
/// agree share one, so that a replay or a counterfactual does not load again. `stop` ends it between two weights.
Result<std::shared_ptr<const LoadedModel>> load_model(const EngineConfig& config, kernels::Device& device,
                                                      WeightSource& source, const Tokenizer& tokenizer,
                                                      std::stop_token stop = {});

/// Whether an engine of `config` may use `model`: every knob that shapes or makes weights agrees.
bool fits(const LoadedModel& model, const EngineConfig& config);

/// Where a run stands.
struct Progress {
  std::int64_t request = 0;
  std::int64_t step = 0;
  std::int64_t ops = 0;           ///< executed so far
  std::int64_t expected_ops = 0;  ///< as Engine::expected_ops()
};

/// Handles of the caller on a run. `progress` is called after every step from the thread that runs
/// the engine; `stop` is looked at before every op, and ends the run with the error "stopped".
struct RunControl {
  std::function<void(const Progress&)> progress;
  std::stop_token stop;
  /// Changes rows of an embedding's output (rows, width) in device memory, before anything reads them; of rank 0 of a
  /// step. Empty: nothing is changed.
  std::function<Status(kernels::Device&, const kernels::TensorView&, const StepRow&)> edit_embedding = {};
};

struct RunResult {
  std::vector<RequestRow> requests;  ///< in order, the warm-up not among them
  std::int64_t ops = 0;
  std::int64_t tensors = 0;
  std::int64_t steps = 0;
  std::uint64_t kv_bytes = 0;  ///< of the pool, its slot scales included
};

/// How many ops a run will execute. Not exact when a token may end a request early.
struct ExpectedOps {
  std::int64_t count = 0;
  bool exact = true;
};

/// A run whose requests come one after another while it goes on. After an error of run() it is over.
class LiveRun {
 public:
  virtual ~LiveRun() = default;
  /// Why a request cannot be run: no token, an image that cannot be read, more tokens than the cache or the limits
  /// allow.
  virtual Status accepts(const RequestSpec& request) const = 0;
  /// Runs these, up to engine.batch of them in a step. Ids go on from those of the requests before.
  virtual Result<std::vector<RequestRow>> run(std::span<const RequestSpec> requests) = 0;
  /// The step of a batch's schedule at which the next requests begin: RequestSpec::arrive of the same run at once.
  virtual std::int64_t now() const = 0;
  /// Its requests are those of all calls.
  virtual Result<RunResult> finish() = 0;
};

/// The reference transformer with a serving engine's semantics: requests run one after another over
/// one paged KV pool, prefix cache and scale policy. A run's bits depend on the configuration, the
/// weights and the prompts alone: not on time, addresses, the device, threads or probes.
class Engine {
 public:
  /// The device must outlive the engine. Runs that would take more than `limits` are refused before they begin. Errors
  /// name the knob that does not fit.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, kernels::Device& device,
                                                std::shared_ptr<const LoadedModel> model,
                                                std::shared_ptr<const Tokenizer> tokenizer,
                                                const RunLimits& limits = {});
  virtual ~Engine() = default;

  /// Runs all requests, with what happens between steps, telling `probe` all that happens. State (KV pool, caches,
  /// locked scales, changed weights) is new at the start of every run, so that equal runs are equal.
  virtual Result<RunResult> run(std::span<const RequestSpec> requests, std::span<const Transient> transients,
                                Probe& probe, const RunControl& control = {}) = 0;
  Result<RunResult> run(std::span<const RequestSpec> requests, Probe& probe, const RunControl& control = {}) {
    return run(requests, {}, probe, control);
  }

  /// Begins such a run, whose requests are not known yet. The transients, probe and control outlive it, and the engine
  /// runs nothing else meanwhile.
  virtual Result<std::unique_ptr<LiveRun>> begin(std::span<const Transient> transients, Probe& probe,
                                                 const RunControl& control) = 0;

  /// An upper bound of the ops of run(requests), before it runs.
  virtual Result<ExpectedOps> expected_ops(std::span<const RequestSpec> requests) const = 0;

  virtual const EngineConfig& config() const = 0;
};

}  // namespace nanscope
