#include <fmt/format.h>

#include <string>
#include <string_view>

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
  if (quantizes_attention(config.scores)) return fail("training needs scores.format=f32 and scores.qk_format=f32");
  if (config.blocks.format != ActivationBlocks::none) {
    return refuse("activation.blocks=" + get_knob(config, "activation.blocks"));
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
  if (config.train.blocks.empty()) return {};
  const BlockPreset* preset = find_block_preset(config.train.blocks);
  if (preset == nullptr || preset->format.block.rows != 1 || !kernels::rounds_elementwise(preset->format)) {
    return fail(fmt::format("train.blocks={} is no block format of one row that is rounded element by element",
                            config.train.blocks));
  }
  return {};
}

}  // namespace nanscope::train
