#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "instrument/engine/forward.h"
#include "instrument/engine/kv_pool.h"
#include "instrument/engine/op_plan.h"
#include "instrument/engine/scale_book.h"
#include "instrument/engine/score_book.h"
#include "instrument/engine/workspace.h"

namespace nanscope::train {

/// The engine's forward pass over whole sequences, each with blocks of its own in a KV pool that no step shares. What
/// chooses scales of keys and values remembers the steps before, as in a server.
class ForwardPass {
 public:
  /// `config` and `model` outlive it. A pool for `sequences` of `length` tokens.
  static Result<std::unique_ptr<ForwardPass>> create(const EngineConfig& config, kernels::Device& device,
                                                     const LoadedModel& model, std::int64_t sequences,
                                                     std::int64_t length);

  /// The step that `row` states: its spans begin at position 0 each. The logits of all rows.
  Result<Live> run(const StepRow& row, const std::vector<std::int32_t>& tokens, Emitter& emitter);
  /// One more token of the only sequence, which has `first` before it.
  Result<Live> run_next(std::int64_t first, std::int32_t token, Emitter& emitter);

  /// Scales of scores, queries and keys; null where none is quantized. Each training step is one of theirs.
  ScoreBook* scores() { return scores_ ? &*scores_ : nullptr; }

  /// Configuration of the pool: kv.blocks is as many as it needs.
  const EngineConfig& config() const { return config_; }

 private:
  ForwardPass(const EngineConfig& config, kernels::Device& device, const LoadedModel& model)
      : config_(config), device_(device), model_(model), workspace_(device) {}
  std::vector<std::int32_t> blocks_of(std::size_t sequence, std::int64_t context) const;
  void tell_blocks(const StepRow& row, KvAction action, Emitter& emitter) const;
  Result<Live> run(StepInput input, Emitter& emitter);

  EngineConfig config_;
  kernels::Device& device_;
  const LoadedModel& model_;
  Workspace workspace_;
  ModelPlan plan_;
  std::int64_t blocks_each_ = 0;
  std::optional<KvPool> pool_;
  std::optional<ScaleBook> scales_;
  std::optional<ScoreBook> scores_;
};

}  // namespace nanscope::train
