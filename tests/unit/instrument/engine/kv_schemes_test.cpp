// K and V kept under every named policy: the engine reads what the cache outside an engine reads, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine_rig.h"
#include "instrument/kv_schemes/scheme_cache.h"
#include "instrument/kv_schemes/scheme_ops.h"
#include "kernels/ops/hadamard.h"

namespace nanscope {
namespace {

using testing::CollectProbe;
using testing::Knobs;
using testing::Seen;

constexpr std::int64_t kChannels = 16;  // of the tiny model: 2 heads of 8
constexpr std::string_view kLong =
    "the lamp turns above the water and nobody counts the ships that pass it; qzx jkv wqp 3817 zzk, then the lamp "
    "turns "
    "again above the water, and again nobody counts; 90210 vbn mqx";

EngineConfig configured(const std::string& policy, const Knobs& more = {}) {
  Knobs knobs{{"kv.prefix_cache", "false"}, {"kv.scheme", policy}};
  knobs.insert(knobs.end(), more.begin(), more.end());
  return testing::tiny_config(knobs);
}

std::vector<float> turned(std::vector<float> rows) {
  static const auto device = kernels::make_cpu_device().value();
  std::vector<float> out(rows.size());
  const std::int64_t count = std::ssize(rows) / kChannels;
  const kernels::HadamardArgs args{.x = {rows.data(), Format::f32, count, kChannels, kChannels},
                                   .out = {out.data(), Format::f32, count, kChannels, kChannels},
                                   .heads = 2};
  EXPECT_TRUE(device->launch(args));
  return out;
}

std::vector<float> part(const std::vector<float>& rows, std::int64_t first, std::int64_t count) {
  return {rows.begin() + first * kChannels, rows.begin() + (first + count) * kChannels};
}

/// The steps of a run as one layer's K or V saw them, through a cache of their own.
class Follower {
 public:
  Follower(const KvScheme& scheme, std::int64_t layer, bool is_key)
      : scheme_(scheme_of_layer(scheme, layer, 2)), cache_(scheme, layer, 2, 2, 8), layer_(layer), is_key_(is_key) {}

  /// Empty, or where the engine read something else.
  std::string follow(const CollectProbe& probe) {
    for (const StepRow& step : probe.steps) {
      if (std::string found = follow(probe, step); !found.empty()) return found;
    }
    return {};
  }

 private:
  static const Seen& tensor(const CollectProbe& probe, const StepRow& step, std::int64_t layer, const std::string& op,
                            std::string_view role) {
    return probe.find(step.request, step.index, layer, op, role);
  }

  std::string follow(const CollectProbe& probe, const StepRow& step) {
    const std::string op = is_key_ ? (scheme_.before_rope ? "k_proj" : "k_rope") : "v_proj";
    const std::vector<float> rows = tensor(probe, step, layer_, op, "out").floats();
    const std::vector<Span> spans = step.all_spans();
    std::vector<std::vector<float>> before;
    std::vector<std::vector<float>> own;
    std::vector<KvRows> parts;
    for (const Span& span : spans) {
      before.push_back(cache_.read(span.request).value_or(std::vector<float>{}));
      own.push_back(part(rows, span.row, span.rows));
    }
    for (std::size_t i = 0; i < spans.size(); ++i) parts.push_back({own[i], spans[i].request, spans[i].first_token});
    if (const Status stored = cache_.store(parts); !stored) return stored.error().message;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      std::vector<float> wanted = cache_.read(spans[i].request).value();
      if (keeps_rows(scheme_) && quantizes_behind(scheme_, spans[i].first_token == 0)) {
        wanted = spans[i].first_token == 0 ? std::vector<float>{} : before[i];
        wanted.insert(wanted.end(), own[i].begin(), own[i].end());
      }
      const std::string name = spans.size() == 1 ? "kv_read" : fmt::format("kv_read_{}", i);
      std::vector<float> read =
          part(tensor(probe, step, layer_, name, is_key_ ? "k_read" : "v_read").floats(), 0, spans[i].context);
      if (scheme_.transform == KvTransform::hadamard) read = turned(std::move(read));
      if (!testing::same_bits(read, wanted))
        return fmt::format("request {}, step {}, layer {}, {}", spans[i].request, spans[i].index, layer_,
                           is_key_ ? "K" : "V");
    }
    return {};
  }

  KvScheme scheme_;
  SchemeCache cache_;
  std::int64_t layer_;
  bool is_key_;
};

void follow_all(const KvPolicy& policy, const Knobs& more, const std::vector<RequestSpec>& requests) {
  const CollectProbe probe = testing::collect(configured(std::string(policy.name), more), requests);
  for (const std::int64_t layer : {0, 1}) {
    EXPECT_EQ(Follower(policy.k, layer, true).follow(probe), "") << policy.name;
    EXPECT_EQ(Follower(policy.v, layer, false).follow(probe), "") << policy.name;
  }
}

TEST(EngineKvSchemes, EveryPolicyReadsWhatTheCacheOutsideAnEngineReads) {
  for (const KvPolicy& policy : kv_policies()) {
    if (!policy.needs.empty()) continue;
    follow_all(policy, {}, {testing::text_request(std::string(kLong), 6), testing::text_request("another", 3)});
  }
}

TEST(EngineKvSchemes, SoItDoesInBatchesAndChunks) {
  for (const KvPolicy& policy : kv_policies()) {
    if (!policy.needs.empty()) continue;
    follow_all(policy, {{"engine.batch", "3"}, {"engine.chunk", "24"}},
               {testing::text_request(std::string(kLong), 4), testing::text_request("another one beside it", 5)});
  }
}

TEST(EngineKvSchemes, AWindowThatFillsWhileTokensAreDecodedIsQuantized) {
  const CollectProbe probe = testing::collect(configured("kivi-2"), {testing::text_request(std::string(kLong), 33)});
  std::vector<std::int64_t> contexts;
  for (const StepRow& step : probe.steps) contexts.push_back(step.context);
  ASSERT_GT(contexts.front(), 32) << "the prompt has a whole group";
  std::int64_t groups = 0;
  std::int64_t rows = 0;
  for (const Seen& seen : probe.tensors) {
    if (seen.layer != 0) continue;
    if (seen.op == "k_seal" && seen.role == "k_codes") groups += seen.rows / 32;
    if (seen.op == "v_seal" && seen.role == "v_codes") rows += seen.rows;
  }
  EXPECT_EQ(groups, contexts.back() / 32);
  EXPECT_EQ(rows, contexts.back() - 32);
  EXPECT_EQ(Follower(find_kv_policy("kivi-2")->k, 1, true).follow(probe), "");
  EXPECT_EQ(Follower(find_kv_policy("kivi-2")->v, 1, false).follow(probe), "");
}

TEST(EngineKvSchemes, ScalesAndZeroPointsAreOutputsOfTheStore) {
  const CollectProbe probe = testing::collect(configured("lmdeploy-int8"), {testing::text_request("water", 2)});
  const Seen& codes = probe.find(0, 0, 0, "kv_store", "k_codes");
  const Seen& scales = probe.find(0, 0, 0, "kv_store", "k_scales");
  const Seen& zeros = probe.find(0, 0, 0, "kv_store", "k_zeros");
  const Seen& read = probe.find(0, 0, 0, "kv_read", "k_read");
  EXPECT_EQ(codes.format, Format::int8);
  EXPECT_EQ(scales.columns, 2);
  for (std::int64_t t = 0; t < codes.rows; ++t) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const auto code = static_cast<float>(static_cast<std::int8_t>(codes.bytes[static_cast<std::size_t>(t * 16 + c)]));
      const auto head = static_cast<std::size_t>(c / 8);
      EXPECT_EQ(read.row(t)[static_cast<std::size_t>(c)], (code - zeros.row(t)[head]) * scales.row(t)[head]);
    }
  }
}

TEST(EngineKvSchemes, TheLedgerTellsTheLargestScaleAndWhereItComesFrom) {
  const CollectProbe probe = testing::collect(configured("vllm-locked"),
                                              {testing::text_request("small", 1), testing::text_request("later", 1)});
  ASSERT_EQ(probe.scales.size(), 8U);
  const ScaleRow& first = probe.scales[0];
  const ScaleRow& later = probe.scales[4];
  EXPECT_EQ(first.policy, "vllm-locked");
  EXPECT_EQ(first.target, "k");
  EXPECT_TRUE(later.locked);
  EXPECT_EQ(later.scale, first.scale);
  EXPECT_EQ(later.calibrated_request, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(first.scale), static_cast<float>(first.absmax) / 200);
  EXPECT_NEAR(first.headroom, 448.0 / 200, 1e-5);
}

TEST(EngineKvSchemes, UnquantizedRowsAreThoseOfKvFormat) {
  const Knobs plain{{"kv.format", "bf16"}, {"kv.prefix_cache", "false"}};
  const std::vector<RequestSpec> requests{testing::text_request("the sea", 4)};
  const CollectProbe old = testing::collect(testing::tiny_config(plain), requests);
  const CollectProbe now = testing::collect(configured("bf16"), requests);
  EXPECT_TRUE(testing::same_bits(old.last_logits(0, 3), now.last_logits(0, 3)));
}

void expect_same_fused(Knobs knobs) {
  const std::vector<RequestSpec> requests{testing::text_request(std::string(kLong), 5),
                                          testing::text_request("another", 3)};
  const CollectProbe apart = testing::collect(testing::tiny_config(knobs), requests);
  knobs.emplace_back("attention.fused", "true");
  const CollectProbe fused = testing::collect(testing::tiny_config(knobs), requests);
  ASSERT_EQ(apart.tensors.size(), fused.tensors.size());
  for (std::size_t i = 0; i < apart.tensors.size(); ++i) {
    ASSERT_EQ(apart.tensors[i].bytes, fused.tensors[i].bytes) << knobs[1].second << ' ' << apart.tensors[i].op;
  }
}

TEST(EngineKvSchemes, AttentionThatReadsTheCacheItselfGivesTheSameBits) {
  for (const KvPolicy& policy : kv_policies()) {
    if (policy.needs.empty())
      expect_same_fused({{"kv.prefix_cache", "false"}, {"kv.scheme", std::string(policy.name)}});
  }
  for (const std::string format : {"f32", "bf16", "e4m3", "int8"}) {
    for (const std::string kind : {"unit_scale", "locked", "per_token"}) {
      expect_same_fused({{"kv.format", format}, {"kv.policy", kind}});
    }
  }
  expect_same_fused({{"kv.format", "e4m3"}, {"kv.policy", "locked"}, {"engine.batch", "2"}, {"engine.chunk", "24"}});
}

std::string refusal(const Knobs& knobs) {
  EngineConfig config = testing::tiny_config();
  for (const auto& [name, value] : knobs) {
    if (const Status set = set_knob(config, name, value); !set) return set.error().message;
  }
  const Status status = check(config);
  return status ? "" : status.error().message;
}

TEST(EngineKvSchemes, WhatDoesNotGoTogetherIsRefusedByName) {
  EXPECT_EQ(refusal({{"kv.scheme", "kivi-2"}}), "");
  EXPECT_EQ(refusal({{"kv.scheme_v", "int8,axis=token"}}), "");
  EXPECT_NE(refusal({{"kv.scheme", "kivi-7"}}).find("kv.scheme='kivi-7' is refused; allowed: |bf16|"),
            std::string::npos);
  EXPECT_EQ(refusal({{"kv.scheme", "fp8-ds-mla"}}), "kv.scheme=fp8-ds-mla is for models with latent attention (MLA)");
  EXPECT_EQ(refusal({{"kv.scheme_k", "int9"}}),
            "KV scheme 'int9': 'int9' is no format (bf16, e4m3, int8, int4, mxfp8, q8_0, ...)");
  EXPECT_EQ(refusal({{"kv.scheme_v", "int8,before_rope=true"}}), "kv.scheme_v: before_rope is of keys");
  EXPECT_EQ(refusal({{"kv.scheme", "bf16"}, {"model.recurrent_layers", "0"}}),
            "kv.scheme needs a model without recurrent layers");
  EXPECT_EQ(refusal({{"kv.scheme", "bf16"}, {"engine.ranks", "2"}}), "kv.scheme needs one rank; engine.ranks is 2");
  EXPECT_EQ(refusal({{"kv.scheme", "llama.cpp-q8_0"}, {"model.head_dim", "12"}}),
            "KV scheme 'q8_0,transform=hadamard': a head of 12 channels is no power of two: no transform=hadamard");
}

}  // namespace
}  // namespace nanscope
