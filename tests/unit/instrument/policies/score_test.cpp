/// Policies on random queries, keys and values, against policies_oracle.py, whose figures stand here.
#include "instrument/policies/score.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/run/kv_cache.h"
#include "instrument/policies/claims.h"
#include "instrument/policies/evaluate.h"
#include "tests/unit/instrument/policies/tokens.h"

namespace nanscope {
namespace {

using testing::DumpGraph;
using testing::Fill;
using testing::grid_normal;
using testing::on_grid;

constexpr std::int64_t kKeys = 1024;
constexpr std::int64_t kWidth = 128;

struct Inputs {
  double deviation = 2;  ///< of the scores of a query
  double outliers = 0;   ///< added to every 32nd channel of K
  int spike_every = 0;   ///< elements of V that are 30 or -30
};

Fill numbers(std::uint64_t seed, double factor = 1) {
  return [=](std::int64_t row, std::int64_t channel) {
    return static_cast<float>(
        on_grid(factor * grid_normal((seed << 40U) + static_cast<std::uint64_t>(row * kWidth + channel))));
  };
}

/// Every query sees every key.
std::unique_ptr<DumpGraph> random_run(const Inputs& inputs) {
  auto graph = std::make_unique<DumpGraph>();
  graph->pass({Span{0, 0, 0, kKeys, 0, kKeys}}, kKeys);
  MixAttributes all;
  all.first_position = kKeys - 1;
  const Fill k = numbers(2);
  const Fill v = numbers(3);
  testing::add_attention(
      *graph, kKeys, {}, numbers(1, inputs.deviation),
      [&](std::int64_t row, std::int64_t channel) {
        return k(row, channel) + (channel % 32 == 0 ? static_cast<float>(inputs.outliers) : 0.0F);
      },
      [&](std::int64_t row, std::int64_t channel) {
        const bool spike = inputs.spike_every > 0 && (row * kWidth + channel) % inputs.spike_every == 0;
        return spike ? std::copysign(30.0F, v(row, channel)) : v(row, channel);
      },
      all);
  return graph;
}

class Measured {
 public:
  explicit Measured(const Inputs& inputs) : run_(random_run(inputs)), cache_(*run_) {
    auto tokens = collect_layer(*run_, cache_, 0, {});
    EXPECT_TRUE(tokens) << tokens.error().message;
    tokens_ = std::move(*tokens);
    reference_ = std::make_unique<LayerReference>(tokens_);
  }

  LayerScore score(std::string_view name) const {
    for (const PolicyCandidate& one : claim_candidates()) {
      if (one.name != name) continue;
      auto score = score_layer(*reference_, one, 1);
      EXPECT_TRUE(score) << score.error().message;
      if (score) return *score;
    }
    ADD_FAILURE() << "no candidate " << name;
    return {};
  }
  const LayerReference& reference() const { return *reference_; }

 private:
  std::unique_ptr<DumpGraph> run_;
  KvCache cache_;
  LayerTokens tokens_;
  std::unique_ptr<LayerReference> reference_;
};

void expect_about(double found, double expected, const std::string& what) {
  EXPECT_NEAR(found, expected, 0.01 * expected) << what;
}

TEST(PolicyScore, NoiseOnKeysCountsAsTheLogitsSpread) {
  struct {
    double deviation, by_k, by_v, divergence;
  } const kOracle[] = {
      {0.25, 0.0072266, 0.026867, 2.769e-05}, {1, 0.02926, 0.028759, 4.447e-4}, {4, 0.079285, 0.030216, 5.721e-3}};
  for (const auto& [deviation, by_k, by_v, divergence] : kOracle) {
    const Measured measured({.deviation = deviation});
    EXPECT_NEAR(measured.reference().logit_deviation(), deviation, 0.02 * deviation);
    const LayerScore k = measured.score(kKeyNoise);
    expect_about(k.error, by_k, "K");
    expect_about(k.divergence, divergence, "KL");
    const LayerScore v = measured.score(kValueNoise);
    expect_about(v.error, by_v, "V");
    EXPECT_EQ(v.divergence, 0);
    EXPECT_EQ(v.agreement, 1);
  }
}

TEST(PolicyScore, SchemesOfKeysWithAndWithoutOutlierChannels) {
  struct {
    std::string_view name;
    double plain, plain_divergence, outliers;
  } const kOracle[] = {
      {kBothKept, 0.0038915, 5.967e-06, 0.0080673},       {kKeysInt8Token, 0.010768, 7.971e-05, 0.042218},
      {kKeysFp8Token, 0.054335, 0.001421, 0.08956},       {kKeysInt8Channel, 0.014351, 0.0001227, 0.016635},
      {kValuesInt8Token, 0.0073677, 5.967e-06, 0.010191}, {kValuesFp8Token, 0.026663, 5.967e-06, 0.02759}};
  const Measured plain({});
  const Measured outliers({.outliers = 10});
  for (const auto& one : kOracle) {
    const LayerScore score = plain.score(one.name);
    expect_about(score.error, one.plain, std::string(one.name));
    expect_about(score.divergence, one.plain_divergence, std::string(one.name) + ", KL");
    expect_about(outliers.score(one.name).error, one.outliers, std::string(one.name) + ", outliers");
  }
  EXPECT_NEAR(plain.score(kKeysFp8Token).agreement, 59 / 64.0, 1e-9);
}

TEST(PolicyScore, PercentileOfValuesClipsWhatItSaves) {
  const Measured measured({.spike_every = 256});
  const LayerScore largest = measured.score(kValuesInt8Tensor);
  const LayerScore percentile = measured.score(kValuesInt8Percentile);
  EXPECT_EQ(measured.reference().spikes() > 8, true);
  expect_about(largest.error, 0.026002, "largest");
  expect_about(largest.v_bulk_error, 0.068511, "largest, bulk");
  expect_about(percentile.error, 0.82174, "percentile");
  expect_about(percentile.v_bulk_error, 0.0075071, "percentile, bulk");
  EXPECT_EQ(largest.v.clipped, 0);
  EXPECT_GE(percentile.v.clipped, kKeys * kWidth / 256);
}

TEST(PolicyClaims, SayWhatTheDataShows) {
  const auto verdicts = [](const Inputs& inputs) {
    const auto run = random_run(inputs);
    PolicyOptions options;
    options.candidates = {claim_candidates().front()};
    const auto report = evaluate_policies(*run, options);
    EXPECT_TRUE(report) << report.error().message;
    std::string text;
    for (std::size_t i = 0; report && i < report->claims.size(); ++i)
      text += to_string(report->claims[i].verdict).substr(0, 1);
    return text;
  };
  // Sensitive, robust, by channel, late, percentile, fp8: confirmed, refuted, not testable.
  EXPECT_EQ(verdicts({}), "ccnnnr");
  EXPECT_EQ(verdicts({.deviation = 0.5, .outliers = 10, .spike_every = 256}), "rccnrr");
}

TEST(PolicyFront, IsWhatNoOtherBeats) {
  std::vector<PolicyResult> all(5);
  const auto set = [&](std::size_t i, double bytes, double error) {
    all[i].bytes = bytes;
    all[i].error = error;
    all[i].layers.resize(1);
  };
  set(0, 4, 0.001), set(1, 2, 0.01), set(2, 2, 0.02), set(3, 3, 0.01), set(4, 1, 0.02);
  all[4].not_finite = 1;
  mark_front(all);
  EXPECT_TRUE(all[0].on_front);
  EXPECT_TRUE(all[1].on_front);
  EXPECT_FALSE(all[2].on_front);
  EXPECT_FALSE(all[3].on_front);
  EXPECT_FALSE(all[4].on_front);
}

}  // namespace
}  // namespace nanscope
