#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "gui/cell.h"
#include "gui/prepare/prepared.h"
#include "gui/selection.h"

namespace nanscope::gui {

/// What a scale is of.
enum class ScaledKind : std::uint8_t { cache, activation, weight };

/// One entry of the scale ledger with what its store made of it. A recording states the row; of a dump it is made
/// from codes, their scales and what was cast.
struct LedgerEntry {
  ScaleRow row;
  ScaledKind kind = ScaledKind::cache;
  std::string name;            ///< "layer 3 k", "layer 3 up_proj input", "layer 3 up_proj weight"
  std::size_t step = 0;        ///< index in Ledger::steps
  double limit = 0;            ///< largest value that can be stored: largest finite x scale
  std::uint64_t clipped = 0;   ///< elements beyond it
  std::uint64_t nan = 0;       ///< elements stored as NaN
  std::uint64_t elements = 0;  ///< stored, 0 when the codes were not recorded
  bool clips = false;          ///< and more was lost than rounding does anyway
  std::string grid;            ///< of what there is a scale each, "one a row"; empty for one of all
  std::string origin;          ///< of a dump, where the scale was found; empty for what a recording states
  Selection target;

  bool below() const { return clips; }
  /// For colours: NaN stored, clipped, little headroom, healthy, nothing finite.
  Cell health() const;
};

/// A layer's k or v, an activation or a weight, over the run.
struct LedgerLine {
  std::int64_t layer = 0;
  std::string target;  ///< "k", "v", "up_proj input"
  std::string name;    ///< with its layer
  ScaledKind kind = ScaledKind::cache;
  std::vector<std::size_t> entries;   ///< indices in Ledger::entries, in logical order
  std::size_t lowest = 0;             ///< the entry with the least headroom
  std::optional<std::size_t> locked;  ///< the entry from which on the scale does not change
  std::string setter;                 ///< who set it, in words
};

struct LedgerStep {
  StepId id = kBeforeSteps;
  std::optional<std::int64_t> request;  ///< nothing for weights and for steps of several requests
  std::int64_t index = 0;
  std::string title;  ///< the request's name; "weights", "4 requests"
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

/// The scales of a run over its steps: of KV caches, of quantised activations, of weights.
struct Ledger final : Prepared {
  std::vector<LedgerStep> steps;  ///< those that stored something
  std::vector<LedgerEntry> entries;
  std::vector<LedgerLine> lines;         ///< by layer, k before v; weights last
  std::vector<std::size_t> by_headroom;  ///< entries, the least headroom first
  std::vector<std::size_t> below;        ///< entries with headroom below 1, in logical order
  std::vector<LedgerBand> bands;         ///< over all steps
  LogRange range;                        ///< of what was stored and what could be
  /// Entries by rank, request and step, so that none of the others is looked at in a frame.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::vector<std::size_t>> of_step;
  std::vector<std::size_t> outside;  ///< entries of what is outside of all steps
  std::string headline;              ///< what is to be known, in a sentence
  std::string rule;                  ///< how scales were set, in a sentence
  bool quantized = true;             ///< false: stored without a scale, in a wide format
  bool names_are_long = false;       ///< there is more than k and v

  /// The entry of the selected op, and role where it names one.
  std::optional<std::size_t> find(const Selection& selection) const;
};

/// Of a dump, what was cast may not be there; a weight has none.
bool has_headroom(const LedgerEntry& entry);
/// Four significant digits: "0.05359", "NaN".
std::string short_number(double value);
/// A headroom of 2^30 and more is as good as any: that of f32 is often 10^37.
inline constexpr int kFarPowers = 30;
/// Three significant digits; "> 2^30" where it is far.
std::string headroom_text(double headroom);
/// Who set the entry's scale, from what and for how long, in words.
std::string set_by(const LedgerEntry& entry);

/// The same in the width of a table's column.
std::string set_by_briefly(const LedgerEntry& entry);

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
Result<Ledger> make_ledger(RunView& run);

}  // namespace nanscope::gui
