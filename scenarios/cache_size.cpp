#include "scenarios/cache_size.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "instrument/engine/prompt.h"

namespace nanscope::scenarios {

Status fit_cache(Workbench& workbench, RunSpec& spec, std::stop_token stop) {
  // It loads the tokenizer, and the model that the run reads.
  const auto engine = workbench.engine(spec.config, std::move(stop));
  if (!engine) return tl::unexpected(engine.error());
  KvConfig& kv = spec.config.kv;
  const BatchConfig& batch = spec.config.batch;
  std::vector<std::int64_t> needed;
  for (const RequestSpec& request : spec.requests) {
    const auto prompt = make_prompt(request, spec.config, *workbench.tokenizer());
    if (!prompt) return tl::unexpected(prompt.error());
    // A request that is preempted in a batch has its answer so far computed again.
    const std::int64_t answer = std::int64_t{request.max_tokens} * (batch.requests > 1 ? 2 : 1);
    needed.push_back((std::ssize(prompt->tokens) + answer + kv.block_size - 1) / kv.block_size);
  }
  std::sort(needed.begin(), needed.end(), std::greater<>());
  needed.resize(std::min(needed.size(), static_cast<std::size_t>(batch.requests)));
  // The null block, and the block of a recurrent state a request.
  const std::int64_t others = 1 + std::ssize(needed);
  kv.blocks = std::max(kv.blocks, std::accumulate(needed.begin(), needed.end(), others));
  return {};
}

}  // namespace nanscope::scenarios
