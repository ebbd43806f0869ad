#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/numbers/codec.h"
#include "instrument/live/format_guess.h"
#include "instrument/live/format_scan.h"
#include "instrument/live/watcher.h"
#include "tests/unit/instrument/live/fake_driver.h"

namespace nanscope::live {
namespace {

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

Sickness sickness_of(const std::vector<std::byte>& bytes) {
  return sickness(view_formats(scan_bytes(bytes.data(), bytes.size())));
}

TEST(FormatGuess, InfIsOfTheElementThatHasAWholeWord) {
  const auto bytes = codes(Format::f32, std::vector<float>(64, std::numeric_limits<float>::infinity()));
  const FormatViews views = view_formats(scan_bytes(bytes.data(), bytes.size()));
  EXPECT_EQ(sickness(views), Sickness::certain) << "its bytes are a NaN of e4m3, at every other place";
  EXPECT_EQ(best_format(views), Format::f32);
}

TEST(FormatGuess, NearTheTopOfF16NothingIsBf16) {
  std::vector<float> values(64, 60000.0F);
  values[7] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sickness_of(codes(Format::f16, values)), Sickness::certain);
}

/// Slots of a cache, one after the other: narrow as bytes of e4m3, among which one is a NaN.
TEST(FormatGuess, IntegersInARowAreNoBytes) {
  std::vector<std::byte> bytes;
  for (std::uint32_t low = 0x50; low < 0x80; ++low) {
    for (const std::uint32_t byte : {low, 0x62U, 0x62U, 0U}) bytes.push_back(static_cast<std::byte>(byte));
  }
  EXPECT_NE(sickness_of(bytes), Sickness::certain);
}

TEST(FormatGuess, BytesThatDifferByTheirPlaceAreNoElements) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes;
  for (int i = 0; i < 200; ++i) {
    bytes.push_back(static_cast<std::byte>(random() % 0x20));
    bytes.push_back(static_cast<std::byte>(i == 77 ? 0x7f : 0x28 + random() % 0x10));
  }
  EXPECT_NE(sickness_of(bytes), Sickness::certain);
}

/// Memory as PyTorch leaves it, of known dtypes: tests/golden/live_buffers/make.py says how it was made.
struct LiveBuffer {
  std::string name;
  std::string dtype;
  std::size_t block = 0;
  std::size_t written = 0;
  std::uint64_t nan = 0;
  std::uint64_t pos_inf = 0;
  std::vector<std::byte> before;
  std::vector<std::byte> after;
};

std::vector<LiveBuffer> live_buffers() {
  const std::string folder = NANSCOPE_SOURCE_DIR "/tests/golden/live_buffers/";
  std::ifstream index(folder + "buffers.txt");
  std::ifstream bytes(folder + "buffers.bin", std::ios::binary);
  const auto read = [&](std::size_t count) {
    std::vector<std::byte> block(count);
    bytes.read(reinterpret_cast<char*>(block.data()), static_cast<std::streamsize>(count));
    return block;
  };
  std::vector<LiveBuffer> all;
  LiveBuffer one;
  while (index >> one.name >> one.dtype >> one.block >> one.written >> one.nan >> one.pos_inf) {
    one.before = read(one.block);
    one.after = read(one.block);
    all.push_back(one);
  }
  EXPECT_TRUE(bytes.good());
  return all;
}

/// What is found when a kernel writes the tensor into the block.
std::optional<Finding> watched(const LiveBuffer& buffer) {
  FakeDriver driver;
  WatchOptions options;
  options.budget = 1;
  Watcher watcher(driver, std::move(options));
  std::vector<std::byte> memory = buffer.before;
  const auto address = reinterpret_cast<std::uint64_t>(memory.data());
  watcher.allocations().add({address, memory.size()});
  Launch launch;
  launch.name = "kernel";
  launch.parameters = [&] { return std::vector<Parameter>{{0, std::as_bytes(std::span(&address, 1))}}; };
  const auto before = watcher.before(launch);
  if (!before) return std::nullopt;
  std::copy(buffer.after.begin(), buffer.after.end(), memory.begin());
  return watcher.after(launch, *before);
}

TEST(LiveBuffers, WhatPyTorchLeavesIsFoundWhereItIsSickAndNowhereElse) {
  const std::vector<LiveBuffer> all = live_buffers();
  EXPECT_GT(all.size(), 40U);
  for (const LiveBuffer& buffer : all) {
    const auto finding = watched(buffer);
    const bool sick = buffer.nan + buffer.pos_inf > 0;
    ASSERT_EQ(finding.has_value(), sick) << buffer.name << (finding ? ": " + sentence(*finding) : "");
    if (!sick) continue;
    EXPECT_EQ(finding->kind, FindingKind::born) << buffer.name;
    EXPECT_EQ(name(finding->format), buffer.dtype) << buffer.name;
    EXPECT_EQ(finding->nan, buffer.nan) << buffer.name;
    EXPECT_EQ(finding->pos_inf, buffer.pos_inf) << buffer.name;
  }
}

LiveBuffer over(std::vector<std::byte> before, const std::vector<std::byte>& written) {
  LiveBuffer buffer;
  buffer.after = before;
  std::copy(written.begin(), written.end(), buffer.after.begin());
  buffer.before = std::move(before);
  return buffer;
}

/// What lies behind the last of an odd number of elements, in its word, was not written.
TEST(LiveBuffers, ANanThatWasThereIsNotFound) {
  const auto before = codes(Format::f16, std::vector<float>(256, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_FALSE(watched(over(before, codes(Format::f16, normal(201, 1, 4)))));
}

TEST(LiveBuffers, WhatLiesBehindIsNoEvidence) {
  const std::vector<std::byte> grey(256, std::byte{127});
  EXPECT_FALSE(watched(over(codes(Format::e4m3, normal(2048, 30, 4)), grey)));
  std::vector<std::byte> integers;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t value = i % 5 == 0 ? 0x7fffffffU : static_cast<std::uint32_t>(100 + i);
    for (int at = 0; at < 4; ++at) integers.push_back(static_cast<std::byte>(value >> (8 * at)));
  }
  EXPECT_FALSE(watched(over(codes(Format::f32, normal(4096, 1, 4)), integers)));
}

/// Four statistics in f32 where f16 were. Half of one is the NaN that arithmetic leaves, which chance makes of 2^14.
TEST(LiveBuffers, HalfOfANumberAmongFourIsNoEvidence) {
  std::vector<std::byte> statistics;
  for (const std::uint32_t value : {0x3f807fffU, 0x3f812345U, 0x3f79abcdU, 0x3f851111U}) {
    for (int at = 0; at < 4; ++at) statistics.push_back(static_cast<std::byte>(value >> (8 * at)));
  }
  EXPECT_FALSE(watched(over(codes(Format::f16, normal(512, 1, 4)), statistics)));
}

/// Beyond what is kept, the whole is judged.
TEST(LiveBuffers, ANanFarBehindIsFound) {
  std::vector<float> values = normal(4 * kBeginningWords, 1, 6);
  values[3 * kBeginningWords] = std::numeric_limits<float>::quiet_NaN();
  const auto finding = watched(over(std::vector<std::byte>(2 * values.size()), codes(Format::f16, values)));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->format, Format::f16);
  EXPECT_EQ(finding->nan, 1U);
}

}  // namespace
}  // namespace nanscope::live
