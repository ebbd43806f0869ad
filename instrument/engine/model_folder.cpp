#include "instrument/engine/model_folder.h"

#include <utility>

#include "instrument/model/model_spec.h"

namespace nanscope {

Status use_model_folder(EngineConfig& config, const std::filesystem::path& folder) {
  Result<ModelSpec> spec = read_model_spec(folder);
  if (!spec) return tl::unexpected(spec.error());
  EngineConfig changed = config;
  changed.model = std::move(spec->model);
  changed.rope = std::move(spec->rope);
  changed.moe = spec->moe;
  changed.norm.eps = spec->norm_eps;
  changed.activation_format = spec->format;
  changed.kv.format = spec->format;
  if (Status fits = check(changed); !fits) {
    return fail((folder / "config.json").string() + ": " + fits.error().message);
  }
  config = std::move(changed);
  return {};
}

}  // namespace nanscope
