#include "instrument/engine/scale_policies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

namespace nanscope {
namespace {

float divisor(const KvConfig& config, KvTarget target) {
  return target == KvTarget::k ? config.divisor_k : config.divisor_v;
}

/// NaN where one is, as torch.amax has it: by comparing alone, where a NaN stands would decide whether it counts.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// No quantization: codes are the values themselves.
class Auto final : public ScalePolicy {
 public:
  Auto(const KvConfig&, KvTarget) {}
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
    if (choice_.origin.step < 0 || choice_.origin.request != context.request) {
      Result<ScaleChoice> choice = calibrate(context, rows, divisor_, false);
      if (!choice) return choice;
      choice_ = *choice;
    }
    return choice_;
  }

 private:
  float divisor_;
  ScaleChoice choice_;
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
    ScalePolicyEntry{"auto", "no quantization: scale 1", false, make<Auto>},
    ScalePolicyEntry{"locked", "absmax / divisor of the first forward, for ever", false, make<Locked>},
    ScalePolicyEntry{"static", "kv.scale_k and kv.scale_v", false, make<Static>},
    ScalePolicyEntry{"per_request", "absmax / divisor of each request's prefill", true, make<PerRequest>},
    ScalePolicyEntry{"delayed", "absmax / largest finite value of the last kv.history steps, not of this one", true,
                     make<Delayed>},
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
