#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "instrument/policies/candidate.h"
#include "instrument/policies/layer_tokens.h"
#include "instrument/policies/score.h"

/// KV policies on the queries, keys and values of a run: what each would have made of the attention of every layer.
namespace nanscope {

struct PolicyOptions {
  std::vector<PolicyCandidate> candidates;  ///< empty: named_candidates()
  std::set<std::int64_t> layers;            ///< empty: all
  std::int64_t most_queries = 64;           ///< a layer, evenly spread over its tokens; 0: all
  bool claims = true;
  /// Of a layer, where more is known than the run states.
  std::function<KnownAttention(std::int64_t layer)> known;
  Recomputer* again = nullptr;  ///< see CollectOptions::again
  std::stop_token stop;
  std::function<void(std::size_t done, std::size_t total)> progress;  ///< layers times policies
};

/// What the requests of a run answered under a policy, against those of a cache in f32.
struct PolicyAnswer {
  std::string problem;  ///< why it was not run; the rest is then empty
  std::int64_t answers = 0;
  std::int64_t same_answers = 0;
  std::int64_t tokens = 0;       ///< of the answers with a cache in f32
  std::int64_t same_tokens = 0;  ///< up to the first that differs, over all answers
  bool logits_compared = false;
  double top1 = 0;         ///< prompt tokens with the same most likely next token
  double logit_error = 0;  ///< root mean square over the logits of the last prompt tokens
};

/// One policy, over the layers that could be measured.
struct PolicyResult {
  PolicyCandidate candidate;
  std::string problem;             ///< why it could not be tried; the rest is then empty
  double bytes = 0;                ///< that a token takes, over these layers
  std::vector<LayerScore> layers;  ///< as PolicyReport::layers
  double error = 0;                ///< means over the layers
  double divergence = 0;
  double agreement = 1;
  std::size_t worst = 0;        ///< index in `layers` of the largest error
  std::int64_t not_finite = 0;  ///< queries, over the layers
  double quantized =
      0;  ///< share of K and V that was: windows and groups of tokens that are not full are kept as they are
  double clipped = 0;  ///< shares of the elements that were quantized
  double flushed = 0;
  double utilization = 0;              ///< mean over layers and over K and V, of those that have scales
  std::optional<PolicyAnswer> answer;  ///< where it was run
  bool on_front = false;               ///< no other policy has less error and no more bytes
};

struct LayerFacts {
  std::int64_t layer = 0;
  AttentionGeometry shape;
  std::int64_t keys = 0;  ///< of the longest sequence
  std::int64_t rows = 0;  ///< of K that were stored
  std::int64_t queries = 0;
  std::int64_t queries_in_all = 0;
  std::int64_t queries_left_out = 0;
  std::int64_t rows_not_finite = 0;
  double logit_deviation = 0;            ///< standard deviation of a query's scores, mean
  double spikes = 0;                     ///< largest |v| over the 99.5th percentile
  double channel_spread = 0;             ///< largest |k| of a head's channel over its median channel's; of any head
  std::optional<double> recorded_error;  ///< of what the run itself put out
};

enum class ClaimVerdict : std::uint8_t { confirmed, refuted, not_testable };
std::string_view to_string(ClaimVerdict verdict);

struct PolicyClaim {
  std::string name;  ///< stable: keys-more-sensitive
  std::string statement;
  ClaimVerdict verdict = ClaimVerdict::not_testable;
  std::string figures;
};

struct PolicyReport {
  std::vector<PolicyResult> policies;  ///< in the order of the candidates
  std::vector<PolicyResult> tried;     ///< what the claims compare
  std::vector<PolicyClaim> claims;
  std::vector<LayerFacts> layers;
  double kept_bytes = 0;              ///< that a token takes in 2 bytes an element
  std::vector<std::string> facts;     ///< how the run was read, each with the layers that it is of where not of all
  std::vector<std::string> left_out;  ///< rows that held a NaN or an Inf, layers that could not be measured
};

/// Errors, in one line: no layer could be measured, a layer that is asked for is not there, stopped.
Result<PolicyReport> evaluate_policies(RunView& run, const PolicyOptions& options);

/// Marks those that no other beats in both bytes and error; what made a NaN is not among them.
void mark_front(std::span<PolicyResult> policies);

}  // namespace nanscope
