#include "instrument/verify/verified_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/text/safe_text.h"
#include "instrument/model/family.h"
#include "instrument/verify/adapter.h"

namespace nanscope {

Geometry geometry_of(const ModelSpec& spec) {
  Geometry geometry;
  geometry.heads = spec.model.heads;
  geometry.kv_heads = spec.model.kv_heads;
  geometry.width = spec.model.head_dim;
  if (is_latent(spec.model)) geometry.shared = spec.model.rotated;
  geometry.layers = spec.model.layers;
  geometry.attention_gate = spec.model.attention_gate;
  geometry.parallel = spec.model.parallel;
  geometry.embedding_scale = spec.model.embedding_scale;
  geometry.delta = {spec.model.delta_key_heads, spec.model.delta_value_heads, spec.model.delta_key_dim,
                    spec.model.delta_value_dim};
  const ModelFamily* family = find_family(spec.model.family);
  if (family == nullptr) return geometry;
  geometry.sine_first = family->sine_first;
  geometry.fused_by_heads = std::any_of(family->parts.begin(), family->parts.end(),
                                        [](const WeightRule& rule) { return rule.part == WeightPart::q_of_heads; });
  return geometry;
}

namespace {

/// vLLM keeps the fused projection of such a family with all queries first, so that its rows are not the file's.
Status check_order(const Dump& dump, const ModelSpec& spec) {
  if (!geometry_of(spec).fused_by_heads || spec.model.kv_heads == 1) return {};
  for (const DumpTensor& tensor : dump.tensors) {
    for (const std::string_view module : {".attention.attn.", ".self_attention.attn."}) {
      if (tensor.name.find(module) == std::string::npos) continue;
      return fail(
          fmt::format("{}: vLLM reorders the fused projection of {} checkpoints when it loads them, which verify "
                      "does not follow",
                      one_line(tensor.name), spec.model.family));
    }
  }
  return {};
}

}  // namespace

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
  if (Status order = check_order(opened->dump->dump(), opened->spec); !order) return tl::unexpected(order.error());
  opened->run = opened->another_run(options.stop);
  return opened;
}

}  // namespace nanscope
