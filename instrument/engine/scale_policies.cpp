#include "instrument/engine/scale_policies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <unordered_map>

#include "core/run/scales.h"

namespace nanscope {
namespace {

float divisor(const KvConfig& config, KvTarget target) {
  return target == KvTarget::k ? config.divisor_k : config.divisor_v;
}

/// NaN where one is, as torch.amax has it: by comparing alone, where a NaN stands would decide whether it counts.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Codes are the values themselves, rounded and clipped by the format.
class UnitScale final : public ScalePolicy {
 public:
  UnitScale(const KvConfig&, KvTarget) {}
  Result<ScaleChoice> choose(const ScaleContext&, RowMagnitudes&) override { return ScaleChoice{}; }
};

/// A number from the deployment's configuration or checkpoint, right or wrong.
class Static final : public ScalePolicy {
 public:
  Static(const KvConfig& config, KvTarget target) : scale_(target == KvTarget::k ? config.scale_k : config.scale_v) {}
  Result<ScaleChoice> choose(const ScaleContext&, RowMagnitudes&) override {
    return ScaleChoice{.scales = {scale_}, .origin = {.source = ScaleSource::fixed, .locked = true}};
  }

 private:
  float scale_;
};

/// absmax / divisor of some rows, kept for later ones.
Result<ScaleChoice> calibrate(const ScaleContext& context, RowMagnitudes& rows, float divisor, bool locked) {
  const Result<float> absmax = rows.tensor();
  if (!absmax) return tl::unexpected(absmax.error());
  return ScaleChoice{.scales = {*absmax / divisor},
                     .origin = {.source = ScaleSource::calibrated,
                                .request = context.request,
                                .step = context.step,
                                .tokens = context.tokens,
                                .absmax = *absmax,
                                .locked = locked}};
}

/// Calibrated on the first forward and never again: vLLM's calculate_kv_scales (vllm #11906), whose
/// constants 200 for K and 100 for V are the divisors' defaults.
class Locked final : public ScalePolicy {
 public:
  Locked(const KvConfig& config, KvTarget target) : divisor_(divisor(config, target)) {}
  Result<ScaleChoice> choose(const ScaleContext& context, RowMagnitudes& rows) override {
    if (choice_.origin.step < 0) {
      Result<ScaleChoice> choice = calibrate(context, rows, divisor_, true);
      if (!choice) return choice;
      choice_ = *choice;
    }
    return choice_;
  }

 private:
  float divisor_;
  ScaleChoice choice_;
};

/// Calibrated anew on every request's prefill, and kept while it decodes.
class PerRequest final : public ScalePolicy {
 public:
  PerRequest(const KvConfig& config, KvTarget target) : divisor_(divisor(config, target)) {}
  Result<ScaleChoice> choose(const ScaleContext& context, RowMagnitudes& rows) override {
    if (context.spans.size() > 1) return choose_each(context, rows);
    const auto known = choices_.find(context.request);
    if (known != choices_.end()) return known->second;
    Result<ScaleChoice> choice = calibrate(context, rows, divisor_, false);
    if (choice) choices_.emplace(context.request, *choice);
    return choice;
  }

 private:
  /// A scale a row. The ledger tells of the request whose scale is the largest.
  Result<ScaleChoice> choose_each(const ScaleContext& context, RowMagnitudes& rows) {
    const Result<std::span<const float>> each = rows.rows();
    if (!each) return tl::unexpected(each.error());
    ScaleChoice all;
    all.scales.assign(each->size(), 1.0F);
    double largest = -1;
    for (const Span& span : context.spans) {
      const auto own = each->subspan(static_cast<std::size_t>(span.row), static_cast<std::size_t>(span.rows));
      const auto [known, is_new] = choices_.try_emplace(span.request);
      if (is_new) known->second = of_rows(own, span, context.step);
      const ScaleChoice& choice = known->second;
      std::fill_n(all.scales.begin() + span.row, span.rows, choice.scales[0]);
      if (largest >= 0 && larger(largest, double{choice.scales[0]}) == largest) continue;
      largest = double{choice.scales[0]};
      all.origin = choice.origin;
    }
    return all;
  }

  ScaleChoice of_rows(std::span<const float> magnitudes, const Span& span, std::int64_t step) const {
    float absmax = 0;
    for (const float one : magnitudes) absmax = static_cast<float>(larger(double{absmax}, double{one}));
    return {.scales = {absmax / divisor_},
            .origin = {.source = ScaleSource::calibrated,
                       .request = span.request,
                       .step = step,
                       .tokens = span.rows,
                       .absmax = absmax}};
  }

  float divisor_;
  std::unordered_map<std::int64_t, ScaleChoice> choices_;
};

/// absmax / largest finite value of all rows of a step, whoever's they are: one scale for a tensor, as torch's and
/// vLLM's dynamic per-tensor quantization computes it. Rows that pad a step count like any other.
class PerStep final : public ScalePolicy {
 public:
  PerStep(const KvConfig& config, KvTarget) : max_finite_(info(config.format).max_finite) {}
  Result<ScaleChoice> choose(const ScaleContext& context, RowMagnitudes& rows) override {
    Result<ScaleChoice> choice = calibrate(context, rows, max_finite_, false);
    if (!choice) return choice;
    if (choice->scales[0] == 0.0F) choice->scales[0] = 1.0F;
    if (context.spans.empty()) return choice;
    const Result<std::span<const float>> each = rows.rows();
    if (!each) return tl::unexpected(each.error());
    choice->origin.request = whose(context, *each, choice->origin.absmax);
    return choice;
  }

 private:
  /// The request of the row that set the scale.
  static std::int64_t whose(const ScaleContext& context, std::span<const float> each, double absmax) {
    for (std::size_t row = 0; row < each.size(); ++row) {
      if (each[row] != absmax && !std::isnan(each[row])) continue;
      for (const Span& span : context.spans) {
        if (span.has(static_cast<std::int64_t>(row))) return span.request;
      }
      return kPaddingRows;
    }
    return context.request;
  }

  float max_finite_;
};

/// absmax / largest finite value of the steps before, as delayed scaling has it in training (TransformerEngine's
/// DelayedScaling; arXiv 2209.05433): no pass over the values before they are cast. 1 while there is no history.
class Delayed final : public ScalePolicy {
 public:
  Delayed(const KvConfig& config, KvTarget)
      : max_finite_(info(config.format).max_finite), length_(static_cast<std::size_t>(config.history)) {}
  Result<ScaleChoice> choose(const ScaleContext& context, RowMagnitudes& rows) override {
    ScaleChoice choice{.scales = {1.0F}, .origin = {.source = ScaleSource::fixed}};
    const auto largest = std::max_element(history_.begin(), history_.end(), [](const auto& a, const auto& b) {
      return !std::isnan(a.origin.absmax) && larger(a.origin.absmax, b.origin.absmax) != a.origin.absmax;
    });
    if (largest != history_.end() && largest->scales[0] != 0) choice = *largest;
    Result<ScaleChoice> now = calibrate(context, rows, max_finite_, false);
    if (!now) return now;
    history_.push_back(*now);
    if (history_.size() > length_) history_.pop_front();
    return choice;
  }

 private:
  float max_finite_;
  std::size_t length_;
  std::deque<ScaleChoice> history_;
};

/// Every token's row by its own largest magnitude over the format's largest finite value.
class PerToken final : public ScalePolicy {
 public:
  PerToken(const KvConfig& config, KvTarget) : max_finite_(info(config.format).max_finite) {}
  Result<ScaleChoice> choose(const ScaleContext& context, RowMagnitudes& rows) override {
    const Result<std::span<const float>> absmax = rows.rows();
    if (!absmax) return tl::unexpected(absmax.error());
    ScaleChoice choice{.scales = std::vector<float>(absmax->begin(), absmax->end()),
                       .origin = {.source = ScaleSource::calibrated,
                                  .request = context.request,
                                  .step = context.step,
                                  .tokens = context.tokens}};
    for (float& scale : choice.scales) {
      choice.origin.absmax = larger(choice.origin.absmax, double{scale});
      scale = scale == 0.0F ? 1.0F : scale / max_finite_;
    }
    return choice;
  }

 private:
  float max_finite_;
};

template <class Policy>
std::unique_ptr<ScalePolicy> make(const KvConfig& config, KvTarget target) {
  return std::make_unique<Policy>(config, target);
}

constexpr std::array kPolicies{
    ScalePolicyEntry{"unit_scale", "scale 1: values that the format holds stay as they are", false, make<UnitScale>},
    ScalePolicyEntry{"locked", "absmax / divisor of the first forward, for ever", false, make<Locked>},
    ScalePolicyEntry{"static", "kv.scale_k and kv.scale_v", false, make<Static>},
    ScalePolicyEntry{"per_request", "absmax / divisor of each request's prefill", true, make<PerRequest>},
    ScalePolicyEntry{"delayed", "absmax / largest finite value of the last kv.history steps, not of this one", true,
                     make<Delayed>},
    ScalePolicyEntry{"per_step", "absmax / largest finite value of all rows of each step, whoever's they are", true,
                     make<PerStep>},
    ScalePolicyEntry{"per_token", "absmax / largest finite value of each token", true, make<PerToken>},
};

}  // namespace

std::span<const ScalePolicyEntry> scale_policies() { return kPolicies; }

const ScalePolicyEntry* find_scale_policy(std::string_view name) {
  const auto found = std::find_if(kPolicies.begin(), kPolicies.end(),
                                  [&](const ScalePolicyEntry& entry) { return entry.name == name; });
  return found == kPolicies.end() ? nullptr : &*found;
}

std::string scale_policy_names() {
  std::string names;
  for (const ScalePolicyEntry& entry : kPolicies) {
    if (!names.empty()) names += '|';
    names += entry.name;
  }
  return names;
}

double headroom(Format format, double scale, double absmax) {
  return static_cast<double>(info(format).max_finite) * scale / absmax;
}

}  // namespace nanscope
