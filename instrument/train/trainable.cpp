#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/blocks/presets.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/score_book.h"
#include "instrument/train/trainer.h"
#include "kernels/ops/column_scales.h"

namespace nanscope::train {
namespace {

Status check_ranks_of(const TrainConfig& train) {
  if (train.ranks > train.batch) {
    return fail(
        fmt::format("train.ranks={} is more than the sequences of a step, train.batch={}", train.ranks, train.batch));
  }
  if (train.unreduced_rank < train.ranks) return {};
  return fail(fmt::format("train.unreduced_rank={} is no rank; train.ranks is {}", train.unreduced_rank, train.ranks));
}

Status check_blocks_of(const TrainConfig& train) {
  if (!train.gradient_blocks.empty() && train.blocks.empty()) {
    return fail("train.gradient_blocks needs train.blocks, the format of the other operands");
  }
  const std::pair<std::string_view, const std::string&> knobs[] = {{"train.blocks", train.blocks},
                                                                   {"train.gradient_blocks", train.gradient_blocks},
                                                                   {"train.weight_blocks", train.weight_blocks}};
  for (const auto& [knob, name] : knobs) {
    if (name.empty()) continue;
    const BlockPreset* preset = find_block_preset(name);
    if (preset != nullptr && preset->format.block.rows == 1 && kernels::rounds_elementwise(preset->format)) continue;
    return fail(fmt::format("{}={} is no block format of one row that is rounded element by element", knob, name));
  }
  return {};
}

/// Scales of scores are of one rank: no maximum is shared among several.
Status check_scores_of(const EngineConfig& config) {
  const TrainConfig& train = config.train;
  if (quantizes_attention(config.scores)) {
    if (train.ranks == 1) return {};
    return fail(
        fmt::format("training with scores, queries or keys in 8 bits needs train.ranks=1, not {}", train.ranks));
  }
  if (train.forget_scales_step < 0) return {};
  return fail("train.forget_scales_step: no scales are kept; scores.format and scores.qk_format are f32");
}

}  // namespace

Status check_trainable(const EngineConfig& config) {
  const ModelConfig& model = config.model;
  const auto refuse = [](std::string_view what) { return fail(fmt::format("{}: it cannot be trained", what)); };
  if (!model.recurrent_layers.empty()) return refuse("model.recurrent_layers has recurrent layers");
  if (config.ranks.count > 1) return refuse(fmt::format("engine.ranks={}", config.ranks.count));
  if (config.attention.mask != kernels::MaskMode::select) return fail("training needs attention.mask=select");
  if (config.attention.fused) return fail("training needs attention.fused=false");
  if (config.attention.split > 0) return fail("training needs attention.split=0");
  if (config.attention.causal == CausalMask::block) {
    return fail("training needs attention.causal=exact, off_by_one or none");
  }
  if (!config.kv.scheme.empty()) return refuse("kv.scheme=" + config.kv.scheme);
  if (Status scores = check_scores_of(config); !scores) return scores;
  const BlockConfig& input = config.blocks;
  if (input.packing != kernels::ScalePacking::rounded || input.memory != ScaleMemory::zeroed ||
      input.reads != ScaleReads::used) {
    return fail(
        "training needs activation.scale_packing=rounded, activation.scale_memory=zeroed and "
        "activation.scale_reads=used");
  }
  if (Status ranks = check_ranks_of(config.train); !ranks) return ranks;
  if (model.positions > 0 && config.train.length > model.positions) {
    return fail(fmt::format("train.length={} is longer than the model's table of model.positions={}",
                            config.train.length, model.positions));
  }
  const AttentionBlocks& blocks = config.attention.blocks;
  if (blocks.any() && config.train.attention_blocks && config.train.length % blocks.tile != 0) {
    return fail(fmt::format("train.length={} is no multiple of attention.tile={}, which gradients on blocks need",
                            config.train.length, blocks.tile));
  }
  if (reads_exact_scores(blocks)) {
    return fail("training with attention.diagonal=exact needs attention.blocks_axis_k=channels");
  }
  return check_blocks_of(config.train);
}

}  // namespace nanscope::train
