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
  std::vector<TokenChange> changes{TokenChange::value, TokenChange::sign, TokenChange::size, TokenChange::nan};
  std::stop_token stop;
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< in runs
};

/// An earlier token's row of the logits that is not what it was.
struct ChangedRow {
  std::int64_t token = 0;
  double largest = 0;  ///< difference of a logit; infinite where one is NaN and the other not
};

/// A tensor in which a row before the changed token differs.
struct LeakPlace {
  std::int64_t layer = -1;
  std::string op;
  std::string role;
  std::int64_t first = 0;  ///< rows that differ
  std::int64_t last = 0;
  double largest = 0;
};

struct Influence {
  std::int64_t token = 0;
  TokenChange change = TokenChange::value;
  std::vector<ChangedRow> rows;   ///< of the logits
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

/// Errors: the run cannot be started, a token that the prompt has not, or stopped.
Result<CausalityReport> check_causality(Workbench& workbench, const RunSpec& spec, const CausalityOptions& options);

}  // namespace nanscope::scenarios
