#include "instrument/engine/model_folder.h"

#include <algorithm>
#include <utility>

#include "instrument/engine/knobs.h"
#include "instrument/engine/kv_pool.h"

namespace nanscope {

Status use_model_spec(EngineConfig& config, const ModelSpec& spec) {
  EngineConfig changed = config;
  changed.model = spec.model;
  changed.rope = spec.rope;
  changed.moe = spec.moe;
  changed.norm.eps = spec.norm_eps;
  changed.activation_format = spec.format;
  changed.kv.format = spec.kv_format.value_or(spec.format);
  if (is_delta(spec.model)) changed.kv.block_size = std::max(changed.kv.block_size, block_with_states(changed));
  if (spec.nvfp4_inputs || spec.fp8_inputs) {
    changed.blocks.format = spec.nvfp4_inputs ? ActivationBlocks::nvfp4 : ActivationBlocks::fp8;
    changed.blocks.ops = BlockOps::linears;
    changed.blocks.tensor_scales = TensorScales::checkpoint;
  }
  for (const auto& [name, value] : spec.attention) {
    if (Status set = set_knob(changed, name, value); !set) return fail("nanscope_attention: " + set.error().message);
  }
  if (Status fits = check(changed); !fits) return fits;
  config = std::move(changed);
  return {};
}

Status use_model_folder(EngineConfig& config, const std::filesystem::path& folder) {
  const Result<ModelSpec> spec = read_model_spec(folder);
  if (!spec) return tl::unexpected(spec.error());
  const Status used = use_model_spec(config, *spec);
  return used ? used : fail((folder / "config.json").string() + ": " + used.error().message);
}

}  // namespace nanscope
