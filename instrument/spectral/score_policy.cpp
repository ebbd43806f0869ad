#include "instrument/spectral/score_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <utility>

namespace nanscope {
namespace {

/// A number from a file, right or wrong.
class Static final : public ScorePolicy {
 public:
  explicit Static(const ScorePolicySettings& settings) : scale_(settings.scale) {}
  double scale(double) const override { return scale_; }

 private:
  double scale_;
};

/// absmax / largest of the step itself: exact, and a pass over all scores before they are cast.
class Current final : public ScorePolicy {
 public:
  explicit Current(const ScorePolicySettings& settings) : largest_(settings.largest) {}
  double scale(double absmax) const override { return absmax == 0 ? 1 : absmax / largest_; }

 private:
  double largest_;
};

/// Largest magnitude of the steps before / (margin x largest) (Micikevicius et al. 2022, 2209.05433; equation 1 of
/// "Rank-Aware Spectral Bounds on Attention Logits"). The history begins as `start`.
class Delayed final : public ScorePolicy {
 public:
  explicit Delayed(const ScorePolicySettings& settings)
      : reach_(settings.margin * settings.largest),
        length_(static_cast<std::size_t>(settings.history)),
        history_{settings.start} {}

  double scale(double) const override {
    // A NaN in the history is one in the scale, as torch.amax has it.
    double before = 0;
    for (const double one : history_) before = std::isnan(one) || std::isnan(before) ? NAN : std::max(before, one);
    return before == 0 ? 1 : before / reach_;
  }
  void seen(double absmax) override {
    history_.push_back(absmax);
    // What it began with is no step: it goes when the first one comes.
    if (!begun_ || history_.size() > length_) history_.pop_front();
    begun_ = true;
  }
  std::vector<double> memory() const override {
    return begun_ ? std::vector<double>(history_.begin(), history_.end()) : std::vector<double>();
  }
  bool restore(std::span<const double> memory) override {
    if (memory.size() > length_) return false;
    if (memory.empty()) return true;
    history_.assign(memory.begin(), memory.end());
    begun_ = true;
    return true;
  }

 private:
  double reach_;
  std::size_t length_;
  std::deque<double> history_;
  bool begun_ = false;
};

/// The largest magnitude so far: grows, never shrinks.
class Monotonic final : public ScorePolicy {
 public:
  explicit Monotonic(const ScorePolicySettings& settings)
      : reach_(settings.margin * settings.largest), largest_(settings.start) {}
  double scale(double) const override { return largest_ / reach_; }
  void seen(double absmax) override { largest_ = std::isnan(absmax) ? absmax : std::max(largest_, absmax); }
  std::vector<double> memory() const override { return {largest_}; }
  bool restore(std::span<const double> memory) override {
    if (memory.size() > 1) return false;
    if (!memory.empty()) largest_ = memory.front();
    return true;
  }

 private:
  double reach_;
  double largest_;
};

/// The calibrated bound / (utilization x largest) (15): of the weights alone, from the first step on.
class Geometry final : public ScorePolicy {
 public:
  explicit Geometry(const ScorePolicySettings& settings)
      : reach_(settings.utilization * settings.largest), scale_(settings.calibrated / reach_) {}
  double scale(double) const override { return scale_; }
  void weights_changed(double, double calibrated) override { scale_ = calibrated / reach_; }

 private:
  double reach_;
  double scale_;
};

/// geometry while burn_in steps are watched; then alpha is kappa times a quantile of the slack seen, abs(S) over the
/// worst case (16), for good: where weights change, of the worst case of the new ones.
class AutoAlpha final : public ScorePolicy {
 public:
  explicit AutoAlpha(const ScorePolicySettings& settings) : settings_(settings), bound_(settings.calibrated) {}
  double scale(double) const override { return bound_ / (settings_.utilization * settings_.largest); }
  void seen(double absmax) override {
    if (settled()) return;
    slacks_.push_back(absmax / settings_.worst_case);
    if (settled()) freeze();
  }
  void weights_changed(double worst_case, double calibrated) override {
    settings_.worst_case = worst_case;
    bound_ = calibrated;
    if (settled()) freeze();
  }
  bool settled() const override { return std::ssize(slacks_) >= settings_.burn_in; }
  std::vector<double> memory() const override { return slacks_; }
  bool restore(std::span<const double> memory) override {
    if (std::cmp_greater(memory.size(), settings_.burn_in)) return false;
    slacks_.assign(memory.begin(), memory.end());
    if (settled()) freeze();
    return true;
  }

 private:
  void freeze() {
    const double slack = quantile_of(slacks_, settings_.quantile);
    if (slack > 0) bound_ = settings_.kappa * slack * settings_.worst_case;
  }

  ScorePolicySettings settings_;
  double bound_;
  std::vector<double> slacks_;  ///< of the burn-in, by step
};

template <class Policy>
std::unique_ptr<ScorePolicy> make(const ScorePolicySettings& settings) {
  return std::make_unique<Policy>(settings);
}

constexpr std::array kPolicies{
    ScorePolicyEntry{"static", "a number from the configuration", false, make<Static>},
    ScorePolicyEntry{"current", "the step's own largest magnitude", false, make<Current>},
    ScorePolicyEntry{"delayed", "the largest magnitude of the steps before", false, make<Delayed>},
    ScorePolicyEntry{"monotonic", "the largest magnitude so far", false, make<Monotonic>},
    ScorePolicyEntry{"geometry", "the calibrated bound of the weights", true, make<Geometry>},
    ScorePolicyEntry{"auto_alpha", "the weights' bound, tightened by what a burn-in saw", true, make<AutoAlpha>},
};

}  // namespace

double quantile_of(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (place - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

std::span<const ScorePolicyEntry> score_policies() { return kPolicies; }

const ScorePolicyEntry* find_score_policy(std::string_view name) {
  const auto found = std::find_if(kPolicies.begin(), kPolicies.end(),
                                  [&](const ScorePolicyEntry& entry) { return entry.name == name; });
  return found == kPolicies.end() ? nullptr : &*found;
}

std::string score_policy_names() {
  std::string names;
  for (const ScorePolicyEntry& entry : kPolicies) {
    if (!names.empty()) names += '|';
    names += entry.name;
  }
  return names;
}

}  // namespace nanscope
