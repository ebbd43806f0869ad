#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/unit/core/dump/memory_dump.h"

/// -Inf under a name that tells nothing: of a mask, or of a fault.
namespace nanscope {
namespace {

using testing::find_tensor;
using testing::MemoryDump;

constexpr std::int64_t kSize = 8;
constexpr double kHidden = -std::numeric_limits<double>::infinity();
using Values = std::function<double(std::int64_t query, std::int64_t key)>;

double score(std::int64_t query, std::int64_t key) {
  return 0.25 * static_cast<double>((query * 5 + key * 3) % 11 - 5);
}

/// Whether scores of `heads` heads, f16, of these values are taken for masked ones.
bool hides(const Values& value, std::int64_t heads = 1) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < heads * kSize * kSize; ++i) all.push_back(value(i / kSize % kSize, i % kSize));
  MemoryDump dump;
  std::vector<std::int64_t> shape = {kSize, kSize};
  if (heads > 1) shape.insert(shape.begin(), heads);
  dump.add("launch_7_elementwise", "f16", shape, std::move(all));
  const auto run = dump.run();
  const Tensor* tensor = find_tensor(*run, "launch_7_elementwise");
  return tensor != nullptr && tensor->hides;
}

/// Scores with -Inf where `hidden` says so.
Values hidden_where(const std::function<bool(std::int64_t query, std::int64_t key)>& hidden) {
  return [hidden](std::int64_t query, std::int64_t key) { return hidden(query, key) ? kHidden : score(query, key); };
}

TEST(MaskedScores, CausalWindowsAndPaddingAre) {
  const auto causal = [](std::int64_t query, std::int64_t key) { return key > query; };
  EXPECT_TRUE(hides(hidden_where(causal)));
  EXPECT_TRUE(hides(hidden_where(causal), 2)) << "heads one after the other";
  EXPECT_TRUE(hides(hidden_where([](auto query, auto key) { return key > query || key < query - 2; }))) << "a window";
  EXPECT_TRUE(hides(hidden_where([](auto, auto key) { return key < 2; }))) << "padding on the left";
  EXPECT_TRUE(hides(hidden_where([](auto query, auto key) { return key > query || query == 5; })))
      << "a row without a key is the softmax's fault, not this one's";
}

/// A module of an unknown name with modules inside, as DeepSeek-V4's compressor, puts out a mask beside its result.
TEST(MaskedScores, AMaskBesideTheResultOfAModuleIs) {
  for (const double seen : {0.0, 3.0}) {
    std::vector<double> mask;
    for (std::int64_t i = 0; i < kSize * kSize; ++i) mask.push_back(i % kSize > i / kSize ? kHidden : seen);
    MemoryDump dump;
    const std::string at = "model.layers.0.self_attn.compressor.";
    dump.add(at + "input", "f32", {kSize, kSize});
    dump.add(at + "inner.input", "f32", {kSize, kSize});
    dump.add(at + "output.1", "f32", {kSize, kSize}, mask);
    const auto run = dump.run();
    ASSERT_EQ(run->maker(*find_tensor(*run, at + "output.1"))->kind, OpKind::block);
    EXPECT_EQ(find_tensor(*run, at + "output.1")->hides, seen == 0);
  }
}

TEST(MaskedScores, WhatLiesAnywhereIsNot) {
  EXPECT_FALSE(hides(score));
  EXPECT_FALSE(hides(hidden_where([](auto query, auto key) { return (query * 3 + key) % 5 == 0; })));
  EXPECT_FALSE(hides(hidden_where([](auto query, auto key) { return query == 3 && key == 7; }))) << "one, at an edge";
  EXPECT_FALSE(hides(hidden_where([](auto query, auto) { return query == 3; }))) << "a whole row and nothing else";
}

TEST(MaskedScores, WhatOverflowedIsNot) {
  const auto causal = hidden_where([](auto query, auto key) { return key > query; });
  EXPECT_FALSE(hides([&](auto query, auto key) { return query == 7 && key == 0 ? 60000.0 : causal(query, key); }))
      << "near the largest of f16";
  EXPECT_FALSE(hides([&](auto query, auto key) { return query == 7 && key == 0 ? -kHidden : causal(query, key); }));
  EXPECT_FALSE(hides([&](auto query, auto key) {
    return query == 7 && key == 0 ? std::numeric_limits<double>::quiet_NaN() : causal(query, key);
  }));
}

}  // namespace
}  // namespace nanscope
