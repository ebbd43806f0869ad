#pragma once
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/engine/cost.h"
#include "scenarios/run_spec.h"

/// The loss of a text: the mean negative log probability of each token after those before it, in nats.
namespace nanscope::serve {

struct LossOptions {
  std::int64_t length = 128;         ///< tokens of a sequence, at least 2; the first is no target
  std::int64_t most_sequences = 16;  ///< from the beginning of the text
  std::int32_t begin_token = -1;     ///< stands before each sequence; negative: none
  bool autoregressive = false;       ///< also token by token, each after the cache of those before it
  RunLimits limits;
  std::stop_token stop;
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< sequences, of both ways
};

/// Means over the targets of one sequence.
struct SequenceLoss {
  std::int64_t first_token = 0;  ///< of the text
  std::int64_t targets = 0;
  double parallel = 0;        ///< all positions in one step
  double autoregressive = 0;  ///< a step for each position; NaN where it was not asked for
};

struct TextLoss {
  std::vector<SequenceLoss> sequences;
  std::int64_t text_tokens = 0;
  std::int64_t text_sequences = 0;  ///< that the text has; those beyond LossOptions::most_sequences were left out
};

/// A mean over sequences, and its standard error; the error is NaN for one sequence.
struct MeanOfSequences {
  double mean = 0;
  double error = 0;
};
enum class LossKind : std::uint8_t { parallel, autoregressive, gap };
/// The gap is autoregressive minus parallel, sequence by sequence.
MeanOfSequences mean_of(const TextLoss& loss, LossKind kind);

/// Runs the deployment of `spec`, without its requests, on consecutive sequences of the text. Errors: as of
/// LiveSession::open(); a text shorter than one sequence; a token that the model does not have; "stopped".
Result<TextLoss> measure_loss(const scenarios::RunSpec& spec, std::string_view text, const LossOptions& options);

}  // namespace nanscope::serve
