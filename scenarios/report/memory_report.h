#pragma once
#include <optional>
#include <string>
#include <vector>

#include "instrument/engine/memory_plan.h"
#include "scenarios/report/text.h"

/// What `nanscope memory` says of a model.
namespace nanscope::report {

/// The same model with another format of the cache.
struct CacheChoice {
  std::string format;
  MemoryPlan plan;
};

struct MemoryWords {
  std::string target;
  std::string family;
  MemoryOptions options = {};
  MemoryPlan plan = {};
  std::optional<double> stored_bytes = {};  ///< of the checkpoint's files
  bool as_stored = false;                   ///< weights are quantized there, and are counted so
  std::vector<CacheChoice> caches = {};
  std::vector<double> devices = {};  ///< bytes of memory of each size that was asked for
};

/// Weights, cache, what fits on each device, and what other formats of the cache take.
std::string memory_text(const MemoryWords& words, const Terminal& terminal);
/// `nanscope.memory/1`; bytes are numbers.
std::string memory_json(const MemoryWords& words);

}  // namespace nanscope::report
