#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "scenarios/run_spec.h"
#include "scenarios/workbench.h"

/// Whether a prompt's tokens depend on those behind them: its prefill is run again with one token changed at a time,
/// and what the tokens before it gave is compared bit by bit; and with one token a step, in which nothing later is
/// there.
namespace nanscope::scenarios {

/// What becomes of a token's row of the embedding.
enum class TokenChange : std::uint8_t {
  value,  ///< that of another token of the prompt
  sign,   ///< negated
  size,   ///< times 8
  nan,
};
std::string_view name(TokenChange change);

struct CausalityOptions {
  std::size_t request = 0;           ///< index; those before it run first
  std::vector<std::int64_t> tokens;  ///< positions to change; empty: the last of each tile of 32 and of the prompt
  bool every = false;                ///< all of them
  bool map = false;                  ///< also what the changes do to later tokens: fills Influence::moved
  std::vector<TokenChange> changes{TokenChange::value, TokenChange::sign, TokenChange::size, TokenChange::nan};
  std::stop_token stop;
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< in runs
};

/// An earlier token's row of the logits that is not what it was.
struct ChangedRow {
  std::int64_t token = 0;
  double largest = 0;  ///< difference of a logit; infinite where one is NaN and the other not
};

/// A row of a tensor that is not what it was.
struct LeakRow {
  std::int64_t token = 0;
  std::int64_t column = 0;  ///< of the largest difference
};

/// A tensor in which a row before the changed token differs.
struct LeakPlace {
  std::int64_t layer = -1;
  std::string op;
  std::string role;
  std::int64_t first = 0;  ///< rows that differ
  std::int64_t last = 0;
  double largest = 0;
  std::vector<LeakRow> rows;  ///< all of them, ascending
};

struct Influence {
  std::int64_t token = 0;
  TokenChange change = TokenChange::value;
  std::vector<ChangedRow> rows;   ///< of the logits
  std::vector<float> moved;       ///< by token, with CausalityOptions::map: largest difference of a logit
  std::optional<LeakPlace> born;  ///< the first output of a token that differs, in the order of execution
  /// Of the keys or values that `born` read, the first tensor in which rows before the changed token differ; nothing
  /// where it is the mask that leaks, or nothing leaks.
  std::optional<LeakPlace> operand;
  bool leaks() const { return born.has_value(); }
};

/// The logits of the prefill beside those of one token a step.
struct ParallelGap {
  std::string problem;               ///< not empty: why it was not done
  std::vector<double> rows;          ///< largest difference by position
  std::vector<std::int64_t> differ;  ///< positions whose logits are not the same bits
  double largest = 0;
};

struct CausalityReport {
  std::string request;
  std::int64_t prompt = 0;  ///< tokens
  std::int64_t tile = 0;    ///< tokens of a tile of attention, where it is tiled
  std::vector<Influence> influences;
  ParallelGap gap;
  std::int64_t runs = 0;
  std::int64_t leaks() const;
  /// A token that depends on a later one.
  bool found() const { return leaks() > 0 || !gap.differ.empty(); }
};

/// How much each token's logits answer to each token of the prompt; above the diagonal there has to be nothing.
struct InfluenceMap {
  std::int64_t tokens = 0;
  /// tokens x tokens, row-major. Row: whose logits; column: which token was changed; the value: the largest difference
  /// of a logit by any of the changes, infinite where one is NaN and the other not, NaN where the token was not
  /// changed.
  std::vector<float> moved;

  float at(std::int64_t row, std::int64_t column) const {
    return moved[static_cast<std::size_t>(row * tokens + column)];
  }
  /// Pairs of a token and a later one that its logits answer to.
  std::int64_t leaks() const;
};
/// Of a report that was made with CausalityOptions::map.
InfluenceMap influence_map(const CausalityReport& report);

/// The block of tiled attention that a changed token lies in, where what leaks is keys or values; else -1.
std::int64_t leaking_block(const CausalityReport& report, const Influence& influence);

/// Settings with which nothing of the run should depend on later tokens.
struct CausalForm {
  std::vector<std::string> settings;  ///< KNOB=VALUE
  std::string text() const;
};
/// Those that mend everything in a configuration that is known to leak, the cheapest first; empty where nothing is.
std::vector<CausalForm> causal_forms(const EngineConfig& config);

/// Errors: the run cannot be started, a token that the prompt has not, or stopped.
Result<CausalityReport> check_causality(Workbench& workbench, const RunSpec& spec, const CausalityOptions& options);

}  // namespace nanscope::scenarios
