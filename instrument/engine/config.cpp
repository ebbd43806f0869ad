#include "instrument/engine/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/blocks/presets.h"
#include "instrument/engine/scheme_book.h"
#include "instrument/engine/score_book.h"
#include "instrument/engine/shard.h"
#include "instrument/engine/window_cache.h"
#include "instrument/model/rope_table.h"
#include "kernels/ops/column_scales.h"

namespace nanscope {

std::vector<std::filesystem::path> files_read(const EngineConfig& config) {
  std::vector<std::filesystem::path> files;
  const auto add = [&](const std::string& name) {
    if (!name.empty() && name != "reference" && name != "random") files.emplace_back(name);
  };
  add(config.model.weights);
  add(config.model.tokenizer);
  add(config.scores.scales);
  add(config.train.text);
  return files;
}

NormConfig resolved_inner_norm(const EngineConfig& config) {
  const InnerNormConfig& own = config.inner_norm;
  NormConfig norm = config.norm;
  norm.variance = own.variance.value_or(norm.variance);
  norm.order = own.order.value_or(norm.order);
  norm.contract = own.contract.value_or(norm.contract);
  norm.clamp = own.clamp.value_or(norm.clamp);
  norm.mean_by_reciprocal = own.mean_by_reciprocal.value_or(norm.mean_by_reciprocal);
  norm.eps = own.eps.value_or(norm.eps);
  return norm;
}

NormConfig latent_norm_of(const EngineConfig& config) {
  NormConfig norm = config.norm;
  if (config.model.latent_norm_eps > 0) norm.eps = static_cast<float>(config.model.latent_norm_eps);
  return norm;
}

Format read_format(const KvConfig& kv) {
  const bool fp8 = info(kv.format).bits == 8 && info(kv.format).exponent_bits > 0;
  return fp8 ? kv.read_format.value_or(kv.format) : kv.format;
}

const BlockFormat& block_format(const BlockConfig& blocks) {
  const BlockPreset* stated = blocks.preset.empty() ? nullptr : find_block_preset(blocks.preset);
  if (stated != nullptr) return stated->format;
  const std::string_view name = blocks.format == ActivationBlocks::nvfp4   ? "nvfp4"
                                : blocks.format == ActivationBlocks::mxfp4 ? "mxfp4-rceil"
                                                                           : "mxfp8-rceil";
  return find_block_preset(name)->format;
}

BlockFormat attention_block(const std::string& preset, BlockAxis axis) {
  const BlockPreset* stated = find_block_preset(preset);
  BlockFormat format = stated != nullptr ? stated->format : BlockFormat{};
  if (axis == BlockAxis::tokens) format.block = {format.block.columns, 1};
  return format;
}

float second_scale(const BlockConfig& blocks) {
  const bool none = blocks.format != ActivationBlocks::fp8 && block_format(blocks).second == SecondScale::none;
  return none ? 1.0F : blocks.tensor_scale;
}

namespace {

Status check_rope(const EngineConfig& config) {
  const ModelConfig& model = config.model;
  const RopeConfig& rope = config.rope;
  const bool stretches = rope.scaling == RopeScaling::dynamic || rope.scaling == RopeScaling::dynamic_unguarded;
  if (stretches && model.head_dim == 2) return fail("rope.scaling needs model.head_dim above 2");
  if (model.rotated % 2 != 0 || model.rotated > model.head_dim) {
    return fail(fmt::format("model.rotated={} is odd, or more than model.head_dim={}", model.rotated, model.head_dim));
  }
  if (model.rotated_from + rotated_channels(model) > model.head_dim) {
    return fail(fmt::format("model.rotated_from={} leaves less than {} channels of model.head_dim={}",
                            model.rotated_from, rotated_channels(model), model.head_dim));
  }
  if (rope.scaling != RopeScaling::longrope) return {};
  const auto pairs = static_cast<std::size_t>(rotated_channels(model) / 2);
  if (rope.short_factors.size() != pairs || rope.long_factors.size() != pairs) {
    return fail(
        fmt::format("rope.scaling=longrope needs {} numbers in rope.short_factors and rope.long_factors, got {} "
                    "and {}",
                    pairs, rope.short_factors.size(), rope.long_factors.size()));
  }
  return {};
}

Status check_batch(const EngineConfig& config) {
  if (!(config.sampling.temperature >= 0)) return fail("sampling.temperature must be 0 or more");
  if (config.sampling.temperature > 0 && !config.grammar.empty()) {
    return fail("sampling.temperature and engine.grammar: tokens of a grammar are not drawn");
  }
  if (config.batch.requests == 1) {
    if (config.batch.chunk > 0) return fail("engine.chunk needs engine.batch above 1");
    if (config.batch.pad_to > 0) return fail("engine.pad_to needs engine.batch above 1");
    return {};
  }
  if (config.dummy_batch != DummyBatch::none && config.dummy_at == DummyAt::decode) {
    return fail("engine.dummy_at=decode needs engine.batch=1; a batch has rows that pad it, engine.pad_to");
  }
  if (config.kv.sleep_after > 0) return fail("kv.sleep_after needs engine.batch=1");
  return {};
}

/// A preset that the ops of blocks do as it says.
Status check_blocks(const BlockConfig& blocks) {
  if (blocks.preset.empty()) return {};
  if (find_block_preset(blocks.preset) == nullptr) {
    return fail("activation.block_preset names no block format; `nanscope bits --block list` has them");
  }
  const auto refuse = [&](std::string_view what) {
    return fail(fmt::format("activation.block_preset={}: {}", blocks.preset, what));
  };
  if (blocks.format == ActivationBlocks::none) return refuse("needs activation.blocks");
  if (blocks.format == ActivationBlocks::fp8) return refuse("activation.blocks=fp8 has no blocks");
  const BlockFormat& f = block_format(blocks);
  const bool rounds_each = f.block.rows == 1 && f.rule != ScaleRule::signed_extreme && f.scaling != Scaling::bounds &&
                           !f.four_over_six && f.zero_sign == ZeroSign::kept && !f.divides_by_zero;
  if (!rounds_each) return refuse("its blocks are not of one row, or its elements are not rounded one by one");
  const bool read = f.reading == ScaleReading::plain && f.second != SecondScale::amax;
  if (!read) return refuse("its scales are not read as numbers");
  return {};
}

Status check_attention_block(const EngineConfig& config, std::string_view knob, const std::string& preset,
                             BlockAxis axis) {
  if (preset.empty()) return {};
  if (find_block_preset(preset) == nullptr) {
    return fail(fmt::format("attention.{} names no block format; `nanscope bits --block list` has them", knob));
  }
  const auto refuse = [&](std::string_view what) {
    return fail(fmt::format("attention.{}={}: {}", knob, preset, what));
  };
  const BlockFormat& f = find_block_preset(preset)->format;
  if (f.block.rows != 1 || !kernels::rounds_elementwise(f) || f.divides_by_zero || f.ties == Ties::stochastic) {
    return refuse("its blocks are not of one row, or its elements are not rounded one by one");
  }
  const bool across = axis == BlockAxis::channels && knob != "blocks_p";
  const bool of_values = knob == "blocks_v";
  const std::int64_t head = of_values ? value_dim(config.model) : config.model.head_dim;
  if (across && head % f.block.columns != 0) {
    return refuse(fmt::format("blocks of {} channels cross from head to head; {}={} is no multiple", f.block.columns,
                              of_values && config.model.value_dim > 0 ? "model.value_dim" : "model.head_dim", head));
  }
  if (!across && config.attention.blocks.tile % f.block.columns != 0) {
    return refuse(fmt::format("attention.tile={} is no multiple of its blocks of {}", config.attention.blocks.tile,
                              f.block.columns));
  }
  return {};
}

Status check_attention_blocks(const EngineConfig& config) {
  const AttentionConfig& attention = config.attention;
  const AttentionBlocks& blocks = attention.blocks;
  if (!blocks.any()) {
    if (blocks.diagonal != kernels::Diagonal::quantized) {
      return fail("attention.diagonal needs one of attention.blocks_q, blocks_k, blocks_v, blocks_p");
    }
    return {};
  }
  if (blocks.tile % 32 != 0) return fail(fmt::format("attention.tile={} is no multiple of 32", blocks.tile));
  if (attention.mask != kernels::MaskMode::select) {
    return fail("attention.blocks_*: tiles skip masked keys; attention.mask must be select");
  }
  if (attention.causal == CausalMask::block) {
    return fail("attention.causal=block is a mask of attention that is not tiled; attention.blocks_* must be empty");
  }
  if (attention.fused) return fail("attention.blocks_* quantizes what kv_read gives; attention.fused must be false");
  if (config.scores.qk_format != Format::f32) {
    return fail("attention.blocks_* and scores.qk_format quantize the same operands; use one of them");
  }
  if (blocks.diagonal == kernels::Diagonal::past && !blocks.k.empty() && blocks.k_axis == BlockAxis::tokens) {
    return fail("attention.diagonal=past is of values; with attention.blocks_axis_k=tokens use exact");
  }
  if (Status q = check_attention_block(config, "blocks_q", blocks.q, BlockAxis::channels); !q) return q;
  if (Status k = check_attention_block(config, "blocks_k", blocks.k, blocks.k_axis); !k) return k;
  if (Status v = check_attention_block(config, "blocks_v", blocks.v, blocks.v_axis); !v) return v;
  return check_attention_block(config, "blocks_p", blocks.p, BlockAxis::channels);
}

Status check_split(const AttentionConfig& attention) {
  if (attention.split == 0) return {};
  if (attention.split % 32 != 0) return fail(fmt::format("attention.split={} is no multiple of 32", attention.split));
  if (attention.blocks.any()) {
    return fail("attention.split and attention.blocks_*: tiles have an order of their own; use one of them");
  }
  if (attention.causal == CausalMask::block) {
    return fail("attention.split and attention.causal=block: that mask is of attention in one piece; use one of them");
  }
  return {};
}

/// Groups of experts, and what a token takes of them.
Status check_groups(const EngineConfig& config) {
  const std::int64_t experts = config.model.experts;
  const MoeConfig& moe = config.moe;
  if (experts == 0 || moe.groups == 1) return {};
  if (experts % moe.groups != 0) {
    return fail(fmt::format("moe.groups={} does not divide model.experts={}", moe.groups, experts));
  }
  if (moe.top_groups > moe.groups || moe.top_groups * (experts / moe.groups) < config.model.experts_per_token) {
    return fail(fmt::format("moe.top_groups={} of moe.groups={} hold no model.experts_per_token={} experts",
                            moe.top_groups, moe.groups, config.model.experts_per_token));
  }
  return {};
}

/// Latent attention: what its forward pass has no ops for.
Status check_latent(const EngineConfig& config) {
  const ModelConfig& model = config.model;
  if (model.q_rank > 0 && !is_latent(model)) return fail("model.q_rank needs model.kv_rank");
  if (!is_latent(model)) return {};
  const auto refuse = [&](std::string_view what) {
    return fail(fmt::format("model.kv_rank={} needs {}", model.kv_rank, what));
  };
  if (model.kv_heads != model.heads) return refuse("model.kv_heads as model.heads: each head has keys of its own");
  if (model.rotated == 0 || model.rotated_from + model.rotated != model.head_dim) {
    return refuse("model.rotated and model.rotated_from that rotate the last channels of a head");
  }
  if (model.positions > 0 || !model.unrotated_layers.empty()) return refuse("rotary positions in every layer");
  if (model.qk_norm) return refuse("model.qk_norm=false");
  if (config.blocks.format != ActivationBlocks::none && config.blocks.ops != BlockOps::mlp) {
    return refuse("activation.blocks=none or activation.block_ops=mlp: inputs of its projections are not quantized");
  }
  return {};
}

/// Gated delta nets, and gates of attention: what their forward pass has no ops for.
Status check_delta(const EngineConfig& config) {
  const ModelConfig& model = config.model;
  if (model.attention_gate && is_latent(model)) return fail("model.attention_gate needs model.kv_rank=0");
  if (model.attention_gate && config.ranks.count > 1) return fail("model.attention_gate needs engine.ranks=1");
  if (!is_delta(model)) return {};
  if (model.recurrent_layers.empty()) return fail("model.delta_key_heads needs model.recurrent_layers");
  if (model.delta_value_heads < 1 || model.delta_value_heads % model.delta_key_heads != 0) {
    return fail(fmt::format("model.delta_value_heads={} is no multiple of model.delta_key_heads={}",
                            model.delta_value_heads, model.delta_key_heads));
  }
  if (model.delta_key_dim < 1 || model.delta_value_dim < 1) {
    return fail("model.delta_key_heads needs model.delta_key_dim and model.delta_value_dim");
  }
  if (config.ranks.count > 1) return fail("model.delta_key_heads: a gated delta net needs engine.ranks=1");
  if (model.norm != kernels::NormKind::rms_norm) return fail("model.delta_key_heads needs model.norm=rms_norm");
  return {};
}

/// Tensor cores make plain products of f16 and bf16 here, and what else there is is not quietly made by other kernels.
Status check_kernel_form(const EngineConfig& config) {
  if (config.kernel_form == KernelForm::exact) return {};
  const auto refuse = [](std::string_view what) {
    return fail(fmt::format("engine.kernel_form=tensor_core {}; engine.kernel_form must be exact", what));
  };
  if (config.train.steps > 0) return refuse("has no gradients (train.steps)");
  if (config.blocks.format != ActivationBlocks::none) return refuse("does not read codes (activation.blocks)");
  if (config.partial_sums != Format::f32) return refuse("has no sums of halves (activation.partial_sums)");
  if (config.ranks.count > 1) return refuse("is not known of several ranks (engine.ranks)");
  return {};
}

Status check_ranks(const EngineConfig& config) {
  const RanksConfig& ranks = config.ranks;
  if (ranks.stuck_rank >= ranks.count) {
    return fail(fmt::format("allreduce.stuck_rank={} is no rank; engine.ranks is {}", ranks.stuck_rank, ranks.count));
  }
  if (ranks.stuck_bit >= info(config.activation_format).bits) {
    return fail(fmt::format("allreduce.stuck_bit={} is no bit of {}", ranks.stuck_bit, name(config.activation_format)));
  }
  return check_shards(config);
}

}  // namespace

Status check(const EngineConfig& config) {
  const ModelConfig& model = config.model;
  if (Status rope = check_rope(config); !rope) return rope;
  if (Status batch = check_batch(config); !batch) return batch;
  if (Status blocks = check_blocks(config.blocks); !blocks) return blocks;
  if (Status form = check_kernel_form(config); !form) return form;
  if (model.heads % model.kv_heads != 0) {
    return fail(fmt::format("model.heads={} is no multiple of model.kv_heads={}", model.heads, model.kv_heads));
  }
  if (model.head_dim % 2 != 0) {
    return fail(fmt::format("model.head_dim={} is odd; rotary embedding turns pairs of channels", model.head_dim));
  }
  if (model.experts > 0 && model.experts_per_token > model.experts) {
    return fail(fmt::format("model.experts_per_token={} is more than model.experts={}", model.experts_per_token,
                            model.experts));
  }
  if (model.parallel && model.norm_placement != NormPlacement::pre) {
    return fail("model.parallel needs model.norm_placement=pre");
  }
  if (Status groups = check_groups(config); !groups) return groups;
  if (Status latent = check_latent(config); !latent) return latent;
  std::int64_t recurrent = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) recurrent += is_recurrent(model, layer) ? 1 : 0;
  if (recurrent != static_cast<std::int64_t>(model.recurrent_layers.size())) {
    return fail(
        fmt::format("model.recurrent_layers names a layer twice or one that is not in 0..{}", model.layers - 1));
  }
  if (recurrent == model.layers) {
    return fail(
        "model.recurrent_layers names every layer; at least one layer must be attention, whose pool holds the states");
  }
  if (Status delta = check_delta(config); !delta) return delta;
  if (Status schemes = check_kv_schemes(config); !schemes) return schemes;
  if (Status scores = check_scores(config); !scores) return scores;
  if (Status window = check_window_cache(config); !window) return window;
  if (Status blocks = check_attention_blocks(config); !blocks) return blocks;
  if (Status split = check_split(config.attention); !split) return split;
  return check_ranks(config);
}

}  // namespace nanscope
