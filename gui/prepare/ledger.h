#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/run/run_data.h"
#include "core/result.h"
#include "gui/cell.h"
#include "gui/prepare/prepared.h"
#include "gui/selection.h"

namespace nanscope::gui {

/// One entry of the scale ledger with what its store made of it.
struct LedgerEntry {
  ScaleRow row;
  std::size_t step = 0;        ///< index in Ledger::steps
  double limit = 0;            ///< largest value that can be stored: largest finite x scale
  std::uint64_t clipped = 0;   ///< elements beyond it
  std::uint64_t nan = 0;       ///< elements stored as NaN
  std::uint64_t elements = 0;  ///< stored, 0 when the codes were not recorded
  Selection target;

  bool below() const { return row.headroom < 1; }
  /// For colours: NaN stored, clipped, little headroom, healthy, nothing finite.
  Cell health() const;
};

/// A layer's k or v over the run.
struct LedgerLine {
  std::int64_t layer = 0;
  std::string target;                 ///< "k", "v"
  std::vector<std::size_t> entries;   ///< indices in Ledger::entries, in logical order
  std::size_t lowest = 0;             ///< the entry with the least headroom
  std::optional<std::size_t> locked;  ///< the entry from which on the scale does not change
  std::string setter;                 ///< who set it, in words
};

struct LedgerStep {
  StepRow row;
  std::string request;  ///< its name
};

/// Steps of one request that follow each other.
struct LedgerBand {
  std::size_t first = 0;  ///< indices in Ledger::steps
  std::size_t last = 0;
};

/// What a logarithmic axis must hold.
struct LogRange {
  double lowest = std::numeric_limits<double>::infinity();
  double highest = 0;
  void cover(double value);  ///< without effect for what is not finite and positive
  void cover(const LogRange& other);
};

/// The scales of the KV cache over the steps of a run.
struct Ledger final : Prepared {
  std::vector<LedgerStep> steps;  ///< those that stored something
  std::vector<LedgerEntry> entries;
  std::vector<LedgerLine> lines;         ///< by layer, k before v
  std::vector<std::size_t> by_headroom;  ///< entries, the least headroom first
  std::vector<std::size_t> below;        ///< entries with headroom below 1, in logical order
  std::vector<LedgerBand> bands;         ///< over all steps
  LogRange range;                        ///< of what was stored and what could be
  /// Entries of a request's step, so that none of the others is looked at in a frame.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> of_step;
  std::string headline;   ///< what is to be known, in a sentence
  std::string rule;       ///< how scales were set, in a sentence
  bool quantized = true;  ///< false: stored without a scale, in a wide format

  /// The entry of the selected op, and role where it names one.
  std::optional<std::size_t> find(const Selection& selection) const;
};

/// Four significant digits: "0.05359", "NaN".
std::string short_number(double value);
/// Three significant digits.
std::string headroom_text(double headroom);
/// Who set the entry's scale, from what and for how long, in words.
std::string set_by(const ScaleRow& row);

/// The same in the width of a table's column.
std::string set_by_briefly(const ScaleRow& row);

/// The entries of a line that fall into one column of a chart: the extreme of each, so that a
/// single clipped step is seen however many there are.
struct LedgerColumn {
  std::optional<std::size_t> worst;  ///< the entry with the least headroom
  Cell health = kAbsent;
  double absmax = 0;  ///< the largest, 0 when nothing finite was stored
  double limit = 0;   ///< the least
  bool nan = false;
};
/// At most `columns`, as many as there are steps when those are fewer.
std::vector<LedgerColumn> squeeze(const Ledger& ledger, const LedgerLine& line, std::size_t columns);

/// Of a chart `width` pixels wide: one for every two pixels.
std::size_t columns_of(float width);

/// A logarithmic axis with some room at its ends.
class LogAxis {
 public:
  LogAxis(double lowest, double highest);
  /// 0 at the lower end, 1 at the upper.
  double at(double value) const;
  /// Round values, ascending, at most so many.
  std::vector<double> ticks(std::size_t most) const;

 private:
  static constexpr double kRoom = 0.12;  ///< decades

  double low_ = 0;
  double high_ = 1;
};

/// Covers what was stored in all lines, and what could be, so that they can be compared; other values `also`.
LogAxis axis_of(const Ledger& ledger, std::span<const LogRange> also = {});

/// Errors: rows cannot be read.
Result<Ledger> make_ledger(RunData& run);

}  // namespace nanscope::gui
