#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Who chooses the scale that attention's scores are divided by before they become fp8, from what, and when. Scores S
/// overflow where abs(S) / scale is beyond the format's largest.
namespace nanscope {

struct ScorePolicySettings {
  double largest = 448;        ///< of the format
  double scale = 1;            ///< of `static`
  std::int64_t history = 16;   ///< steps that `delayed` remembers
  double start = 1;            ///< the largest magnitude that an empty history stands for
  double margin = 0.9;         ///< part of the format that `delayed` and `monotonic` use
  double utilization = 0.8;    ///< that `geometry` and `auto_alpha` use
  double worst_case = 0;       ///< bound of the layer's scores, of weights alone: LayerScales::whole().interaction
  double calibrated = 0;       ///< the same, calibrated
  std::int64_t burn_in = 100;  ///< steps after which `auto_alpha` freezes what it saw
  double kappa = 1;            ///< times which
  double quantile = 1;         ///< of the slack that it saw; 1: the largest
};

/// The value below which a part of the values lies, between two of them in proportion, as numpy.quantile() does by
/// default; 0 of none.
double quantile_of(std::vector<double> values, double part);

/// One instance serves one layer.
class ScorePolicy {
 public:
  virtual ~ScorePolicy() = default;
  /// The scale of a step whose scores are `absmax` at most, which only `current` looks at.
  virtual double scale(double absmax) const = 0;
  /// The step is done: its largest magnitude counts for the scales of later steps.
  virtual void seen(double /*absmax*/) {}
  /// Bounds of the layer's scores from the next step on, as ScorePolicySettings has them.
  virtual void weights_changed(double /*worst_case*/, double /*calibrated*/) {}
  /// Whether the next scale follows from what the policy was to watch first.
  virtual bool settled() const { return true; }
  /// What it has seen of the run, as restore() reads it: no bounds of weights. Empty where it remembers nothing.
  virtual std::vector<double> memory() const { return {}; }
  /// False where the numbers are no memory of such a policy; it is as before then.
  virtual bool restore(std::span<const double> memory) { return memory.empty(); }
};

struct ScorePolicyEntry {
  std::string_view name;
  std::string_view doc;
  bool of_weights;  ///< it needs the bounds of the settings
  std::unique_ptr<ScorePolicy> (*make)(const ScorePolicySettings& settings);
};
/// static, current, delayed, monotonic, geometry, auto_alpha.
std::span<const ScorePolicyEntry> score_policies();
/// Null when there is none of that name.
const ScorePolicyEntry* find_score_policy(std::string_view name);
/// "static|current|...".
std::string score_policy_names();

}  // namespace nanscope
