#include "instrument/verify/verified_dump.h"

#include <utility>

#include "instrument/verify/adapter.h"

namespace nanscope {

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
  const ModelConfig& model = opened->spec.model;
  Geometry geometry;
  geometry.heads = model.heads;
  geometry.kv_heads = model.kv_heads;
  geometry.width = model.head_dim;
  opened->run = std::make_unique<DumpRun>(opened->dump->dump(), *opened->dump, options.stop, std::move(geometry));
  return opened;
}

}  // namespace nanscope
