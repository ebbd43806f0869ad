#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/why.h"
#include "tests/unit/core/run/graph.h"

/// Graphs as dumps give them, and what a walk back through one says.
namespace nanscope::testing {

/// A pool of eight slots in blocks of four: request 0 wrote block 1 in the first pass; in the second, request 1 reads
/// it as its prefix, and writes two tokens into block 0.
struct Pool {
  DumpGraph g;
  TensorId first = 0;   ///< the cache after the first pass
  TensorId second = 0;  ///< and after the second
  TensorId k_first = 0;
  TensorId k_second = 0;
  KvStoreAttributes blocks;

  explicit Pool(const Fill& k = constant(1), const Fill& after_first = constant(1),
                const Fill& after_second = constant(1)) {
    blocks.block_size = 4;
    g.pass();
    k_first = g.op("k_rope", OpKind::rope, {}, {.role = "k_rot", .fill = k});
    first = g.op("kv_store", OpKind::kv_store, {{"k", k_first}}, cache(after_first), blocks);
    g.kv(0, 1, 0, 4, 0, KvAction::allocated);
    g.kv(0, 1, 0, 4, 0, KvAction::written);
    g.pass({Span{1, 0, 0, 2, 4, 6}}, 2);
    k_second = g.op("k_rope", OpKind::rope, {}, {.role = "k_rot", .tokens = 2, .fill = k});
    second = g.op("kv_store", OpKind::kv_store, {{"k", k_second}}, cache(after_second), blocks);
    g.kv(1, 1, 0, 4, 0, KvAction::allocated);
    g.kv(1, 0, 0, 4, 4, KvAction::allocated);
    g.kv(1, 0, 0, 2, 4, KvAction::written);
  }
  static Made cache(const Fill& fill) { return {.role = "k_cache", .tokens = 8, .fill = fill, .axis = Axis::slots}; }
};

inline WhyPath walk_from(DumpGraph& run, TensorId tensor, std::int64_t row, std::int64_t channel) {
  Facts facts(run);
  return walk(facts, {tensor, row, channel});
}

/// Empty where the path is shorter.
inline Hop hop(const WhyPath& path, std::size_t index) { return index < path.hops.size() ? path.hops[index] : Hop{}; }

/// "-" where the hop has no number of that name.
inline std::string number(const Hop& hop, const std::string& name) {
  const EvidenceValue* value = find(hop.numbers, name);
  return value != nullptr ? to_string(*value) : "-";
}

inline std::vector<std::string> names(const WhyPath& path) {
  std::vector<std::string> found;
  for (const Hop& hop : path.hops) {
    found.push_back(hop.kind == HopKind::element ? hop.tensor : fmt::format("{} {}", name(hop.kind), hop.tensor));
  }
  return found;
}

}  // namespace nanscope::testing
