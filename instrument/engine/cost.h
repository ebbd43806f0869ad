#pragma once
#include <cstdint>
#include <limits>
#include <span>

#include "core/result.h"
#include "instrument/engine/config.h"

/// What a run will take, from its configuration alone: known before anything is allocated.
namespace nanscope {

struct RunCost {
  double bytes = 0;  ///< of weights that are not mapped, the KV pool and the largest step's activations
  double work = 0;   ///< floating-point operations; the launch of an op counts as a million
};

/// What a run may take.
struct RunLimits {
  double bytes = std::numeric_limits<double>::infinity();
  double work = std::numeric_limits<double>::infinity();
};

/// For runs whose configuration may come from a file of others: 2 GiB, a minute or so of two cores.
inline constexpr RunLimits kReplayLimits{2147483648.0, 1e12};

/// A request as far as its cost goes.
struct RequestSize {
  std::int64_t prompt = 0;     ///< tokens
  std::int64_t generated = 0;  ///< tokens at most
};

/// Of loading the model and of its KV pool; no overflow, whatever the knobs.
RunCost cost_of_model(const EngineConfig& config, std::int64_t vocabulary);
/// Of all requests, the model included.
RunCost cost_of_run(const EngineConfig& config, std::int64_t vocabulary, std::span<const RequestSize> requests,
                    std::int64_t ops_per_step);

/// Errors: what it takes, what it may take, and the options that raise that.
Status within(const RunCost& cost, const RunLimits& limits);

}  // namespace nanscope
