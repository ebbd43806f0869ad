#include "instrument/verify/verified_dump.h"

#include <utility>

#include "instrument/verify/adapter.h"

namespace nanscope {

Geometry geometry_of(const ModelSpec& spec) {
  Geometry geometry;
  geometry.heads = spec.model.heads;
  geometry.kv_heads = spec.model.kv_heads;
  geometry.width = spec.model.head_dim;
  if (is_latent(spec.model)) geometry.shared = spec.model.rotated;
  geometry.layers = spec.model.layers;
  return geometry;
}

std::unique_ptr<DumpRun> VerifiedDump::another_run(std::stop_token stop) const {
  return std::make_unique<DumpRun>(dump->dump(), *dump, std::move(stop), geometry_of(spec));
}

Result<std::unique_ptr<VerifiedDump>> VerifiedDump::open(const VerifiedDumpOptions& options) {
  auto spec = read_model_spec(options.model);
  if (!spec) return tl::unexpected(spec.error());
  auto opened = std::make_unique<VerifiedDump>();
  opened->spec = std::move(*spec);
  OpenDumpOptions opening;
  opening.stop = options.stop;
  opening.progress = options.progress;
  opening.sums = false;
  opening.follow_links = options.follow_links;
  opening.checkpoint = options.model;
  if (!options.adapter.empty()) {
    auto merged = merged_weights(options.adapter, options.model);
    if (!merged) return tl::unexpected(merged.error());
    opening.merged = std::move(*merged);
  }
  auto dump = OpenDump::open(options.dump, opening);
  if (!dump) return tl::unexpected(dump.error());
  opened->dump = std::move(*dump);
  opened->run = opened->another_run(options.stop);
  return opened;
}

}  // namespace nanscope
