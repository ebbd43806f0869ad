#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "instrument/engine/loaded_model.h"
#include "instrument/engine/op_plan.h"
#include "instrument/train/trainer.h"

namespace nanscope::train {
namespace {

class TrainingEngine final : public Engine {
 public:
  TrainingEngine(const EngineConfig& config, kernels::Device& device, std::shared_ptr<const LoadedModel> model,
                 std::shared_ptr<const Tokenizer> tokenizer, TrainingText text, std::int64_t expected_ops)
      : config_(config),
        device_(device),
        model_(std::move(model)),
        tokenizer_(std::move(tokenizer)),
        text_(std::move(text)),
        expected_ops_(expected_ops) {}

  using Engine::run;
  Result<RunResult> run(std::span<const RequestSpec> requests, std::span<const Transient> transients, Probe& probe,
                        const RunControl& control) override {
    if (!requests.empty()) return fail("a run that trains (train.steps above 0) answers no requests");
    if (!transients.empty()) return fail("a run that trains (train.steps above 0) has no transients");
    auto trainer = Trainer::create(config_, device_, model_, tokenizer_, text_);
    if (!trainer) return tl::unexpected(trainer.error());
    for (std::int64_t step = 0; step < config_.train.steps; ++step) {
      auto report = (*trainer)->step(probe, control);
      if (!report) return tl::unexpected(report.error());
    }
    RunResult result;
    const RunTotals totals = (*trainer)->totals();
    result.ops = totals.ops;
    result.tensors = totals.tensors;
    result.steps = totals.steps;
    return result;
  }

  Result<std::unique_ptr<LiveRun>> begin(std::span<const Transient>, Probe&, const RunControl&) override {
    return fail("a run that trains (train.steps above 0) answers no requests");
  }

  Result<ExpectedOps> expected_ops(std::span<const RequestSpec>) const override {
    return ExpectedOps{expected_ops_, false};
  }
  const EngineConfig& config() const override { return config_; }

 private:
  EngineConfig config_;
  kernels::Device& device_;
  std::shared_ptr<const LoadedModel> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TrainingText text_;
  std::int64_t expected_ops_;
};

/// An upper bound: an op of the forward pass has at most one of its gradient, a sum and a join of rows; attention's
/// are there once a sequence, with up to eight quantizations. Each rank has them all, but the sequences.
std::int64_t most_ops(const EngineConfig& config, const LoadedModel& model) {
  const std::int64_t once = make_plan(config, &model).ops_per_step;
  const std::int64_t each = config.model.layers * (config.attention.blocks.any() ? 40 : 8);
  const std::int64_t of_rank = 4 * once + 2 * std::ssize(model.weights) + 8;
  return config.train.steps * (config.train.ranks * of_rank + config.train.batch * each);
}

}  // namespace

Result<std::unique_ptr<Engine>> make_training_engine(const EngineConfig& config, kernels::Device& device,
                                                     std::shared_ptr<const LoadedModel> model,
                                                     std::shared_ptr<const Tokenizer> tokenizer,
                                                     const RunLimits& limits) {
  auto text = load_training_text(config.train, *tokenizer);
  if (!text) return tl::unexpected(text.error());
  const TrainConfig& train = config.train;
  const std::int64_t ops = most_ops(config, *model);
  RunCost cost = cost_of_run(config, model->vocabulary, std::array{RequestSize{train.batch * train.length, 1}}, 0);
  cost.bytes *= 4 * static_cast<double>(train.ranks);  // the tape, gradients and the optimizer's state
  cost.work *= 3 * static_cast<double>(train.steps);
  if (Status affordable = within(cost, limits); !affordable) return tl::unexpected(affordable.error());
  return std::make_unique<TrainingEngine>(config, device, std::move(model), std::move(tokenizer), std::move(*text),
                                          ops);
}

}  // namespace nanscope::train
