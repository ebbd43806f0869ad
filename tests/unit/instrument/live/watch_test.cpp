#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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
#include "instrument/live/format_scan.h"
#include "instrument/live/launch.h"
#include "instrument/live/live_options.h"
#include "instrument/live/time_budget.h"
#include "instrument/live/watcher.h"

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

std::vector<std::byte> codes(Format format, std::span<const float> values) {
  std::vector<std::byte> bytes;
  for (const float value : values) {
    const std::uint32_t code = encode(format, value, Overflow::overflow);
    for (std::size_t i = 0; i < info(format).storage_bytes(); ++i)
      bytes.push_back(static_cast<std::byte>(code >> (8 * i)));
  }
  return bytes;
}

std::vector<float> normal(std::size_t count, float sigma, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, sigma);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

/// Counted by decoding each code with the project's codec, which shares nothing with the scan.
TEST(FormatScan, CountsWhatTheCodecDecodes) {
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(4096);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random() % 4 == 0 ? 0xff : random());
  const ScanCounts counts = scan_bytes(bytes.data(), bytes.size());
  constexpr Format kFormats[] = {Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::e5m2};
  for (int i = 0; i < kReadings; ++i) {
    FormatCounts expected;
    const std::size_t width = info(kFormats[i]).storage_bytes();
    for (std::size_t at = 0; at < bytes.size(); at += width) {
      std::uint32_t code = 0;
      std::memcpy(&code, bytes.data() + at, width);
      const float value = decode(kFormats[i], code);
      ++expected.elements;
      expected.nan += std::isnan(value);
      expected.pos_inf += std::isinf(value) && value > 0;
      expected.neg_inf += std::isinf(value) && value < 0;
      expected.zero += value == 0;
    }
    EXPECT_EQ(counts.as[i].elements, expected.elements) << name(kFormats[i]);
    EXPECT_EQ(counts.as[i].nan, expected.nan) << name(kFormats[i]);
    EXPECT_EQ(counts.as[i].pos_inf, expected.pos_inf) << name(kFormats[i]);
    EXPECT_EQ(counts.as[i].neg_inf, expected.neg_inf) << name(kFormats[i]);
    EXPECT_EQ(counts.as[i].zero, expected.zero) << name(kFormats[i]);
    EXPECT_GT(counts.as[i].nan, 0U) << name(kFormats[i]);
  }
}

TEST(FormatScan, PartsAddUpAndEveryBytesChangeShows) {
  std::vector<std::uint32_t> words(64);
  for (std::uint32_t i = 0; i < words.size(); ++i) words[i] = i * 2654435761U;
  const ScanCounts whole = scan_bytes(words.data(), 256);
  ScanCounts first;
  ScanCounts second;
  for (std::uint64_t i = 0; i < 64; ++i) add_word(i % 3 == 0 ? first : second, words[i], i);
  add_counts(first, second);
  EXPECT_EQ(first, whole) << "the order does not show";
  std::swap(words[3], words[4]);
  EXPECT_NE(scan_bytes(words.data(), 256).checksum, whole.checksum) << "places show";
}

TEST(FormatScan, ARangeMayBeginAndEndWithinAWord) {
  const ScanRange range{0x1003, 6};  // bytes 3 of the first word, all of the second, 0 of the third
  ASSERT_EQ(range.words(), 3U);
  EXPECT_EQ(range.first_word() * 4, 0x1000U);
  EXPECT_EQ(range.masked(0xaabbccddU, 0), 0xaa000000U);
  EXPECT_EQ(range.masked(0xaabbccddU, 1), 0xaabbccddU);
  EXPECT_EQ(range.masked(0xaabbccddU, 2), 0x000000ddU);
  EXPECT_EQ((ScanRange{0x1000, 0}.words()), 0U);
}

/// Labels are known by construction: what the values are stored as.
TEST(FormatGuess, ATensorIsPlausibleInItsOwnFormatAndNamedHealthy) {
  for (const float sigma : {0.01F, 1.0F, 60.0F}) {
    for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::e5m2}) {
      if (format == Format::e4m3 && sigma < 1) continue;  // all of it underflows: a scale would lift it
      const auto bytes = codes(format, normal(4096, sigma, 11));
      const FormatViews views = view_formats(scan_bytes(bytes.data(), bytes.size()));
      for (const FormatView& view : views) {
        if (view.format != format) continue;
        EXPECT_TRUE(view.plausible) << name(format) << " sigma " << sigma << " spread " << view.spread;
      }
      EXPECT_NE(sickness(views), Sickness::certain) << name(format) << " sigma " << sigma;
    }
  }
}

TEST(FormatGuess, OneNanOrInfIsCertainInTheFormatItIsIn) {
  for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const std::size_t place : {std::size_t{100}, std::size_t{101}}) {
        std::vector<float> values = normal(4096, 1, 5);
        values[place] = bad;
        const auto bytes = codes(format, values);
        const FormatViews views = view_formats(scan_bytes(bytes.data(), bytes.size()));
        EXPECT_EQ(sickness(views), Sickness::certain) << name(format) << ' ' << bad << " at " << place;
        EXPECT_EQ(best_format(views), format) << name(format) << ' ' << bad << " at " << place;
      }
    }
  }
}

TEST(FormatGuess, AMaskOfMinusInfinityIsNoSickness) {
  std::vector<float> values(1024, 0.0F);
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = -std::numeric_limits<float>::infinity();
  const auto bytes = codes(Format::f32, values);
  EXPECT_NE(sickness(view_formats(scan_bytes(bytes.data(), bytes.size()))), Sickness::certain);
}

TEST(FormatGuess, TextAndZerosAreNotSick) {
  const std::string text = "The keeper of the lighthouse climbs the stairs every evening and lights the lamp, again. ";
  EXPECT_EQ(sickness(view_formats(scan_bytes(text.data(), text.size()))), Sickness::none);
  const std::vector<std::byte> zeros(512);
  EXPECT_EQ(sickness(view_formats(scan_bytes(zeros.data(), zeros.size()))), Sickness::none);
  EXPECT_EQ(sickness(view_formats(ScanCounts{})), Sickness::none);
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

/// Memory of the host, a clock that a test turns, and kernels that a test runs between before() and after().
class FakeDriver final : public LiveDriver {
 public:
  bool capturing(std::uint64_t stream) override { return stream == 13; }
  Status scan(std::uint64_t, std::span<const Extent> extents, std::span<ScanCounts> counts) override {
    if (refuses) return fail("refused");
    ++scans;
    clock += cost_ns;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      counts[i] = scan_bytes(reinterpret_cast<const void*>(extents[i].address), extents[i].bytes);
    }
    return {};
  }
  Status copy(std::uint64_t, std::uint64_t address, std::span<std::byte> to) override {
    std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    return {};
  }
  std::int64_t now_ns() override { return clock; }

  std::int64_t clock = 0;
  std::int64_t cost_ns = 1000;
  bool refuses = false;
  int scans = 0;
};

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
  const auto finding = launch("gemm", {0, 1}, [&] { put(1, 9, kNan); });
  ASSERT_TRUE(finding);
  ASSERT_EQ(finding->ring.size(), 2U);
  EXPECT_EQ(best_format(finding->ring[0].views), Format::bf16) << "by itself";
  EXPECT_EQ(finding->ring[0].format, Format::f16);
}

TEST_F(Watch, NanThatWasThereBeforeIsCarriedNotBorn) {
  start();
  put(0, 5, kNan);
  const auto finding = launch("softmax", {0, 1}, [&] { put(1, 5, kNan); });
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
    put(2, 3, kNan);
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
  const auto finding = launch("bad", {1}, [&] { put(1, 0, kNan); });
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
