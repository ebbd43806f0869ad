#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "instrument/diff/chances.h"
#include "instrument/diff/pattern.h"
#include "tests/unit/instrument/diff/served.h"

/// What is rounding, what is noise, and what stands out of both.
namespace nanscope {
namespace {

using testing::diff_of;
using ::testing::HasSubstr;
using testing::kChannels;
using testing::kDown;
using testing::MemoryDump;
using testing::noise;
using testing::Served;
using testing::tokens_of;

/// Opened without sums: a half of a millionth is no rounding, a quarter beside a million is.
TEST(DiffNumbers, DifferencesAreRelativeWithoutSums) {
  for (const double size : {1e-6, 1e6}) {
    MemoryDump a;
    MemoryDump b;
    std::vector<double> values(8, size);
    for (MemoryDump* dump : {&a, &b}) {
      dump->add("model.layers.0.mlp.output", "f32", {1, 8}, values);
      dump->last().health.sum_sq = std::numeric_limits<double>::quiet_NaN();
      values[3] = size == 1e6 ? size + 0.25 : size * 1.5;
    }
    EXPECT_EQ(diff_of(a, b).rounding, size == 1e6 ? 1U : 0U) << size;
  }
}

/// Of another folder, and of the same module: the codes of one are not the values of the other.
TEST(DiffNumbers, FormsLayersAndExpertsAreApart) {
  MemoryDump a;
  MemoryDump b;
  a.add("old/layer_1/k", "f32", {1, 8}, std::vector<double>(8, 1));
  b.add("new/layer_2/k", "f32", {1, 8}, std::vector<double>(8, 2));
  b.add("new/layer_1/k_codes", "f32", {1, 8}, std::vector<double>(8, 3));
  b.add("new/layer_1/k", "f32", {1, 8}, std::vector<double>(8, 1));
  const DiffReport report = diff_of(a, b);
  EXPECT_EQ(report.equal, 1U);
  EXPECT_EQ(report.unmatched, 2U);
}

TEST(DiffNumbers, StatisticsAreComparedAsFarAsTheyGo) {
  for (const double peak : {5.0, 9.0}) {
    MemoryDump a;
    MemoryDump b;
    for (MemoryDump* dump : {&a, &b}) {
      dump->add("model.layers.0.mlp.output", "f32", {1, 2}, {1, dump == &a ? 5.0 : peak});
      dump->last().stated = true;
      dump->add("model.layers.1.mlp.output", "f32", {1, 2}, {1, 2});
    }
    const DiffReport report = diff_of(a, b);
    EXPECT_EQ(report.compared, 2U);
    EXPECT_EQ(report.differing, peak == 5.0 ? 0U : 1U);
  }
}

/// Two elements, after few ops: rounding explains 4e-6 of a number at most.
TEST(DiffNumbers, StatisticsDifferByMoreThanRoundingInTheirLeastAndInNaN) {
  const auto differing = [](const std::vector<double>& left, const std::vector<double>& right, std::uint64_t nan = 0) {
    MemoryDump a;
    MemoryDump b;
    a.add("model.layers.0.mlp.output", "f32", {1, 2}, left);
    a.last().stated = true;
    b.add("model.layers.0.mlp.output", "f32", {1, 2}, right);
    b.last().stated = true;
    b.last().health.nan = nan;
    const DiffReport report = diff_of(a, b);
    EXPECT_EQ(report.compared, 1U);
    return report.differences.empty() ? "" : nanscope::name(report.differences[0].kind);
  };
  EXPECT_EQ(differing({1, 5}, {1, 5.000001}), "");
  EXPECT_EQ(differing({1, 5}, {1, 5.0001}), "content");
  EXPECT_EQ(differing({-3, 5}, {-4, 5}), "content");
  EXPECT_EQ(differing({1, 5}, {1, 5}, 1), "not-finite");
}

/// 1 + 2^-7 is what two roundings to bf16 make of 1 at most.
TEST(DiffNumbers, AWeightIsRoundedOnceByEachRun) {
  for (const double apart : {0x1p-7, 0x1p-5}) {
    MemoryDump a;
    MemoryDump b;
    a.add("model.layers.0.mlp.down_proj.weight", "f32", {8, 8}, std::vector<double>(64, 1));
    b.add("model.layers.0.mlp.down_proj.weight", "bf16", {8, 8}, std::vector<double>(64, 1 + apart));
    const DiffReport report = diff_of(a, b);
    EXPECT_EQ(report.compared, 1U);
    EXPECT_EQ(report.rounding, apart == 0x1p-7 ? 1U : 0U) << apart;
  }
}

/// One name in the folders of two modules.
TEST(DiffNumbers, ModulesAreApart) {
  MemoryDump a;
  MemoryDump b;
  for (const std::string module : {"self_attn", "cross_attn"})
    a.add("layer_1/" + module + "/k", "f32", {8, 8}, std::vector<double>(64, module == "self_attn" ? 1 : 2));
  for (const std::string module : {"cross_attn"})
    b.add("layer_1/" + module + "/k", "f32", {8, 8}, std::vector<double>(64, module == "self_attn" ? 1 : 2));
  EXPECT_EQ(diff_of(a, b).equal, 1U);
}

/// Experts whose number a folder alone gives.
TEST(DiffNumbers, ExpertsMeetByTheirNumber) {
  MemoryDump a;
  MemoryDump b;
  const auto add = [](MemoryDump& dump, int expert) {
    const std::string name = "layer_1/experts." + std::to_string(expert) + "/up_proj.output";
    dump.add(name, "f32", {8, 8}, std::vector<double>(64, expert + 1));
  };
  for (const int expert : {0, 1, 2}) add(a, expert);
  for (const int expert : {2, 1}) add(b, expert);
  const DiffReport report = diff_of(a, b);
  EXPECT_EQ(report.equal, 2U);
  EXPECT_EQ(report.unmatched, 1U);
}

TEST(DiffNumbers, RoundingToBf16IsNoDifference) {
  const auto tokens = tokens_of(32);
  Served a;
  Served b;
  Served wrong;
  a.step(tokens, 0, 32);
  b.step(tokens, 0, 32, testing::unchanged, "bf16");
  wrong.step(
      tokens, 0, 32, [](auto at, auto, double value) { return at == 9 ? value + 2 : value; }, "bf16");
  const DiffReport same = diff_of(a.dump, b.dump);
  EXPECT_TRUE(same.same());
  EXPECT_EQ(same.rounding, 2U);
  const DiffReport report = diff_of(a.dump, wrong.dump);
  ASSERT_EQ(report.outstanding, 1U);
  EXPECT_EQ(report.differences[0].token, 9);
}

/// Two engines whose noise is 10^-3 everywhere: beyond rounding, and nothing stands out.
TEST(DiffNumbers, NoiseOfTwoEnginesIsAccusedOfNothing) {
  const auto tokens = tokens_of(200);
  Served a;
  Served b;
  a.step(tokens, 0, 200);
  b.step(tokens, 0, 200, noise(1e-3));
  const DiffReport report = diff_of(a.dump, b.dump);
  EXPECT_EQ(report.differing, 2U);
  EXPECT_EQ(report.outstanding, 0U);
  EXPECT_FALSE(report.same());
  EXPECT_TRUE(report.differences.at(0).is_noise);
  EXPECT_THAT(report.differences.at(0).summary, HasSubstr("no row stands out"));
  ASSERT_EQ(report.floor.size(), 2U);
  EXPECT_NEAR(report.floor[0].median, 1e-3 / std::sqrt(3), 1e-4);
}

TEST(DiffNumbers, RowsBeyondTheNoiseAreNamedWithTheirPeriod) {
  const auto tokens = tokens_of(256);
  Served a;
  Served b;
  a.step(tokens, 0, 256);
  b.step(tokens, 0, 256, noise(1e-3, [](auto at, auto, double value) { return at % 32 == 5 ? value + 3 : value; }));
  const DiffReport report = diff_of(a.dump, b.dump);
  ASSERT_EQ(report.outstanding, 1U);
  const Difference& first = report.differences[0];
  ASSERT_TRUE(first.outstanding && first.outstanding->pattern);
  EXPECT_EQ(first.outstanding->rows, 8U);
  EXPECT_EQ(first.outstanding->pattern->period, 32);
  EXPECT_EQ(first.outstanding->pattern->phases, (std::vector<std::int64_t>{5}));
  EXPECT_THAT(first.summary, HasSubstr("every 32nd, phase 5"));
  const nlohmann::ordered_json json = to_json(report);
  EXPECT_EQ(json["standing_out"], 1);
  EXPECT_EQ(json["differences"][0]["stands_out"]["pattern"]["period"], 32);
  EXPECT_EQ(json["differences"][0]["stands_out"]["places"][1]["position"], 37);
  EXPECT_EQ(json["alignment"]["rows"], 3 * 256);
  EXPECT_EQ(json["noise_by_tensor"].size(), 2U);
}

/// The same noise, measured: what A and its repetition differ by is no difference.
TEST(DiffNumbers, ARepetitionMeasuresTheNoise) {
  const auto tokens = tokens_of(200);
  Served a;
  Served again;
  Served b;
  Served wrong;
  a.step(tokens, 0, 200);
  again.step(tokens, 0, 200, noise(1e-3));
  b.step(tokens, 0, 200, noise(-1e-3));
  wrong.step(tokens, 0, 200, noise(-1e-3, [](auto at, auto, double value) { return at == 77 ? -value : value; }));
  const auto repeat = again.dump.run();
  const DiffReport report = diff_of(a.dump, b.dump, {1, {}, repeat.get()});
  EXPECT_TRUE(report.same());
  EXPECT_EQ(report.noise, 2U);
  const DiffReport other = diff_of(a.dump, wrong.dump, {1, {}, repeat.get()});
  ASSERT_EQ(other.outstanding, 1U);
  EXPECT_EQ(other.differences[0].token, 77);
}

/// In a row whose largest channel is amplified, its noise is the row's; a row that is off in all channels is a fault.
TEST(DiffNumbers, NoiseThatAnOpAmplifiesIsNoFault) {
  for (const std::int64_t channels : {std::int64_t{1}, kChannels}) {
    MemoryDump a;
    MemoryDump b;
    for (MemoryDump* dump : {&a, &b}) {
      for (int layer = 0; layer < 2; ++layer) {
        std::vector<double> values;
        for (std::int64_t at = 0; at < 64; ++at) {
          for (std::int64_t i = 0; i < kChannels; ++i) {
            const double value = testing::served(layer, 3, at, i);
            const bool off = layer == 1 && at == 9 && i < channels;
            values.push_back(dump == &a ? value : noise(1e-2)(at + layer, i, value) + (off ? 1 : 0));
          }
        }
        dump->add("model.layers." + std::to_string(layer) + ".mlp.output", "f32", {1, 64, kChannels}, values);
      }
    }
    EXPECT_EQ(diff_of(a, b).outstanding, channels == 1 ? 0U : 1U);
  }
}

/// All rows of one tensor are off, and no row more than another.
TEST(DiffNumbers, ATensorStandsOutAsAWhole) {
  MemoryDump a;
  MemoryDump b;
  for (MemoryDump* dump : {&a, &b}) {
    for (int layer = 0; layer < 40; ++layer) {
      std::vector<double> values;
      for (std::int64_t at = 0; at < 64; ++at) {
        for (std::int64_t i = 0; i < kChannels; ++i) {
          const double value = testing::served(layer, 3, at, i);
          values.push_back(dump == &a ? value : noise(1e-6)(at, i, value) * (layer == 25 ? 1.25 : 1));
        }
      }
      dump->add("model.layers." + std::to_string(layer) + ".mlp.output", "f32", {1, 64, kChannels}, values);
    }
  }
  const DiffReport report = diff_of(a, b);
  ASSERT_EQ(report.outstanding, 1U);
  EXPECT_TRUE(report.differences[0].outstanding->whole);
  EXPECT_EQ(report.differences[0].where.layer, 25);
}

TEST(DiffNumbers, AnotherWeightComesBeforeWhatItMakes) {
  const auto tokens = tokens_of(64);
  Served a;
  Served b;
  for (Served* one : {&a, &b}) {
    one->step(tokens, 0, 64, [&](auto at, auto, double value) { return one == &b && at == 9 ? value + 3 : value; });
    std::vector<double> weight(kChannels, 0.7);
    if (one == &b) weight[4] = 0.8;
    one->dump.add("weights/model.layers.0.mlp.down_proj.weight", "f32", {1, kChannels}, weight);
  }
  const DiffReport report = diff_of(a.dump, b.dump, {9, {}, nullptr});
  ASSERT_GE(report.differences.size(), 2U);
  EXPECT_THAT(report.differences[0].a->name, HasSubstr("weight"));
  EXPECT_FALSE(report.differences[0].is_noise);
  EXPECT_TRUE(report.differences[1].outstanding);
  EXPECT_EQ(report.outstanding, 1U);
}

/// Near a tie noise decides what a router chooses; where its logits are equal, it cannot.
TEST(DiffNumbers, AChoiceStandsOutWhereItsInputsAreEqual) {
  constexpr std::int64_t kRows = 64;
  const auto report_of = [](std::int64_t changed) {
    const std::string at = "model.layers.0.mlp.";
    MemoryDump a;
    MemoryDump b;
    for (MemoryDump* dump : {&a, &b}) {
      std::vector<double> logits, weights, ids, out;
      for (std::int64_t row = 0; row < kRows; ++row) {
        const bool other = dump == &b && row == changed;
        for (std::int64_t i = 0; i < 3; ++i) {
          const double value = testing::served(1, 5, row, i);
          logits.push_back(dump == &b && row < 40 ? noise(1e-6)(row, i, value) : value);
        }
        for (std::int64_t i = 0; i < 2; ++i) weights.push_back(0.5);
        for (const double id : {0.0, other ? 2.0 : 1.0}) ids.push_back(id);
        for (std::int64_t i = 0; i < kChannels; ++i) out.push_back(testing::served(other ? 2 : 3, 5, row, i));
      }
      dump->add("input_ids", "i64", {1, kRows}, std::vector<double>(kRows, 3));
      dump->add(at + "gate.output", "f32", {kRows, 3}, logits);
      dump->add(at + "gate.output.1", "f32", {kRows, 2}, weights);
      dump->add(at + "gate.output.2", "i64", {kRows, 2}, ids);
      dump->add(at + "experts.output", "f32", {1, kRows, kChannels}, out);
    }
    return diff_of(a, b, {9, {}, nullptr});
  };
  EXPECT_EQ(report_of(9).outstanding, 0U) << "the logits differ there";
  const DiffReport found = report_of(50);
  ASSERT_FALSE(found.differences.empty());
  EXPECT_EQ(found.differences[0].a->name, "model.layers.0.mlp.gate.output.2");
  ASSERT_TRUE(found.differences[0].outstanding);
  EXPECT_EQ(found.differences[0].token, 50);
}

/// Channels are named where the others have the noise of the other rows, and where they are few.
TEST(DiffNumbers, ChannelsAreNamedWhereTheOthersAreNoise) {
  const auto tokens = tokens_of(64);
  const auto channels_of = [&](std::int64_t first, std::int64_t last) {
    Served a;
    Served b;
    a.step(tokens, 0, 64);
    b.step(tokens, 0, 64, noise(1e-4, [=](auto at, auto channel, double value) {
             return at == 9 && channel >= first && channel <= last ? value + 1 : value;
           }));
    const DiffReport report = diff_of(a.dump, b.dump);
    EXPECT_EQ(report.outstanding, 1U);
    return report.outstanding == 1 ? report.differences[0].outstanding->channels : Range{-1, -1};
  };
  EXPECT_EQ(channels_of(3, 4), (Range{3, 4}));
  EXPECT_EQ(channels_of(1, kChannels - 1), std::nullopt) << "all but one";
}

TEST(DiffNumbers, ANanOfOneSideAlone) {
  const auto tokens = tokens_of(16);
  Served a;
  Served b;
  a.step(tokens, 0, 16);
  b.step(tokens, 0, 16, [](auto at, auto channel, double value) {
    return at == 3 && channel == 2 ? std::numeric_limits<double>::quiet_NaN() : value;
  });
  const DiffReport report = diff_of(a.dump, b.dump);
  ASSERT_EQ(report.differences.size(), 1U);
  EXPECT_EQ(report.differences[0].kind, DifferenceKind::not_finite);
  EXPECT_EQ(report.differences[0].token, 3);
  EXPECT_TRUE(report.differences[0].outstanding);
  EXPECT_TRUE(diff_of(b.dump, b.dump).same());
}

/// Of four rows no noise is measured. That a number is missing says more than that one is off.
TEST(DiffNumbers, ANanIsNamedBeforeWhatIsOff) {
  const auto tokens = tokens_of(4);
  Served a;
  Served b;
  a.step(tokens, 0, 4);
  b.step(tokens, 0, 4, [](auto at, auto channel, double value) {
    if (at == 3 && channel == 2) return std::numeric_limits<double>::quiet_NaN();
    return at == 1 ? value + 1 : value;
  });
  const DiffReport report = diff_of(a.dump, b.dump);
  ASSERT_EQ(report.differences.size(), 1U);
  EXPECT_EQ(report.differences[0].kind, DifferenceKind::not_finite);
  EXPECT_EQ(report.differences[0].token, 3);
}

TEST(Chances, TailsAreThoseOfTables) {
  EXPECT_NEAR(align::student_tail(6.313752, 1), 0.05, 1e-6);
  EXPECT_NEAR(align::student_tail(2.763769, 10), 0.01, 1e-6);
  EXPECT_NEAR(align::student_tail(4.753424, 1e6), 1e-6, 2e-8);
  EXPECT_EQ(align::student_tail(-1, 3), 1);
}

/// The quantiles of a normal distribution with a deviation of 2 about 7; its third quartile is 0.6745 deviations off.
TEST(Chances, ADeviationIsThatOfANormalDistribution) {
  std::vector<double> numbers;
  for (const double at : {-1.2816, -0.8416, -0.6745, -0.5244, 0.0, 0.5244, 0.6745, 0.8416, 1.2816})
    numbers.push_back(7 + 2 * at);
  const align::Robust found = align::robust(numbers);
  EXPECT_NEAR(found.median, 7, 1e-9);
  EXPECT_NEAR(found.deviation, 2, 1e-3);
  EXPECT_NEAR(found.freedom, 0.37 * 8, 1e-9) << "the efficiency of the median absolute deviation";
}

/// Numbers of a normal distribution are accused in less than one of 10^6 cases.
TEST(Chances, HealthyRowsAreNotAccused) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  int accused = 0;
  for (int run = 0; run < 400; ++run) {
    std::vector<double> numbers(50);
    for (double& number : numbers) number = normal(random);
    const align::Robust found = align::robust(numbers);
    for (const double number : numbers) {
      accused += align::student_tail((number - found.median) / found.deviation, found.freedom) < align::kChance ? 1 : 0;
    }
  }
  EXPECT_EQ(accused, 0);
}

TEST(Patterns, PeriodsPhasesAndEdges) {
  std::vector<std::int64_t> all(4096);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const auto text_of = [&](const std::function<bool(std::int64_t)>& is_marked) {
    std::vector<std::int64_t> marked;
    for (const std::int64_t at : all) {
      if (is_marked(at)) marked.push_back(at);
    }
    const auto found = align::find_pattern(all, marked);
    return found ? text(*found) : std::string();
  };
  EXPECT_EQ(text_of([](auto at) { return at % 32 == 5; }), "every 32nd, phase 5");
  EXPECT_EQ(text_of([](auto at) { return at % 256 == 0 || at % 256 == 255; }), "every 256th, phase 0, 255");
  EXPECT_EQ(text_of([](auto at) { return at >= 2048; }), "from 2048 on");
  EXPECT_EQ(text_of([](auto at) { return at >= 96 && at < 128; }), "from 96 to 127");
  EXPECT_EQ(text_of([](auto at) { return at == 7 || at == 1000 || at == 1717 || at == 3001; }), "");
  EXPECT_EQ(text_of([](auto) { return true; }), "");
}

}  // namespace
}  // namespace nanscope
