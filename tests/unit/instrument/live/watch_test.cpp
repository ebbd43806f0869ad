#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/numbers/codec.h"
#include "instrument/live/allocation_map.h"
#include "instrument/live/format_guess.h"
#include "instrument/live/launch.h"
#include "instrument/live/live_options.h"
#include "instrument/live/time_budget.h"
#include "instrument/live/watcher.h"
#include "tests/unit/instrument/live/fake_driver.h"

namespace nanscope::live {
namespace {

using ::testing::HasSubstr;

TEST(AllocationMap, FindsWhatHoldsAnAddress) {
  AllocationMap map;
  map.add({0x1000, 0x100});
  map.add({0x2000, 0x10});
  EXPECT_FALSE(map.find(0xfff));
  EXPECT_EQ(map.find(0x1000), (Extent{0x1000, 0x100}));
  EXPECT_EQ(map.find(0x10ff), (Extent{0x1000, 0x100}));
  EXPECT_FALSE(map.find(0x1100)) << "the byte behind it";
  EXPECT_EQ(map.find(0x200f), (Extent{0x2000, 0x10}));
  EXPECT_EQ(map.bytes(), 0x110U);
  map.remove(0x1000);
  map.remove(0x2001);
  EXPECT_FALSE(map.find(0x1010));
  EXPECT_EQ(map.bytes(), 0x10U) << "an address within one frees nothing";
}

TEST(AllocationMap, AnAllocationReplacesThoseWhoseEndWasNotSeen) {
  AllocationMap map;
  map.add({0x1000, 0x100});
  map.add({0x1100, 0x100});
  map.add({0x1200, 0x100});
  map.add({0x1080, 0x100});
  EXPECT_FALSE(map.find(0x1000));
  EXPECT_EQ(map.find(0x1100), (Extent{0x1080, 0x100}));
  EXPECT_EQ(map.find(0x1200), (Extent{0x1200, 0x100}));
  EXPECT_EQ(map.bytes(), 0x200U);
  map.remove_range({0x1000, 0x10000});
  EXPECT_EQ(map.size(), 0U);
  map.add({std::numeric_limits<std::uint64_t>::max() - 4, 16});
  EXPECT_EQ(map.size(), 0U) << "beyond all addresses";
}

TEST(AllocationMap, PiecesOfACachingAllocatorEndWhereTheNextBegins) {
  AllocationMap map;
  map.add({0x1000, 0x1000});
  EXPECT_EQ(map.piece(0x1000), (Extent{0x1000, 0x1000}));
  EXPECT_EQ(map.piece(0x1800), (Extent{0x1800, 0x800}));
  EXPECT_EQ(map.piece(0x1000), (Extent{0x1000, 0x800})) << "now it is known where it ends";
  EXPECT_FALSE(map.piece(0x2000));
}

TEST(TimeBudget, NothingBeginsThatWouldGoBeyondIt) {
  TimeBudget budget(0.05, 0);
  EXPECT_FALSE(budget.allows(1'000'000, 0)) << "5 % of 1 ms is less than the first look may take";
  EXPECT_TRUE(budget.allows(10'000'000, 0));
  budget.spend(400'000, 0);
  EXPECT_FALSE(budget.allows(10'000'000, 0));
  EXPECT_FALSE(budget.allows(15'000'000, 0)) << "it took longer than was thought: 0.4 + 0.4 ms of 15";
  EXPECT_TRUE(budget.allows(17'000'000, 0));
  EXPECT_FALSE(budget.allows(17'000'000, 1'000'000'000)) << "a gigabyte takes longer";
  EXPECT_DOUBLE_EQ(budget.share_spent(8'000'000), 0.05);
  EXPECT_TRUE(TimeBudget(1, 0).allows(0, 1'000'000'000)) << "no limit";
  EXPECT_FALSE(TimeBudget(0, 0).allows(1'000'000'000'000, 1));
}

TEST(TimeBudget, ItIsKeptOverALongRunWhateverItCosts) {
  TimeBudget budget(0.05, 0);
  std::mt19937 random(3);
  std::int64_t now = 0;
  std::int64_t looks = 0;
  for (int i = 0; i < 20000; ++i) {
    now += 20'000;
    if (!budget.allows(now, 1 << 20)) continue;
    const auto cost = static_cast<std::int64_t>(50'000 + random() % 400'000);
    budget.spend(cost, 1 << 20);
    now += cost;
    ++looks;
  }
  EXPECT_GT(looks, 20);
  EXPECT_LE(budget.share_spent(now), 0.05);
}

TEST(Launch, PointersAreFoundInParametersAndInStructsOfThem) {
  AllocationMap map;
  map.add({0x10000, 0x1000});
  const std::uint64_t alone = 0x10000;
  struct {
    float scale = 1;
    std::uint64_t pointers[2] = {0x10800, 0x90000};
  } packed;
  const int small = 0x10000;
  const std::vector<Parameter> parameters = {{0, std::as_bytes(std::span(&alone, 1))},
                                             {1, std::as_bytes(std::span(&packed, 1))},
                                             {2, std::as_bytes(std::span(&small, 1))},
                                             {3, std::as_bytes(std::span(&alone, 1))}};
  const auto found = pointer_arguments(parameters, map, 0x400);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], (PointerArgument{0, 0, {0x10000, 0x400}})) << "cut at what may be looked at";
  EXPECT_EQ(found[1], (PointerArgument{1, 8, {0x10800, 0x400}}));
  EXPECT_EQ(pointer_arguments(parameters, map, 1 << 20)[0].extent.bytes, 0x800U) << "ends where the other begins";
}

TEST(Launch, ShortNames) {
  EXPECT_EQ(short_name("void at::native::vectorized_elementwise_kernel<4, at::native::Foo<float> >(int, Foo)"),
            "vectorized_elementwise_kernel");
  EXPECT_EQ(short_name("sm90_xmma_gemm_f16f16"), "sm90_xmma_gemm_f16f16");
  EXPECT_EQ(short_name("(anonymous namespace)::softmax_warp(float*)"), "softmax_warp");
  EXPECT_EQ(short_name("triton_poi-fused.1"), "triton_poi_fused_1");
  EXPECT_EQ(short_name(""), "kernel");
}

class Watch : public testing::Test {
 protected:
  static constexpr std::size_t kCount = 256;

  void start(WatchOptions options = {}) {
    options.budget = budget_;
    watcher_ = std::make_unique<Watcher>(driver_, std::move(options));
    for (int i = 0; i < 3; ++i) {
      buffers_[i].assign(codes(Format::f16, normal(kCount, 1, static_cast<unsigned>(i))));
      watcher_->allocations().add({address(i), kCount * 2});
    }
  }
  std::uint64_t address(int buffer) const { return reinterpret_cast<std::uint64_t>(buffers_[buffer].bytes.get()); }

  /// A kernel that is given the buffers, and does `work` between the two looks.
  std::optional<Finding> launch(const std::string& name, const std::vector<int>& buffers,
                                const std::function<void()>& work, std::uint64_t stream = 0) {
    pointers_.clear();
    for (const int buffer : buffers) pointers_.push_back(address(buffer));
    Launch launch;
    launch.number = ++launches_;
    launch.name = name;
    launch.stream = stream;
    launch.parameters = [this] {
      std::vector<Parameter> parameters;
      for (std::size_t i = 0; i < pointers_.size(); ++i) {
        parameters.push_back({static_cast<int>(i), std::as_bytes(std::span(&pointers_[i], 1))});
      }
      return parameters;
    };
    const auto before = watcher_->before(launch);
    work();
    if (!before) return std::nullopt;
    return watcher_->after(launch, *before);
  }
  void put(int buffer, std::size_t at, float value) {
    const auto bytes = codes(Format::f16, std::vector{value});
    std::memcpy(buffers_[buffer].bytes.get() + 2 * at, bytes.data(), 2);
  }

  /// Healthy numbers all over.
  void fill(int buffer) {
    const auto bytes = codes(Format::f16, normal(kCount, 1, 9));
    std::memcpy(buffers_[buffer].bytes.get(), bytes.data(), bytes.size());
  }
  /// So with one other.
  void fill_but(int buffer, std::size_t at, float value) {
    fill(buffer);
    put(buffer, at, value);
  }

  struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    void assign(const std::vector<std::byte>& values) {
      bytes = std::make_unique<std::byte[]>(values.size());
      std::memcpy(bytes.get(), values.data(), values.size());
    }
  };

  FakeDriver driver_;
  double budget_ = 1;
  std::unique_ptr<Watcher> watcher_;
  Buffer buffers_[3];
  std::vector<std::uint64_t> pointers_;
  std::int64_t launches_ = 0;
};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_F(Watch, TheFirstWriterIsNamedWithItsNumbersAndBuffers) {
  start();
  EXPECT_FALSE(launch("norm", {0, 1}, [&] { put(1, 3, 2.0F); }));
  const auto finding = launch("mlp::gemm(float)", {1, 2}, [&] {
    put(2, 7, kInf);
    put(2, 8, kNan);
  });
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, FindingKind::born);
  EXPECT_EQ(finding->launch, 2);
  EXPECT_EQ(finding->kernel, "mlp::gemm(float)");
  EXPECT_EQ(finding->argument, 1);
  EXPECT_EQ(finding->format, Format::f16);
  EXPECT_EQ(finding->elements, kCount);
  EXPECT_EQ(finding->nan, 1U);
  EXPECT_EQ(finding->pos_inf, 1U);
  ASSERT_EQ(finding->ring.size(), 4U);
  EXPECT_EQ(finding->ring[3].kernel, "gemm");
  EXPECT_TRUE(finding->ring[3].written);
  EXPECT_FALSE(finding->ring[2].written) << "an input: nothing in it changed";
  EXPECT_FALSE(launch("softmax", {2, 0}, [&] { put(0, 0, kNan); })) << "what carries it on is no news";
}

TEST_F(Watch, KeptBuffersAreOfTheFindingsFormatWhereTheyMayBe) {
  start();
  for (std::size_t i = 0; i < kCount; ++i) put(0, i, 0.5F + static_cast<float>(i) / 512.0F);  // may be bf16 too
  const auto finding = launch("gemm", {0, 1}, [&] { fill_but(1, 9, kNan); });
  ASSERT_TRUE(finding);
  ASSERT_EQ(finding->ring.size(), 2U);
  EXPECT_EQ(best_format(finding->ring[0].views), Format::bf16) << "by itself";
  EXPECT_EQ(finding->ring[0].format, Format::f16);
}

TEST_F(Watch, NanThatWasThereBeforeIsCarriedNotBorn) {
  start();
  put(0, 5, kNan);
  const auto finding = launch("softmax", {0, 1}, [&] { fill_but(1, 5, kNan); });
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, FindingKind::carried);
  EXPECT_EQ(finding->argument, 0);
  EXPECT_THAT(sentence(*finding), HasSubstr("was not watched"));
}

TEST_F(Watch, ANanThatGoesNowhereIsNoFinding) {
  start();
  put(0, 5, kNan);
  EXPECT_FALSE(launch("attention", {0, 1}, [&] { put(1, 5, 1.0F); })) << "a slot of the cache that nobody reads";
  EXPECT_FALSE(launch("kv_store", {0, 1}, [&] { put(0, 6, 1.0F); })) << "another slot is written";
}

TEST_F(Watch, WhatWasWrittenOverWasNotGiven) {
  start();
  put(1, 5, kNan);
  put(1, 6, kInf);
  EXPECT_FALSE(launch("zero", {1}, [&] { fill(1); })) << "memory is handed out with what it last held";
  put(1, 5, kNan);
  const auto finding = launch("split", {0, 1, 2}, [&] {
    fill(1);
    fill_but(2, 3, kNan);
  });
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, FindingKind::born);
  EXPECT_EQ(finding->argument, 2);
}

TEST_F(Watch, AHealthyRunHasNoFinding) {
  start();
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(launch("k", {0, 1, 2}, [&] { put(i % 3, static_cast<std::size_t>(i), 1.5F); }));
  }
  EXPECT_EQ(watcher_->counts().scanned, 50);
}

TEST_F(Watch, OnlyEveryNthOfTheNamedKernelsIsLookedAt) {
  LiveOptions options;
  options.kernels = "gemm|softmax";
  options.every = 3;
  start(*watch_options(options));
  for (int i = 0; i < 9; ++i) {
    launch("void gemm<4>()", {0}, [] {});
    launch("copy", {0}, [] {});
  }
  EXPECT_EQ(watcher_->counts().launches, 18);
  EXPECT_EQ(watcher_->counts().selected, 9);
  EXPECT_EQ(watcher_->counts().scanned, 3);
  EXPECT_EQ(driver_.scans, 6) << "before and after";
}

TEST_F(Watch, WhatElseItTookIsSpentOfTheBudget) {
  budget_ = 0.05;
  start();
  driver_.clock += 10'000'000'000;
  watcher_->charge(400'000'000);
  launch("within", {0}, [] {});
  EXPECT_EQ(watcher_->counts().scanned, 1);
  watcher_->charge(200'000'000);
  launch("beyond", {0}, [] {});
  EXPECT_EQ(watcher_->counts().scanned, 1);
  EXPECT_EQ(watcher_->counts().over_budget, 1);
}

TEST_F(Watch, BeyondTheBudgetTheDriverIsNotAsked) {
  budget_ = 0;
  start();
  Launch beyond;
  beyond.name = "gemm";
  beyond.stream = 13;  // that is being captured
  beyond.parameters = []() -> std::vector<Parameter> {
    ADD_FAILURE() << "asked for the parameters";
    return {};
  };
  EXPECT_FALSE(watcher_->before(beyond));
  EXPECT_EQ(watcher_->counts().over_budget, 1);
  EXPECT_EQ(watcher_->counts().captured, 0);
}

TEST_F(Watch, WhatCannotBeLookedAtIsCounted) {
  start();
  launch(
      "captured", {0}, [] {}, 13);
  launch("blind", {}, [] {});
  driver_.refuses = true;
  launch("refused", {0}, [] {});
  EXPECT_EQ(watcher_->counts().captured, 1);
  EXPECT_EQ(watcher_->counts().blind, 1);
  EXPECT_EQ(watcher_->counts().failed, 1);
  EXPECT_EQ(watcher_->counts().scanned, 0);
}

TEST_F(Watch, FreedMemoryIsNeverRead) {
  start();
  watcher_->allocations().remove(address(0));
  launch("k", {0}, [] {});
  EXPECT_EQ(watcher_->counts().blind, 1);
  EXPECT_EQ(driver_.scans, 0);
}

/// Threads launch at once, and one place keeps beginnings: what another launch left there is not compared with.
TEST_F(Watch, AnotherLaunchBetweenTheTwoLooksMakesNoFinding) {
  start();
  std::uint64_t pointers[] = {address(0), address(1)};
  Launch launches[2];
  for (int i = 0; i < 2; ++i) {
    launches[i].number = i + 1;
    launches[i].name = "k";
    launches[i].parameters = [&pointers, i] {
      return std::vector<Parameter>{{0, std::as_bytes(std::span(&pointers[i], 1))}};
    };
  }
  put(0, 5, kNan);  // of before
  const auto first = watcher_->before(launches[0]);
  const auto second = watcher_->before(launches[1]);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(watcher_->after(launches[0], *first));
  const auto bytes = codes(Format::f16, normal(kCount, 1, 9));
  std::memcpy(buffers_[1].bytes.get(), bytes.data(), bytes.size());
  put(1, 5, kNan);
  const auto finding = watcher_->after(launches[1], *second);
  ASSERT_TRUE(finding) << "the whole tells";
  EXPECT_EQ(finding->argument, 0);
  EXPECT_EQ(finding->launch, 2);
}

TEST_F(Watch, TheBudgetIsKept) {
  budget_ = 0.05;
  driver_.cost_ns = 300'000;
  start();
  for (int i = 0; i < 2000; ++i) {
    driver_.clock += 100'000;
    launch("k", {0, 1}, [] {});
  }
  EXPECT_GT(watcher_->counts().scanned, 5);
  EXPECT_GT(watcher_->counts().over_budget, 1000);
  EXPECT_LE(watcher_->share_spent(), 0.055);
  const double looked = static_cast<double>(driver_.scans) * static_cast<double>(driver_.cost_ns);
  EXPECT_LE(looked, 0.055 * static_cast<double>(driver_.clock)) << "looks before and after";
}

TEST_F(Watch, TheRingKeepsTheLastBuffers) {
  WatchOptions options;
  options.ring = 3;
  start(std::move(options));
  for (int i = 0; i < 5; ++i) launch("k", {0}, [&] { put(0, 0, static_cast<float>(i)); });
  const auto finding = launch("bad", {1}, [&] { fill_but(1, 0, kNan); });
  ASSERT_TRUE(finding);
  ASSERT_EQ(finding->ring.size(), 3U);
  EXPECT_EQ(finding->ring[0].launch, 4);
  EXPECT_EQ(finding->ring[2].launch, 6);
}

TEST(LiveOptions, AreReadBackFromTheirEnvironment) {
  LiveOptions options;
  options.output = "x.nanscope";
  options.beside = "x.tmp";
  options.watch = true;
  options.kernels = "^gemm";
  options.every = 5;
  options.budget = 0.125;
  options.ring = 2;
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : environment_of(options)) variables[name] = value;
  const auto get = [&](const char* name) { return variables.contains(name) ? variables[name].c_str() : nullptr; };
  const auto read = live_options(get);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->output, options.output);
  EXPECT_EQ(read->beside, options.beside);
  EXPECT_TRUE(read->watch);
  EXPECT_EQ(read->kernels, options.kernels);
  EXPECT_EQ(read->every, 5);
  EXPECT_EQ(read->budget, 0.125);
  EXPECT_EQ(read->ring, 2);
  variables["NANSCOPE_LIVE_BUDGET"] = "5%";
  EXPECT_THAT(live_options(get).error().message,
              HasSubstr("NANSCOPE_LIVE_BUDGET: expected a number from 0 to 1, found '5%'"));
  variables["NANSCOPE_LIVE_BUDGET"] = "0.5";
  variables["NANSCOPE_LIVE_KERNELS"] = "gemm(";
  EXPECT_THAT(live_options(get).error().message, HasSubstr("NANSCOPE_LIVE_KERNELS"));
}

}  // namespace
}  // namespace nanscope::live
