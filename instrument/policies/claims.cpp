#include "instrument/policies/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"

namespace nanscope {
namespace {

/// Errors of two policies whose ratio is within these are said to be alike.
constexpr double kClearlyMore = 1.5;
constexpr double kSlightlyMore = 1.25;
/// Largest error of a layer's output that is called robust.
constexpr double kRobust = 0.05;
/// Largest magnitude over the 99.5th percentile from which values are said to have spikes; of a normal distribution of
/// a million numbers it is 1.7.
constexpr double kSpikes = 3;

/// Largest magnitude of a head's channel over its median channel's from which channels are said to differ widely; of
/// 1024 keys of 128 normal channels it is 1.6.
constexpr double kWideChannels = 3;

/// Until the run is made again.
constexpr std::string_view kNotBehind = "; how it goes on through the layers behind it is not in it";

struct Tested {
  ClaimVerdict verdict = ClaimVerdict::not_testable;
  std::string figures;
};

struct Data {
  std::span<const PolicyResult> tried;
  std::span<const LayerFacts> layers;

  /// Null where it could not be tried.
  const PolicyResult* find(std::string_view name) const {
    for (const PolicyResult& one : tried) {
      if (one.candidate.name == name && one.problem.empty() && !one.layers.empty()) return &one;
    }
    return nullptr;
  }
};

Tested not_tried() { return {ClaimVerdict::not_testable, "what it compares could not be tried on this data"}; }

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

double ratio(double a, double b) { return b > 0 ? a / b : a > 0 ? INFINITY : 1; }

Tested keys_more_sensitive(const Data& data) {
  const PolicyResult* k = data.find(kKeyNoise);
  const PolicyResult* v = data.find(kValueNoise);
  if (k == nullptr || v == nullptr) return not_tried();
  double deviation = 0;
  std::size_t worse = 0;
  for (std::size_t i = 0; i < data.layers.size(); ++i) {
    deviation += data.layers[i].logit_deviation / static_cast<double>(data.layers.size());
    worse += k->layers[i].error > v->layers[i].error ? 1 : 0;
  }
  const double times = ratio(k->error, v->error);
  Tested tested;
  tested.verdict = times >= kClearlyMore ? ClaimVerdict::confirmed : ClaimVerdict::refuted;
  tested.figures = fmt::format(
      "3 % noise on K moves the output by {}, on V by {}: {:.3g} times; more in {} of {}; KL of the "
      "probabilities {:.2g} nats by K, none by V; standard deviation of a query's scores {:.3g}",
      percent(k->error), percent(v->error), times, worse, counted(data.layers.size(), "layer"), k->divergence,
      deviation);
  return tested;
}

Tested robust_default(const Data& data) {
  const PolicyResult* int8 = data.find(kValuesInt8Token);
  const PolicyResult* fp8 = data.find(kValuesFp8Token);
  const PolicyResult* other = data.find(kKeysInt8Token);
  const PolicyResult* kept = data.find(kBothKept);
  if (int8 == nullptr || fp8 == nullptr || other == nullptr || kept == nullptr) return not_tried();
  const double worst = std::max(int8->layers[int8->worst].error, fp8->layers[fp8->worst].error);
  const bool finite = int8->not_finite == 0 && fp8->not_finite == 0;
  Tested tested;
  tested.verdict = finite && worst <= kRobust ? ClaimVerdict::confirmed : ClaimVerdict::refuted;
  tested.figures = fmt::format(
      "error of the output {} with V in int8, {} in e4m3 ({} with both in bf16), {} at most in a layer{}; the same "
      "bytes the other way, K in int8 and V in bf16: {}",
      percent(int8->error), percent(fp8->error), percent(kept->error), percent(worst), finite ? "" : ", NaN made",
      percent(other->error));
  if (other->error * kSlightlyMore < int8->error) tested.figures += ", which is better here";
  return tested;
}

/// Elements of K that a policy quantized: not those of a window, or of a group of tokens that is not full.
std::int64_t quantized_keys(const PolicyResult& one) {
  std::int64_t elements = 0;
  for (const LayerScore& score : one.layers) elements += score.k.elements;
  return elements;
}

/// With as many scales both ways where the run is long enough for groups of tokens; else those of whole channels, which
/// must be frozen, against those of whole heads.
Tested channel_beats_token(const Data& data) {
  const PolicyResult* group = data.find(kKeysInt8Group);
  const PolicyResult* block = data.find(kKeysInt8Block);
  const PolicyResult* frozen = data.find(kKeysInt8Channel);
  const PolicyResult* token = data.find(kKeysInt8Token);
  const PolicyResult* fp8_group = data.find(kKeysFp8Group);
  const PolicyResult* fp8_token = data.find(kKeysFp8Token);
  if (frozen == nullptr || token == nullptr) return not_tried();
  const bool groups = group != nullptr && block != nullptr && fp8_group != nullptr && fp8_token != nullptr &&
                      2 * quantized_keys(*group) >= quantized_keys(*token);
  const double channel = groups ? group->error : frozen->error;
  const double other = groups ? block->error : token->error;
  Tested tested;
  tested.verdict = channel * kSlightlyMore < other ? ClaimVerdict::confirmed : ClaimVerdict::refuted;
  double spread = 0;
  for (const LayerFacts& layer : data.layers) spread = std::max(spread, layer.channel_spread);
  if (spread < kWideChannels) {
    tested.verdict = ClaimVerdict::not_testable;
    tested.figures = fmt::format("no channel of K is {:g} times a head's median channel; ", kWideChannels);
  }
  if (groups) {
    tested.figures += fmt::format(
        "K in int8, a scale for 32 tokens of a channel: {}, for 32 channels of a token: {} ({:.3g} times); in e4m3 {} "
        "by "
        "channel, {} by token and head; ",
        percent(channel), percent(other), ratio(other, channel), percent(fp8_group->error), percent(fp8_token->error));
  }
  tested.figures += fmt::format(
      "{}by channel, frozen on the request's first rows: {}, {} of K clipped; by token and head: {}",
      groups ? "int8 " : "K in int8 ", percent(frozen->error), percent(frozen->clipped), percent(token->error));
  if (!groups) tested.figures += "; the run is too short for groups of 32 tokens";
  return tested;
}

Tested late_safer(const Data& data) {
  const PolicyResult* fp8 = data.find(kKeysFp8Token);
  if (fp8 == nullptr) return not_tried();
  if (data.layers.size() < 2) return {ClaimVerdict::not_testable, "there is one layer"};
  const std::size_t half = data.layers.size() / 2;
  double early = 0;
  double late = 0;
  for (std::size_t i = 0; i < fp8->layers.size(); ++i) {
    const bool first = i < half;
    (first ? early : late) += fp8->layers[i].error / static_cast<double>(first ? half : fp8->layers.size() - half);
  }
  Tested tested;
  tested.verdict = late * kSlightlyMore < early ? ClaimVerdict::confirmed : ClaimVerdict::refuted;
  tested.figures =
      fmt::format("error of a layer's own output with K in e4m3: {} on average in the first {}, {} in the others{}",
                  percent(early), half == 1 ? "layer" : fmt::format("{} layers", half), percent(late), kNotBehind);
  return tested;
}

Tested percentile_helps(const Data& data) {
  const PolicyResult* percentile = data.find(kValuesInt8Percentile);
  const PolicyResult* largest = data.find(kValuesInt8Tensor);
  if (percentile == nullptr || largest == nullptr) return not_tried();
  double spikes = 0;
  double bulk_percentile = 0;
  double bulk_largest = 0;
  const auto count = static_cast<double>(data.layers.size());
  for (std::size_t i = 0; i < data.layers.size(); ++i) {
    spikes = std::max(spikes, data.layers[i].spikes);
    bulk_percentile += percentile->layers[i].v_bulk_error / count;
    bulk_largest += largest->layers[i].v_bulk_error / count;
  }
  const std::string figures = fmt::format(
      "V in int8, a scale a step: the output is off by {} with the 99.5th percentile, by {} with the largest; the 99.5 "
      "% of V below it by {} and {}; the largest value is {:.3g} times the percentile",
      percent(percentile->error), percent(largest->error), percent(bulk_percentile), percent(bulk_largest), spikes);
  if (spikes < kSpikes) return {ClaimVerdict::not_testable, "V has no spikes; " + figures};
  const bool helps = percentile->error * kSlightlyMore < largest->error;
  return {helps ? ClaimVerdict::confirmed : ClaimVerdict::refuted, figures};
}

Tested fp8_for_int8(const Data& data) {
  const PolicyResult* k_fp8 = data.find(kKeysFp8Token);
  const PolicyResult* k_int8 = data.find(kKeysInt8Token);
  const PolicyResult* v_fp8 = data.find(kValuesFp8Token);
  const PolicyResult* v_int8 = data.find(kValuesInt8Token);
  if (k_fp8 == nullptr || k_int8 == nullptr || v_fp8 == nullptr || v_int8 == nullptr) return not_tried();
  const double keys = ratio(k_fp8->error, k_int8->error);
  const double values = ratio(v_fp8->error, v_int8->error);
  return {std::max(keys, values) <= kClearlyMore ? ClaimVerdict::confirmed : ClaimVerdict::refuted,
          fmt::format("by token and head, e4m3 has {:.3g} times the error of int8 on K ({} and {}), {:.3g} times on V "
                      "({} and {})",
                      keys, percent(k_fp8->error), percent(k_int8->error), values, percent(v_fp8->error),
                      percent(v_int8->error))};
}

struct Claim {
  std::string_view name;
  std::string_view statement;
  Tested (*test)(const Data&);
};

constexpr Claim kClaims[] = {
    {"keys-more-sensitive", "keys are far more sensitive to precision loss than values", keys_more_sensitive},
    {"robust-default", "K in bf16 and V in 8 bits is a robust default", robust_default},
    {"channel-beats-token", "a scale per channel serves K better than one per token, where channels differ widely",
     channel_beats_token},
    {kLateLayersClaim, "K in fp8 is safer in late layers than in early ones", late_safer},
    {"percentile-helps", "a percentile for the scale of V guards against spikes", percentile_helps},
    {"fp8-for-int8", "fp8 in place of int8 has at most 1.5 times the error (the source leaves that to be measured)",
     fp8_for_int8},
};

}  // namespace

void tell_late_layers(double early, double late, PolicyClaim& claim) {
  claim.verdict = late * kSlightlyMore < early ? ClaimVerdict::confirmed : ClaimVerdict::refuted;
  if (claim.figures.ends_with(kNotBehind)) claim.figures.resize(claim.figures.size() - kNotBehind.size());
  claim.figures = fmt::format(
      "run again with K in e4m3 in the first half of the layers, the logits are off by {:.3g}, in the second half by "
      "{:.3g} (root mean square over the last prompt tokens); {}",
      early, late, claim.figures);
}

std::vector<PolicyClaim> test_claims(std::span<const PolicyResult> tried, std::span<const LayerFacts> layers) {
  std::vector<PolicyClaim> claims;
  for (const Claim& one : kClaims) {
    Tested tested = one.test({tried, layers});
    claims.push_back({std::string(one.name), std::string(one.statement), tested.verdict, std::move(tested.figures)});
  }
  return claims;
}

}  // namespace nanscope
