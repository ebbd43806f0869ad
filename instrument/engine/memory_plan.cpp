#include "instrument/engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/blocks/presets.h"
#include "instrument/engine/loaded_model.h"

namespace nanscope {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

/// Bytes that a layer keeps of a token.
double kept_bytes(const ModelConfig& model, const Storage& storage, bool expanded) {
  if (is_latent(model) && !expanded) return storage.bytes(1, model.kv_rank) + storage.bytes(1, model.rotated);
  return storage.bytes(1, model.kv_heads * model.head_dim) + storage.bytes(1, model.kv_heads * value_dim(model));
}

/// Parameters of experts that a token does not meet.
bool is_expert(std::string_view name) { return name.find(".experts.") != std::string_view::npos; }

}  // namespace

double Storage::bytes(std::int64_t rows, std::int64_t columns) const {
  const double elements = as_double(rows) * as_double(columns);
  if (!blocks) return elements * static_cast<double>(info(element).bits) / 8;
  const auto blocks_of = [](std::int64_t count, std::int32_t size) {
    return count < size ? as_double(count) / as_double(size) : as_double((count + size - 1) / size);
  };
  // Rows of a cache come one by one: a block over several of them is shared.
  const double count =
      blocks_of(rows, blocks->block.rows) * as_double((columns + blocks->block.columns - 1) / blocks->block.columns);
  return (elements * static_cast<double>(info(blocks->element).bits) +
          count * static_cast<double>(info(blocks->scale).bits)) /
         8;
}

Result<Storage> find_storage(std::string_view name) {
  if (const auto format = format_from_name(name)) return Storage{std::string(name), *format, std::nullopt};
  if (const BlockPreset* preset = find_block_preset(name))
    return Storage{std::string(name), preset->format.element, preset->format};
  return fail(
      fmt::format("'{}' is no format: expected f32, bf16, f16, e4m3, e5m2, int8 ..., or a name of "
                  "nanscope bits --block list",
                  name));
}

MemoryPlan plan_memory(const EngineConfig& config, const MemoryOptions& options) {
  const ModelConfig& model = config.model;
  MemoryPlan plan;
  std::int64_t experts = 0;
  for (const WeightShape& shape : weight_shapes(config, model.vocabulary)) {
    const std::int64_t count = shape.rows * shape.columns;
    plan.parameters += count;
    if (is_expert(shape.name)) experts += count;
    // The head is read by a product, but quantizers leave it as it is.
    const bool coded = shape.product && shape.name != "lm_head.weight";
    if (coded) plan.products += count;
    plan.weight_bytes += (coded ? options.weights : options.others).bytes(shape.rows, shape.columns);
  }
  plan.active = plan.parameters - experts;
  if (model.experts > 0) plan.active += experts / model.experts * std::min(model.experts_per_token, model.experts);
  plan.latent = is_latent(model);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (is_recurrent(model, layer)) {
      plan.request_bytes += as_double(state_width(model)) * sizeof(float);
      continue;
    }
    const double kept = kept_bytes(model, options.cache, false);
    const std::int64_t window = window_of(model, layer);
    const std::int64_t tokens = window > 0 ? std::min(window, options.context) : options.context;
    plan.token_bytes += kept;
    plan.request_bytes += kept * as_double(tokens);
    if (plan.latent) plan.expanded_token_bytes += kept_bytes(model, options.cache, true);
  }
  plan.cache_bytes = plan.request_bytes * as_double(options.batch);
  return plan;
}

}  // namespace nanscope
