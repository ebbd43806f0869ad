#include "instrument/policies/candidate.h"

#include <utility>

#include "instrument/policies/claims.h"

namespace nanscope {
namespace {

KvScheme kept() { return {}; }

KvScheme eight_bits(Format format, KvAxis axis, KvLifetime lifetime = KvLifetime::step) {
  KvScheme scheme;
  scheme.format = format;
  scheme.axis = axis;
  scheme.lifetime = lifetime;
  return scheme;
}

/// A scale for each 32 elements, as KIVI has them.
KvScheme grouped(KvScheme scheme) {
  scheme.lifetime = KvLifetime::step;
  scheme.group = 32;
  return scheme;
}

PolicyCandidate of_keys(std::string_view name, KvScheme k) {
  PolicyCandidate one;
  one.name = name;
  one.k = std::move(k);
  one.v = kept();
  return one;
}

PolicyCandidate of_values(std::string_view name, KvScheme v) {
  PolicyCandidate one;
  one.name = name;
  one.k = kept();
  one.v = std::move(v);
  return one;
}

}  // namespace

std::vector<PolicyCandidate> named_candidates() {
  std::vector<PolicyCandidate> all;
  for (const KvPolicy& policy : kv_policies()) {
    PolicyCandidate one;
    one.name = policy.name;
    one.ships_in = policy.ships_in;
    one.needs = policy.needs;
    one.k = policy.k;
    one.v = policy.v;
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<PolicyCandidate> claim_candidates() {
  const KvScheme int8_token = eight_bits(Format::int8, KvAxis::token_head);
  const KvScheme fp8_token = eight_bits(Format::e4m3, KvAxis::token_head);
  // Frozen on the first rows: a scale a channel needs the history, or an earlier look.
  const KvScheme int8_channel = eight_bits(Format::int8, KvAxis::channel, KvLifetime::request);
  const KvScheme fp8_channel = eight_bits(Format::e4m3, KvAxis::channel, KvLifetime::request);
  const KvScheme int8_tensor = eight_bits(Format::int8, KvAxis::tensor);
  KvScheme percentile = int8_tensor;
  percentile.statistic = KvStatistic::percentile;
  PolicyCandidate k_noise;
  k_noise.name = kKeyNoise;
  k_noise.k_noise = kClaimNoise;
  k_noise.exact_v = true;
  PolicyCandidate v_noise;
  v_noise.name = kValueNoise;
  v_noise.v_noise = kClaimNoise;
  v_noise.exact_k = true;
  return {k_noise,
          v_noise,
          of_keys(kBothKept, kept()),
          of_keys(kKeysInt8Token, int8_token),
          of_keys(kKeysFp8Token, fp8_token),
          of_keys(kKeysInt8Channel, int8_channel),
          of_keys(kKeysInt8Group, grouped(int8_channel)),
          of_keys(kKeysInt8Block, grouped(eight_bits(Format::int8, KvAxis::block))),
          of_keys(kKeysFp8Group, grouped(fp8_channel)),
          of_values(kValuesInt8Token, int8_token),
          of_values(kValuesFp8Token, fp8_token),
          of_values(kValuesInt8Tensor, int8_tensor),
          of_values(kValuesInt8Percentile, percentile)};
}

}  // namespace nanscope
