#pragma once
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string_view>

#include "core/result.h"
#include "instrument/engine/cost.h"
#include "scenarios/run_spec.h"
#include "scenarios/text_loss.h"

namespace nanscope::serve {

struct LossOptions {
  std::int64_t length = 128;         ///< tokens of a sequence, at least 2; the first is no target
  std::int64_t most_sequences = 16;  ///< from the beginning of the text
  std::int32_t begin_token = -1;     ///< stands before each sequence; negative: none
  bool autoregressive = false;       ///< also token by token, each after the cache of those before it
  bool grow_cache = false;           ///< kv.blocks is raised to what the sequences need
  RunLimits limits = {};
  std::stop_token stop = {};
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};  ///< sequences, of both ways
};

/// Runs the deployment of `spec`, without its requests, on consecutive sequences of the text. Errors: as of
/// LiveSession::open(); a model without a tokenizer; a text shorter than one sequence; a token that the model does not
/// have; "stopped".
Result<scenarios::TextLoss> measure_loss(const scenarios::RunSpec& spec, std::string_view text,
                                         const LossOptions& options);

}  // namespace nanscope::serve
