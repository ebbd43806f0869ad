#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/numbers/format.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/score_book.h"
#include "instrument/train/trainer.h"
#include "scenarios/counterfactuals.h"

namespace nanscope::scenarios {

namespace {

/// Groups of knobs that an operator of this model can change. The model itself is not among them.
constexpr std::array<std::string_view, 11> kGroups = {
    "rope", "moe", "norm", "inner_norm", "kv", "activation", "attention", "scores", "engine", "allreduce", "train"};

/// Other ways to the same bits: a try would tell nothing.
constexpr std::array<std::string_view, 3> kSameBits = {"attention.fused", "kv.window_cache", "scores.scales_of"};

/// What a model was trained with: no choice of who serves it.
constexpr std::array<std::string_view, 4> kOfTheModel = {"rope.truncate", "moe.score", "moe.bias", "moe.normalise"};
constexpr std::array<std::string_view, 4> kTrainedScalings = {"linear", "llama3", "yarn", "longrope"};

template <std::size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Of attention on block-scaled operands alone.
constexpr std::array<std::string_view, 4> kOfTiles = {"attention.blocks_axis_k", "attention.blocks_axis_v",
                                                      "attention.diagonal", "attention.online"};

/// Bugs of kernels, and kernels of other bits, rather than choices: worth a try only to undo them.
constexpr std::array<std::string_view, 18> kBugs = {"attention.causal",         "attention.blocks_axis_k",
                                                    "engine.pad_rows",          "engine.preempt",
                                                    "attention.zero_guard",     "kv.clamp_nan",
                                                    "kv.state_index",           "kv.read_scale",
                                                    "kv.read_format",           "kv.rank_scales",
                                                    "kv.resume_state",          "kv.wake",
                                                    "activation.partial_sums",  "activation.scale_overflow",
                                                    "activation.scale_packing", "activation.scale_memory",
                                                    "activation.scale_reads",   "engine.kernel_form"};

bool is_bug(std::string_view name) { return is_among(kBugs, name); }

std::string_view group_of(std::string_view name) { return name.substr(0, name.find('.')); }

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool quantized(const EngineConfig& config) { return config.kv.policy != "unit_scale"; }

/// Whether K and V are kept under schemes, which say format and policy themselves.
bool has_schemes(const EngineConfig& config) {
  return !config.kv.scheme.empty() || !config.kv.scheme_k.empty() || !config.kv.scheme_v.empty();
}

constexpr std::array<std::string_view, 4> kOfSchemes = {"kv.format", "kv.policy", "kv.scale_k", "kv.scale_v"};

/// Whether the knob means anything in this configuration.
bool relevant(const EngineConfig& config, std::string_view name) {
  if (name == "kv.scheme") return false;  // other_schemes() has some of its values
  if (has_schemes(config) && is_among(kOfSchemes, name)) return false;
  const std::string_view group = group_of(name);
  if (!is_among(kGroups, group) || is_among(kOfTheModel, name) || is_among(kSameBits, name)) return false;
  if (is_among(kOfTiles, name)) return config.attention.blocks.any();
  const bool of_qk = name.starts_with("scores.qk_");
  if (of_qk) return config.scores.qk_format != Format::f32;
  if (name == "scores.format" || name == "scores.policy") return config.scores.format != Format::f32;
  if (group == "scores") return quantizes_attention(config.scores);
  if (group == "rope") {
    return config.rope.scaling != RopeScaling::none && !is_among(kTrainedScalings, get_knob(config, "rope.scaling"));
  }
  if (group == "moe") return config.model.experts > 0;
  // Another order is another text.
  if (group == "train") return config.train.steps > 0 && name != "train.order";
  if (group == "inner_norm") return config.model.inner_norm;
  if (name == "activation.block_ops") return false;  // more of the same
  // Other checkpoints have none.
  if (name == "activation.tensor_scales") return config.blocks.tensor_scales == TensorScales::checkpoint;
  if (name == "activation.blocks" || name.starts_with("activation.scale_")) {
    return config.blocks.format != ActivationBlocks::none;
  }
  if (name == "kv.policy") return quantized(config) || info(config.kv.format).bits == 8;
  if (name == "engine.pad_rows") return config.batch.pad_to > 0;
  if (group == "allreduce" || name == "kv.rank_scales") return config.ranks.count > 1;
  if (name == "engine.preempt") return config.batch.requests > 1;
  if (name.starts_with("engine.dummy_")) return config.dummy_batch != DummyBatch::none;
  if (name.starts_with("engine.grammar")) return !config.grammar.empty();
  if (name == "norm.contract" || name == "norm.clamp") return config.norm.variance == kernels::VarianceForm::one_pass;
  return true;
}

/// Whether the knob has this value already, an empty inner_norm.x standing for norm.x.
bool has_value(const EngineConfig& config, const Knob& knob, const std::string& value) {
  const std::string current = knob.get(config);
  if (!current.empty() || !knob.name.starts_with("inner_")) return current == value;
  return get_knob(config, knob.name.substr(std::string_view("inner_").size())) == value;
}

/// Static scales that hold everything the recording saw, with the policy that uses them.
std::optional<Change> wide_static_scales(const EngineConfig& config, const Recording& recording) {
  const auto ledger = recording.scales();
  if (!ledger || ledger->empty() || !quantized(config) || has_schemes(config)) return std::nullopt;
  double absmax_k = 0;
  double absmax_v = 0;
  for (const ScaleRow& row : *ledger) {
    if (!std::isfinite(row.absmax)) continue;
    if (row.target == "k") absmax_k = std::max(absmax_k, row.absmax);
    if (row.target == "v") absmax_v = std::max(absmax_v, row.absmax);
  }
  // A thousandth more, so that four digits never round below what is needed.
  const double largest = static_cast<double>(info(config.kv.format).max_finite) / 1.001;
  if (absmax_k <= 0 || absmax_v <= 0) return std::nullopt;
  return Change{{"kv.policy=static", fmt::format("kv.scale_k={:.4g}", absmax_k / largest),
                 fmt::format("kv.scale_v={:.4g}", absmax_v / largest)}};
}

/// Other ways to keep K and V, of servers that compute scales from what they scale; and no quantization.
std::vector<Change> other_schemes(const EngineConfig& config) {
  std::vector<Change> changes;
  if (!has_schemes(config)) return changes;
  for (const std::string_view policy : {"bf16", "vllm-fp8-per-token-head", "vllm-int8-per-token-head"}) {
    if (config.kv.scheme == policy && config.kv.scheme_k.empty() && config.kv.scheme_v.empty()) continue;
    Change change{{fmt::format("kv.scheme={}", policy)}};
    if (!config.kv.scheme_k.empty()) change.settings.emplace_back("kv.scheme_k=");
    if (!config.kv.scheme_v.empty()) change.settings.emplace_back("kv.scheme_v=");
    changes.push_back(std::move(change));
  }
  return changes;
}

/// Whether the engine runs the configuration with the change: what it refuses would tell nothing.
bool can_run(const EngineConfig& config, const Change& change) {
  EngineConfig changed = config;
  for (const std::string& setting : change.settings) {
    const std::size_t equals = setting.find('=');
    if (!set_knob(changed, setting.substr(0, equals), setting.substr(equals + 1))) return false;
  }
  if (changed.train.steps > 0 && !train::check_trainable(changed)) return false;
  return check(changed).has_value();
}

}  // namespace

std::vector<Change> candidate_changes(const RunSpec& spec, const Recording& recording) {
  std::vector<Change> changes;
  for (const Knob& knob : knobs()) {
    const bool listed = knob.allowed.find('|') != std::string::npos;
    if (!listed || !knob.numerics || !relevant(spec.config, knob.name)) continue;
    for (const std::string& value : split(knob.allowed, '|')) {
      const bool follows = value.empty() && !is_bug(knob.name);
      const bool static_alone = (knob.name == "kv.policy" || group_of(knob.name) == "scores") && value == "static";
      // Of one request at a time it is a scale that nobody uses.
      const bool alone = value == "per_step" && spec.config.batch.requests == 1;
      const bool breaks = is_bug(knob.name) && value != knob.get(EngineConfig{});
      const bool trained = knob.name == "rope.scaling" && is_among(kTrainedScalings, value);
      if (follows || static_alone || alone || breaks || trained || has_value(spec.config, knob, value)) continue;
      changes.push_back({{fmt::format("{}={}", knob.name, value)}});
    }
  }
  // What servers add to the sum of the chosen experts' weights (SGLang PR #31001).
  if (relevant(spec.config, "moe.eps") && spec.config.moe.eps == 0) changes.push_back({{"moe.eps=1e-20"}});
  if (spec.config.ranks.stuck_rank >= 0) changes.push_back({{"allreduce.stuck_rank=-1"}});
  if (spec.config.train.unreduced_rank >= 0) changes.push_back({{"train.unreduced_rank=-1"}});
  if (spec.config.batch.requests > 1) {
    Change alone;
    if (spec.config.batch.chunk > 0) alone.settings.emplace_back("engine.chunk=0");
    if (spec.config.batch.pad_to > 0) alone.settings.emplace_back("engine.pad_to=0");
    alone.settings.emplace_back("engine.batch=1");
    changes.push_back(std::move(alone));
  }
  for (Change& change : other_schemes(spec.config)) changes.push_back(std::move(change));
  if (auto wide = wide_static_scales(spec.config, recording)) changes.push_back(std::move(*wide));
  std::erase_if(changes, [&](const Change& change) { return !can_run(spec.config, change); });
  return changes;
}

}  // namespace nanscope::scenarios
