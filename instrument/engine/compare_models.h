#pragma once
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// How far the logits of one model are from another's, over the positions of a text.
struct LogitsChange {
  std::int64_t positions = 0;
  double error = 0;       ///< root mean square of the difference, over that of the first model's about their mean
  double divergence = 0;  ///< mean of KL(first || second) over the positions, in nats
  double worst_divergence = 0;
  std::int64_t worst_position = -1;
  std::int64_t same_choice = 0;  ///< positions whose largest logit is the same
  std::int64_t not_finite = 0;   ///< positions of the second with a NaN or an Inf
};

/// Logits of all positions of `ids`, a row of the vocabulary each, by the model of a checkpoint folder in f32. Errors:
/// those of loading it; an id beyond the vocabulary; stopped.
Result<std::vector<float>> logits_of_checkpoint(const std::filesystem::path& folder,
                                                const std::vector<std::int32_t>& ids, std::stop_token stop);

/// Compares two models' logits on the first `most` tokens of a text, by the first one's tokenizer. Errors: those of
/// logits_of_checkpoint(); a text that makes no token; vocabularies of different size.
Result<LogitsChange> compare_models(const std::filesystem::path& first, const std::filesystem::path& second,
                                    const std::string& text, std::size_t most, std::stop_token stop);

/// The comparison itself: rows of `columns` logits.
LogitsChange compare_logits(const std::vector<float>& first, const std::vector<float>& second, std::size_t columns);

}  // namespace nanscope
