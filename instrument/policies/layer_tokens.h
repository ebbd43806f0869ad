#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/run/kv_cache.h"
#include "core/run/run_view.h"
#include "instrument/policies/attention.h"
#include "instrument/recompute/recompute.h"

/// Queries, keys and values of one layer of a run, in the order of its steps: which rows were stored when decides what
/// scale they get.
namespace nanscope {

/// Rows that one step stored for one sequence.
struct StoredSpan {
  std::size_t sequence = 0;  ///< of LayerTokens::sequences
  std::int64_t first_position = 0;
  std::int64_t rows = 0;
  std::int64_t offset = 0;  ///< the first one, in LayerTokens::k and v
};

/// A query row, and the keys that it sees.
struct PolicyQuery {
  std::size_t sequence = 0;
  std::int64_t position = 0;
  std::int64_t first_key = 0;  ///< positions, both included
  std::int64_t last_key = 0;
  std::int64_t offset = 0;  ///< its row in LayerTokens::q
  std::vector<float> bias;  ///< on the scores of these keys, -Inf hides one; empty: none
};

struct StoredStep {
  StepId step = 0;
  std::vector<StoredSpan> spans;
  std::vector<PolicyQuery> queries;
};

/// Tokens of a request that were stored one after another. One that was stored again, from the beginning or from
/// somewhere, is another sequence.
struct TokenSequence {
  std::int64_t request = 0;
  std::int64_t first_position = 0;  ///< of its own rows
  std::int64_t end = 0;             ///< one past the last
  /// For each position before its own: the sequence that stored it (a shared prefix), and at which position there.
  std::vector<std::pair<std::size_t, std::int64_t>> shared;
  std::vector<std::int64_t> rows;  ///< in LayerTokens::k and v, of its own positions
};

struct LayerTokens {
  std::int64_t layer = 0;
  AttentionGeometry shape;
  std::vector<float> k;         ///< (rows, key_channels), as attention takes them
  std::vector<float> v;         ///< (rows, value_channels)
  std::vector<float> k_before;  ///< before the rotary embedding; empty: not there
  std::int64_t rotated = 0;     ///< channels of a head that are, from the first
  bool interleaved = false;     ///< neighbours are a pair, not halves
  std::vector<float> q;         ///< (queries, query_channels)
  std::vector<float> recorded;  ///< (queries, output_channels): what the run made of them; empty: not there
  std::vector<StoredStep> steps;
  std::vector<TokenSequence> sequences;
  std::int64_t queries = 0;           ///< in q
  std::int64_t queries_in_all = 0;    ///< of which those were taken, evenly spread
  std::int64_t rows_not_finite = 0;   ///< of K or V: stored as zeros
  std::int64_t queries_left_out = 0;  ///< not finite themselves, or they see a row that is not
  std::vector<std::string> left_out;  ///< places of the first of these rows
  std::vector<std::string> facts;     ///< how it was read: masks, factor, rotation, what is a default
  std::int64_t longest() const;       ///< keys of the longest sequence
};

/// What is known of a model's attention besides what the run states; 0: nothing.
struct KnownAttention {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::optional<double> factor;
  std::optional<double> softcap;
  std::optional<std::int64_t> window;
  std::string source;  ///< "config.json", "--heads"
};

struct CollectOptions {
  std::int64_t most_queries = 64;  ///< 0: all
  KnownAttention known;
  /// Computes what was not dumped, and knows how the ops of a dump are done; null: what is not there is missing.
  Recomputer* again = nullptr;
};

/// Layers that have attention, ascending; those of towers beside the language model are not among them.
std::vector<std::int64_t> attention_layers(RunView& run);

/// Errors, in one line: keys, values or queries were not dumped or cannot be had, and what is missing.
Result<LayerTokens> collect_layer(RunView& run, KvCache& cache, std::int64_t layer, const CollectOptions& options);

}  // namespace nanscope
