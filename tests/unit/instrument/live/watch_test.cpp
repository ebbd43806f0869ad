#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
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

/// As Reading counts them.
constexpr Format kFormats[] = {Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::e5m2};

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

/// NaN as arithmetic and constants have them (PTX ISA, "Floating-point instructions"; IEEE 754's quiet bit).
bool made_nan(Format format, std::uint32_t code) {
  const std::map<Format, std::set<std::uint32_t>> codes = {{Format::f32, {0x7fffffff, 0x7fc00000, 0xffc00000}},
                                                           {Format::f16, {0x7fff, 0x7e00, 0xfe00}},
                                                           {Format::bf16, {0x7fff, 0x7fc0, 0xffc0}},
                                                           {Format::e4m3, {0x7f}},
                                                           {Format::e5m2, {0x7f, 0x7e, 0xfe}}};
  return codes.at(format).contains(code);
}

/// Counted by decoding each code with the project's codec, which shares nothing with the scan.
FormatCounts counted(Format format, std::span<const std::uint32_t> words) {
  constexpr std::uint64_t kDigits[] = {8, 5, 8, 4, 5};  // of the exponent, in the order of kFormats
  FormatCounts expected;
  const std::size_t width = info(format).storage_bytes();
  const std::uint64_t digits = kDigits[std::find(std::begin(kFormats), std::end(kFormats), format) - kFormats];
  const int bias = (1 << (digits - 1)) - 1;
  for (std::size_t at = 0; at < 4 * words.size(); at += width) {
    std::uint32_t code = 0;
    std::memcpy(&code, reinterpret_cast<const char*>(words.data()) + at, width);
    const float value = decode(format, code);
    LaneCounts& lane = expected.lanes[width == 4 ? 0 : at / width % 2];
    lane.nan += std::isnan(value);
    lane.payload_nan += std::isnan(value) && !made_nan(format, code);
    lane.pos_inf += std::isinf(value) && value > 0;
    if (!std::isfinite(value) || value == 0) continue;
    const auto exponent = static_cast<std::uint64_t>(std::max(0, std::ilogb(value) + bias));
    ++lane.finite;
    lane.exponents += exponent;
    lane.exponent_squares += exponent * exponent;
    expected.highest = std::max(expected.highest, exponent);
  }
  return expected;
}

TEST(FormatScan, CountsWhatTheCodecDecodes) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> words(4096);
  for (auto& word : words) {
    word = static_cast<std::uint32_t>(random());
    if (random() % 4 == 0) word |= 0x7f80ff80U;
    if (random() % 16 == 0) word = random() % 2 == 0 ? 0x7fff7e00U : 0x7fffffffU;
    if (random() % 16 == 0) word = random() % 2 == 0 ? 0x7f807c00U : 0xffc0fe00U;
    if (random() % 16 == 0) word &= 0xff00ffU;
  }
  const ScanCounts counts = scan_bytes(words.data(), 4 * words.size());
  EXPECT_EQ(counts.words, words.size());
  for (int i = 0; i < kReadings; ++i) {
    const FormatCounts expected = counted(kFormats[i], words);
    EXPECT_EQ(counts.as[i], expected) << name(kFormats[i]);
    EXPECT_GT(expected.nan(), expected.payload_nan()) << name(kFormats[i]);
    EXPECT_GT(expected.payload_nan(), 0U) << name(kFormats[i]);
  }
}

/// bf16 holds the upper half of an f32: widened, its NaN of all ones has zeros behind.
TEST(FormatScan, NanThatWasWidenedIsStillMade) {
  for (const std::uint32_t code : {0x7fff0000U, 0x7fffe000U, 0x7f800000U, 0xffff0000U}) {
    EXPECT_EQ(scan_bytes(&code, 4).as[0].payload_nan(), 0U) << code;
  }
  for (const std::uint32_t code : {0x7f800001U, 0x7fc00001U, 0xffffffffU, 0x7fa00000U}) {
    EXPECT_EQ(scan_bytes(&code, 4).as[0].payload_nan(), 1U) << code;
  }
}

TEST(FormatScan, PartsAddUpAndEveryBytesChangeShows) {
  std::vector<std::uint32_t> words(64);
  for (std::uint32_t i = 0; i < words.size(); ++i) words[i] = i * 2654435761U;
  const ScanCounts whole = scan_bytes(words.data(), 256);
  ScanCounts first;
  ScanCounts second;
  for (std::uint64_t i = 0; i < 64; ++i) add_word(i % 3 == 0 ? first : second, words[i], i);
  const auto add = [](std::uint64_t& into, std::uint64_t part) { into += part; };
  merge_counts(first, second, add, [](std::uint64_t& into, std::uint64_t part) { into = std::max(into, part); });
  EXPECT_EQ(first, whole) << "the order does not show";
  std::swap(words[3], words[4]);
  EXPECT_NE(scan_bytes(words.data(), 256).checksum, whole.checksum) << "places show";
}

TEST(FormatScan, ASecondLookTellsWhatWasWrittenAndOverWhat) {
  std::vector<std::uint32_t> words(2 * kBeginningWords, 0x3f800000U);
  std::vector<std::uint32_t> beginning(kBeginningWords);
  Scan before;
  ScanJob job;
  job.range = {reinterpret_cast<std::uint64_t>(words.data()), 4 * words.size()};
  job.scan = &before;
  job.beginning = beginning.data();
  scan_on_cpu(job);
  EXPECT_EQ(before.all, scan_bytes(words.data(), 4 * words.size()));
  EXPECT_EQ(before.written, ScanCounts());
  words[3] = 0x7fffffffU;
  words[7] = 0x40000000U;
  words[kBeginningWords - 1] = 0x7f800000U;
  words[kBeginningWords] = 0x7fffffffU;  // behind what is kept
  Scan after;
  job.scan = &after;
  job.again = 1;
  scan_on_cpu(job);
  EXPECT_EQ(after.all, scan_bytes(words.data(), 4 * words.size()));
  EXPECT_EQ(after.written.words, 3U);
  EXPECT_EQ(after.written.as[0].nan(), 1U);
  EXPECT_EQ(after.written.as[0].pos_inf(), 1U);
  EXPECT_EQ(after.replaced.words, 3U);
  EXPECT_EQ(after.replaced.as[0].lanes[0].exponents, 3U * 127);
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
  Status scan(std::uint64_t, std::span<const Extent> extents, bool again, std::span<Scan> scans) override {
    if (refuses) return fail("refused");
    ++this->scans;
    clock += cost_ns;
    if (!again) beginnings.resize(extents.size() * kBeginningWords);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      ScanJob job;
      job.range = {extents[i].address, extents[i].bytes};
      job.scan = &scans[i];
      job.beginning = beginnings.data() + i * kBeginningWords;
      job.again = again ? 1 : 0;
      scan_on_cpu(job);
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
  std::vector<std::uint32_t> beginnings;
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
