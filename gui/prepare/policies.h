#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "gui/prepare/ledger.h"
#include "instrument/engine/config.h"

/// What the other scale policies would have made of the values that a run stored, without running anything: the
/// policies themselves are asked, with the recorded magnitudes. In layers that read the cache, another policy would
/// also have changed the values; that is for a run to tell.
namespace nanscope::gui {

/// One policy's choice for one entry of the ledger.
struct PolicyEntry {
  std::size_t entry = 0;  ///< index in Ledger::entries
  double scale = 0;       ///< the largest of the step; NaN when it was computed from a NaN
  double limit = 0;       ///< what the largest of them can hold
  double headroom = 0;    ///< the least of the tokens'; NaN when nothing finite says
  std::int64_t tokens = 0;
  std::int64_t clipped_tokens = 0;  ///< tokens with a value beyond their limit
  bool exact = true;  ///< else the magnitudes of single tokens are not recorded: clipped_tokens is a bound
};

struct PolicyLine {
  std::string name;  ///< as kv.policy takes it
  std::string doc;
  bool recorded = false;  ///< the run's own
  std::string problem;    ///< why there are no entries
  std::vector<PolicyEntry> entries;
  std::optional<std::size_t> lowest;  ///< index in `entries` of the least headroom
  std::int64_t clipped_steps = 0;
  std::int64_t nan_steps = 0;  ///< whose scale is NaN: they would store nothing but NaN
  std::int64_t clipped_tokens = 0;
  bool exact = true;
  double least_scale = 0;
  double largest_scale = 0;
  LogRange limits;  ///< of the entries
};

/// One line of the ledger under every policy, in the registry's order.
struct PolicyComparison {
  std::size_t line = 0;  ///< index in Ledger::lines
  std::vector<PolicyLine> policies;
  std::int64_t tokens = 0;
  std::string caveat;  ///< for which runs these numbers hold, in one sentence
};

/// `config` is the run's: formats, divisors, static scales. Errors: rows cannot be read.
Result<PolicyComparison> compare_policies(RunView& run, const Ledger& ledger, std::size_t line, const KvConfig& config);

/// The line that a selection is about: its own, else the one with the least headroom. The ledger must not be empty.
std::size_t line_of(const Ledger& ledger, const Selection& selection);

/// "9 of 88", "at most 9 of 88".
std::string clipped_words(const PolicyLine& policy, std::int64_t tokens);

/// Of each column of a chart, the least limit that a policy's entries have in it; 0 where there is none. As many
/// columns as squeeze() makes.
std::vector<double> limits_of(const PolicyLine& policy, const Ledger& ledger, std::size_t columns);

/// What charts of some width show of the ledger: a frame looks at these, never at the entries.
struct ScaleColumns {
  std::vector<std::vector<LedgerColumn>> lines;  ///< as Ledger::lines
  std::vector<std::vector<double>> limits;       ///< as PolicyComparison::policies, of its line
};
/// `policies` may be null.
ScaleColumns make_columns(const Ledger& ledger, const PolicyComparison* policies, std::size_t columns);

/// The ledger, with the policies of one of its lines.
struct ScalesSheet final : Prepared {
  std::shared_ptr<const Ledger> ledger;
  std::shared_ptr<const PolicyComparison> policies;  ///< null when the recording states no configuration
  ScaleColumns columns;
};

}  // namespace nanscope::gui
