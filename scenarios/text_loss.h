#pragma once
#include <cstdint>
#include <vector>

/// The loss of a text: the mean negative log probability of each token after those before it, in nats.
namespace nanscope::scenarios {

/// Means over the targets of one sequence.
struct SequenceLoss {
  std::int64_t first_token = 0;  ///< of the text
  std::int64_t targets = 0;
  double parallel = 0;        ///< all positions in one step
  double autoregressive = 0;  ///< a step for each position; NaN where it was not asked for
};

struct TextLoss {
  std::vector<SequenceLoss> sequences;
  std::int64_t length = 0;  ///< tokens of each, without one that stands before it
  std::int64_t text_tokens = 0;
  std::int64_t text_sequences = 0;  ///< that the text has, of which the first were measured
  bool autoregressive = false;      ///< both ways were measured
};

/// A mean over sequences, and its standard error; the error is NaN for one sequence.
struct MeanOfSequences {
  double mean = 0;
  double error = 0;
};
enum class LossKind : std::uint8_t { parallel, autoregressive, gap };
/// The gap is autoregressive minus parallel, sequence by sequence.
MeanOfSequences mean_of(const TextLoss& loss, LossKind kind);

}  // namespace nanscope::scenarios
