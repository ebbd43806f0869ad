#include "instrument/engine/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "instrument/engine/scheme_book.h"

namespace nanscope {
namespace {

constexpr double kWeightBytes = 4;  // weights and most activations are f32
constexpr double kLaunch = 1e6;
constexpr double kGib = 1073741824.0;

double real(std::int64_t value) { return static_cast<double>(value); }

/// Weights of one layer.
double layer_weights(const ModelConfig& model) {
  const double width = real(model.width);
  const double queries = real(model.heads) * real(model.head_dim);
  const double keys = real(model.kv_heads) * real(model.head_dim);
  const double values = real(model.kv_heads) * real(value_dim(model));
  const double rank = real(model.q_rank + model.kv_rank);
  const double latent = rank * width + real(std::max(model.q_rank, model.kv_rank)) * (queries + keys + values);
  const double projected = width * (queries + keys + values);
  const double attention = (is_latent(model) ? latent : projected) + width * real(mix_width(model));
  const std::int64_t hidden = std::max(model.mlp_width, model.expert_width);
  const double mlp = (is_gated(model.mlp) ? 3 : 2) * width * real(hidden);
  return std::max(attention, 2 * width * width) + mlp * std::max(1.0, real(model.experts)) + 8 * width +
         width * real(model.experts);
}

double all_weights(const ModelConfig& model, std::int64_t vocabulary) {
  const double patches = 3 * real(model.patch_size) * real(model.patch_size) * real(model.width);
  return real(model.layers) * layer_weights(model) + 2 * real(vocabulary) * real(model.width) + patches;
}

double kv_bytes(const EngineConfig& config) {
  const double slots = real(config.kv.blocks) * real(config.kv.block_size);
  const double widest = real(std::max(config.model.head_dim, value_dim(config.model)));
  const double channels = std::max(real(config.model.kv_heads) * widest, real(config.model.width));
  const auto element = static_cast<double>(info(config.kv.format).storage_bytes());
  double bytes = 2 * real(config.model.layers) * slots * (channels * element + kWeightBytes);
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    const std::optional<KvSchemes> schemes = kv_schemes(config, layer);
    if (!schemes) return bytes;
    for (const KvTarget target : {KvTarget::k, KvTarget::v}) {
      const KvScheme& scheme = schemes->of(target);
      const SchemeGroups groups = groups_of(scheme, config.model, target);
      const double kept = keeps_rows(scheme) ? channels : 0;
      bytes += slots * kWeightBytes * (channels + kept + real(groups.scales) + real(groups.zeros));
    }
  }
  return bytes;
}

/// Every buffer of a pass of so many tokens that sees so many keys.
double activation_bytes(const EngineConfig& config, std::int64_t vocabulary, double tokens, double keys) {
  const ModelConfig& model = config.model;
  constexpr double kOfWidth = 24;  // buffers as wide as the model, or as the heads
  constexpr double kOfMlp = 6;
  const double head = real(std::max(model.head_dim, value_dim(model)));
  const double width = std::max(real(model.width), real(model.heads) * head);
  const double blocks = config.attention.split > 0 ? keys / real(config.attention.split) + 1 : 0;
  const double row = kOfWidth * width + kOfMlp * real(model.mlp_width) * std::max(1.0, real(model.experts)) +
                     2 * real(vocabulary) + real(model.heads) * (2 * keys + blocks * (head + 2));
  const double read = 2 * keys * real(model.kv_heads) * head;
  return kWeightBytes * (tokens * row + read);
}

}  // namespace

RunCost cost_of_model(const EngineConfig& config, std::int64_t vocabulary) {
  const double weights = all_weights(config.model, vocabulary);
  // A checkpoint's weights lie in files that are mapped: the system has their pages back whenever it wants them.
  const bool mapped = !config.model.family.empty();
  return {(mapped ? 0 : kWeightBytes * weights) + kv_bytes(config), weights};
}

RunCost cost_of_run(const EngineConfig& config, std::int64_t vocabulary, std::span<const RequestSize> requests,
                    std::int64_t ops_per_step) {
  RunCost cost = cost_of_model(config, vocabulary);
  const ModelConfig& model = config.model;
  const double weights = all_weights(model, vocabulary);
  double largest = 0;
  const double ranks = real(config.ranks.count);
  const double copies = ranks > 1 ? 2 * ranks : 1;  // what a rank above 0 tells is copied first
  for (const RequestSize& request : requests) {
    const double prompt = real(request.prompt);
    const double generated = real(request.generated);
    const double keys = prompt + generated;
    const double scores = 4 * keys * real(model.heads) * real(model.head_dim) * real(model.layers);
    cost.work += keys * (2 * weights + scores) + (generated + 1) * real(ops_per_step) * kLaunch;
    largest = std::max(largest, copies * activation_bytes(config, vocabulary, prompt, keys));
  }
  cost.bytes += largest;
  return cost;
}

Status within(const RunCost& cost, const RunLimits& limits) {
  if (cost.bytes > limits.bytes)
    return fail(
        fmt::format("its configuration needs {:.1f} GiB of memory, more than the {:.1f} GiB of "
                    "--replay-memory",
                    cost.bytes / kGib, limits.bytes / kGib));
  if (cost.work > limits.work)
    return fail(
        fmt::format("its configuration needs {:.3g} teraops, more than the {:.3g} of "
                    "--replay-work",
                    cost.work / 1e12, limits.work / 1e12));
  return {};
}

}  // namespace nanscope
