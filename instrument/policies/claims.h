#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/policies/evaluate.h"

/// What is said about KV caches in "Optimizing World Model Inference Speed with Quantization", tested on the data at
/// hand.
namespace nanscope {

/// Names of claim_candidates().
inline constexpr std::string_view kKeyNoise = "K 3 % noise";
inline constexpr std::string_view kValueNoise = "V 3 % noise";
inline constexpr std::string_view kBothKept = "K bf16, V bf16";
inline constexpr std::string_view kKeysInt8Token = "K int8 a token and head";
inline constexpr std::string_view kKeysFp8Token = "K e4m3 a token and head";
inline constexpr std::string_view kKeysInt8Channel = "K int8 a channel";
inline constexpr std::string_view kKeysInt8Group = "K int8 a channel of 32 tokens";
inline constexpr std::string_view kKeysInt8Block = "K int8 32 channels of a token";
inline constexpr std::string_view kKeysFp8Group = "K e4m3 a channel of 32 tokens";
inline constexpr std::string_view kValuesInt8Token = "V int8 a token and head";
inline constexpr std::string_view kValuesFp8Token = "V e4m3 a token and head";
inline constexpr std::string_view kValuesInt8Tensor = "V int8 a tensor";
inline constexpr std::string_view kValuesInt8Percentile = "V int8 a tensor, 99.5th percentile";
inline constexpr std::string_view kLateLayersClaim = "late-layers-safer";
inline constexpr double kClaimNoise = 0.03;

/// `tried`: results of claim_candidates().
std::vector<PolicyClaim> test_claims(std::span<const PolicyResult> tried, std::span<const LayerFacts> layers);

/// The same claim where the run was made again with K in e4m3 in the first or in the second half of its layers: errors
/// of the logits.
void tell_late_layers(double early, double late, PolicyClaim& claim);

}  // namespace nanscope
