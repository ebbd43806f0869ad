#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"

namespace nanscope::scenarios {

/// The logits of one request's prefill: what can be compared between runs, since both saw the same tokens.
struct PromptLogits {
  std::int64_t request = 0;
  std::int64_t first_token = 0;
  std::int64_t tokens = 0;
  std::int64_t vocabulary = 0;
  std::vector<float> values;                             ///< tokens x vocabulary
  std::span<const float> row(std::int64_t token) const;  ///< by position in the request
  bool has(std::int64_t token) const { return token >= first_token && token < first_token + tokens; }
};

/// Of every request whose logits can be had. Errors: rows cannot be read.
Result<std::vector<PromptLogits>> prompt_logits(RunView& run);

/// Logits of the last prompt token, and the top token at every prompt token, of one run against another, over
/// the rows that are finite in both.
struct Accuracy {
  std::int64_t requests = 0;  ///< whose last prompt token was compared
  std::int64_t tokens = 0;    ///< prompt tokens whose top token was compared
  double max_error = 0;       ///< in logits
  double rms_error = 0;
  double top1_agreement = 0;  ///< share of the tokens, 0 to 1
};

/// Nothing when no row is finite in both. `request_ids` are the requests to compare.
std::optional<Accuracy> accuracy(std::span<const PromptLogits> run, std::span<const PromptLogits> reference,
                                 std::span<const std::int64_t> request_ids);

}  // namespace nanscope::scenarios
