#include "scenarios/text_loss.h"

#include <cmath>
#include <limits>

namespace nanscope::scenarios {

MeanOfSequences mean_of(const TextLoss& loss, LossKind kind) {
  const auto value = [&](const SequenceLoss& one) {
    return kind == LossKind::parallel         ? one.parallel
           : kind == LossKind::autoregressive ? one.autoregressive
                                              : one.autoregressive - one.parallel;
  };
  MeanOfSequences made;
  const auto count = static_cast<double>(loss.sequences.size());
  for (const SequenceLoss& one : loss.sequences) made.mean += value(one) / count;
  double squares = 0;
  for (const SequenceLoss& one : loss.sequences) squares += std::pow(value(one) - made.mean, 2);
  made.error = count > 1 ? std::sqrt(squares / (count - 1) / count) : std::numeric_limits<double>::quiet_NaN();
  return made;
}

}  // namespace nanscope::scenarios
