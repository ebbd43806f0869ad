// Every named policy over rows that are hard: constant ones, one outlier, NaN, Inf, zero, one token, the edge of a
// window. What has to come back is worked out in double precision.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/blocks/block_codec.h"
#include "core/blocks/presets.h"
#include "instrument/kv_schemes/scheme_cache.h"
#include "tests/unit/instrument/kv_schemes/double_cache.h"

namespace nanscope {
namespace {

using Rows = std::vector<std::vector<float>>;

constexpr int kHeads = 2;
constexpr int kWidth = 32;
constexpr int kChannels = kHeads * kWidth;

/// Ordinary values, channel 5 ten times the others, nearly symmetric.
Rows ordinary(int tokens, std::uint64_t seed) {
  std::uint64_t state = seed * 2654435761U + 12345;
  Rows rows;
  for (int t = 0; t < tokens; ++t) {
    auto& row = rows.emplace_back();
    for (int c = 0; c < kChannels; ++c) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const float value = static_cast<float>(state >> 40) * 0x1p-23F - 1.0F;
      row.push_back(c == 5 ? value * 10 : value);
    }
  }
  return rows;
}

std::vector<float> flat(const Rows& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

bool reads_as(double wanted, double reach, double found) {
  if (std::isnan(wanted) || std::isnan(found)) return std::isnan(wanted) && std::isnan(found);
  if (std::isinf(wanted) || std::isinf(found)) return wanted == found;
  return std::abs(found - wanted) <= reach;
}

/// The steps of one sequence through the cache and the oracle; empty, or what differs first.
std::string difference(const KvScheme& scheme, const std::vector<Rows>& steps) {
  SchemeCache cache(scheme, 3, 4, kHeads, kWidth);
  testing::DoubleCache oracle(scheme, kHeads, kWidth);
  std::int64_t position = 0;
  for (const Rows& step : steps) {
    const std::vector<float> values = flat(step);
    const KvRows rows{values, 7, position};
    if (const Status status = cache.store(std::span(&rows, 1)); !status) return status.error().message;
    oracle.store(step);
    position += std::ssize(step);
    const Result<std::vector<float>> read = cache.read(7);
    if (!read) return read.error().message;
    if (std::ssize(*read) != position * kChannels) return "not as many rows as were stored";
    for (std::int64_t t = 0; t < position; ++t) {
      const auto first = read->begin() + t * kChannels;
      const testing::Row found = oracle.turned(testing::Row(first, first + kChannels));
      for (int c = 0; c < kChannels; ++c) {
        const auto& wanted = oracle.expected()[static_cast<std::size_t>(t)][static_cast<std::size_t>(c)];
        const bool turned = scheme.transform == KvTransform::hadamard;
        const double reach = wanted.reach + (turned ? 1e-4 : 0);
        if (!reads_as(wanted.value, reach, found[static_cast<std::size_t>(c)]))
          return fmt::format("after {} tokens, token {}, channel {}: {} is not {} +- {}", position, t, c,
                             found[static_cast<std::size_t>(c)], wanted.value, reach);
      }
    }
  }
  return {};
}

/// A prompt, single tokens, a chunk, and enough to fill every window.
std::vector<Rows> ordinary_steps() {
  return {ordinary(40, 1), ordinary(1, 2), ordinary(1, 3), ordinary(23, 4), ordinary(100, 5), ordinary(1, 6)};
}

std::vector<Rows> with(float value, int step, std::size_t token, std::size_t channel) {
  std::vector<Rows> steps = ordinary_steps();
  steps[static_cast<std::size_t>(step)][token][channel] = value;
  return steps;
}

std::vector<Rows> constant(float value) {
  return {Rows(33, std::vector<float>(kChannels, value)), Rows(1, std::vector<float>(kChannels, value)),
          Rows(100, std::vector<float>(kChannels, value))};
}

/// Those that numbers decide by a block format are compared with its own codec below.
template <class Check>
void every_scheme(const Check& check) {
  for (const KvPolicy& policy : kv_policies()) {
    for (const KvScheme* scheme : {&policy.k, &policy.v}) {
      if (!scheme->block.empty() || !quantizes(*scheme)) continue;
      if (scheme == &policy.v && policy.v == policy.k) continue;
      check(*scheme, std::string(policy.name) + (scheme == &policy.k ? " K: " : " V: ") + to_text(*scheme));
    }
  }
}

TEST(EveryKvPolicy, ReadsOrdinaryRowsBackWithinItsStep) {
  every_scheme([](const KvScheme& scheme, const std::string& name) {
    EXPECT_EQ(difference(scheme, ordinary_steps()), "") << name;
  });
}

TEST(EveryKvPolicy, OneTokenIsEnough) {
  every_scheme([](const KvScheme& scheme, const std::string& name) {
    EXPECT_EQ(difference(scheme, {ordinary(1, 8)}), "") << name;
  });
}

TEST(EveryKvPolicy, ConstantRowsAreWhatTheDefinitionsMakeOfThem) {
  every_scheme([](const KvScheme& scheme, const std::string& name) {
    if (scheme.transform == KvTransform::hadamard) return;  // they are not constant when they are rotated
    for (const float value : {3.0F, -0.25F, 0.0F}) EXPECT_EQ(difference(scheme, constant(value)), "") << name << value;
  });
}

TEST(EveryKvPolicy, OneOutlierClipsOrTakesTheScaleOfItsNeighbours) {
  every_scheme([](const KvScheme& scheme, const std::string& name) {
    EXPECT_EQ(difference(scheme, with(1000, 0, 3, 9)), "") << name << ", in the prompt";
    EXPECT_EQ(difference(scheme, with(-1000, 1, 0, 9)), "") << name << ", in a decoded token";
  });
}

TEST(EveryKvPolicy, NanAndInfGoWhereTheyGoByTheArithmetic) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  every_scheme([&](const KvScheme& scheme, const std::string& name) {
    if (scheme.transform == KvTransform::hadamard) return;  // a head of NaN and Inf: see below
    EXPECT_EQ(difference(scheme, with(nan, 0, 20, 40)), "") << name << ", NaN in the prompt";
    EXPECT_EQ(difference(scheme, with(-inf, 0, 20, 40)), "") << name << ", -Inf in the prompt";
    EXPECT_EQ(difference(scheme, with(inf, 2, 0, 40)), "") << name << ", Inf in a decoded token";
  });
}

TEST(EveryKvPolicy, ARotatedHeadIsNanWhereOneOfItsChannelsIs) {
  const KvPolicy* policy = find_kv_policy("vllm-int4-per-token-head");
  ASSERT_NE(policy, nullptr);
  const std::vector<float> values = flat(with(std::nanf(""), 0, 2, 40).front());
  SchemeCache cache(policy->k, 0, 1, kHeads, kWidth);
  const KvRows rows{values, 0, 0};
  ASSERT_TRUE(cache.store(std::span(&rows, 1)));
  const auto read = cache.read(0);
  ASSERT_TRUE(read);
  for (std::size_t i = 0; i < read->size(); ++i) {
    const bool hit = i / kChannels == 2 && i % kChannels >= kWidth;
    EXPECT_EQ(std::isnan((*read)[i]), hit) << i;
  }
}

TEST(EveryKvPolicy, BlockFormatsAreWhatTheirCodecMakes) {
  int compared = 0;
  for (const KvPolicy& policy : kv_policies()) {
    KvScheme scheme = policy.k;
    if (scheme.block.empty()) continue;
    ++compared;
    scheme.transform = KvTransform::none;
    const BlockFormat& format = find_block_preset(scheme.block)->format;
    for (const float value : {1.0F, 1000.0F, 0.0F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::vector<float> rows = flat(with(value, 0, 3, 33).front());
      for (std::size_t i = 0; i < kChannels; ++i) rows[i] = 0;  // a row of zeros
      const BlockBytes bytes = block_bytes(format, 40, kChannels);
      std::vector<std::byte> codes(bytes.codes);
      std::vector<std::byte> scales(bytes.scales);
      encode_blocks(format, rows, 40, kChannels, 1, {codes, scales});
      std::vector<float> wanted(rows.size());
      decode_blocks(format, {codes, scales}, 40, kChannels, 1, wanted);
      SchemeCache cache(scheme, 0, 1, kHeads, kWidth);
      const KvRows step{rows, 0, 0};
      ASSERT_TRUE(cache.store(std::span(&step, 1))) << policy.name;
      const auto read = cache.read(0);
      ASSERT_TRUE(read);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const bool same = (*read)[i] == wanted[i] || (std::isnan((*read)[i]) && std::isnan(wanted[i]));
        ASSERT_TRUE(same) << policy.name << " " << value << " at " << i << ": " << (*read)[i] << " is not "
                          << wanted[i];
      }
    }
  }
  EXPECT_EQ(compared, 6);
}

TEST(EveryKvPolicy, RowsThatAreNotQuantizedAreRoundedAndNoMore) {
  const KvPolicy* policy = find_kv_policy("bf16");
  ASSERT_NE(policy, nullptr);
  SchemeCache cache(policy->k, 0, 1, 1, 4);
  const std::vector<float> values = {1.0F, 1.00390625F, -3.14159F, 256.5F};
  const KvRows rows{values, 0, 0};
  ASSERT_TRUE(cache.store(std::span(&rows, 1)));
  EXPECT_EQ(cache.read(0).value(), (std::vector<float>{1.0F, 1.0F, -3.140625F, 256.0F}))
      << "1 + 2^-8 ties to 1; pi's bf16 is 3.140625";
}

}  // namespace
}  // namespace nanscope
