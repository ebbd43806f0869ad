#include "instrument/dump/scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "core/numbers/codec.h"
#include "kernels/device.h"

namespace nanscope {
namespace {

/// What a scan must say, by a plain loop in double.
struct Plain {
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
  std::uint64_t zero = 0;
  std::int64_t first_bad = -1;
  double absmax = 0;
  double sum = 0;
};

Plain plain(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  Plain out;
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isfinite(values[i])) {
      (std::isnan(values[i]) ? out.nan : out.inf) += 1;
      if (out.first_bad < 0) out.first_bad = static_cast<std::int64_t>(i);
      continue;
    }
    out.zero += values[i] == 0 ? 1 : 0;
    out.absmax = std::max(out.absmax, std::abs(values[i]));
    out.sum += values[i];
  }
  return out;
}

void expect_equal(const Health& found, const Plain& expected, std::uint64_t count) {
  EXPECT_EQ(found.count, count);
  EXPECT_EQ(found.nan, expected.nan);
  EXPECT_EQ(found.pos_inf + found.neg_inf, expected.inf);
  EXPECT_EQ(found.zero, expected.zero);
  EXPECT_EQ(found.first_bad, expected.first_bad);
  EXPECT_EQ(double{found.absmax}, expected.absmax);
  EXPECT_NEAR(found.sum, expected.sum, 1e-6 * (1 + std::abs(expected.sum)));
}

class Scan : public testing::Test {
 protected:
  static DumpTensor tensor(const char* dtype, std::vector<std::int64_t> shape) {
    DumpTensor made;
    made.name = dtype;
    made.dtype = find_dtype(dtype);
    made.format = made.dtype->format;
    made.shape = std::move(shape);
    return made;
  }
  Health whole(const DumpTensor& made, std::span<const std::byte> bytes) {
    std::size_t done = 0;
    DumpTensor scanned = made;
    DumpTensor* const one = &scanned;
    const auto unscanned =
        scan_tensors({&one, 1},
                     [&](std::size_t) -> Result<TensorBytes> {
                       return TensorBytes{bytes, {}};
                     },
                     {.threads = 3, .done = [&done](std::size_t more) { done += more; }, .stop = {}, .sums = {}});
    EXPECT_TRUE(unscanned && unscanned->empty());
    EXPECT_EQ(done, bytes.size());
    return scanned.health;
  }
  std::unique_ptr<kernels::Device> device_ = kernels::make_cpu_device().value();
};

/// More elements than a piece holds, and a row that no tile divides; the bad ones stand in the last piece.
TEST_F(Scan, GoesOverPiecesAndTheirEnds) {
  const std::int64_t rows = 8193;
  const std::int64_t channels = 2051;
  std::vector<std::byte> codes(static_cast<std::size_t>(rows * channels));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 37 % 0x7e);
  codes[codes.size() - 5] = std::byte{0x7f};
  std::vector<double> values(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i)
    values[i] = double{decode(Format::e4m3, std::to_integer<std::uint32_t>(codes[i]))};
  const DumpTensor made = tensor("e4m3", {rows, channels});
  expect_equal(whole(made, codes), plain(values, 0, values.size()), codes.size());
  const Result<std::vector<Health>> found = scan_rows(*device_, made, codes);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), static_cast<std::size_t>(rows));
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{5000}, rows - 1}) {
    const auto begin = static_cast<std::size_t>(row * channels);
    expect_equal((*found)[static_cast<std::size_t>(row)],
                 plain(values, begin, begin + static_cast<std::size_t>(channels)),
                 static_cast<std::uint64_t>(channels));
  }
}

/// Files put tensors at any offset.
TEST_F(Scan, ReadsBytesThatAreNotAligned) {
  const std::vector<float> floats = {1, -3, 0, std::numeric_limits<float>::infinity(), 2, NAN, 0.5F};
  std::vector<std::byte> bytes(floats.size() * sizeof(float) + 1);
  std::memcpy(bytes.data() + 1, floats.data(), floats.size() * sizeof(float));
  const std::vector<double> values(floats.begin(), floats.end());
  expect_equal(whole(tensor("f32", {1, 7}), std::span(bytes).subspan(1)), plain(values, 0, 7), 7);
}

/// A finite f64 that f32 cannot hold is no infinity.
TEST_F(Scan, KeepsLargeDoublesFinite) {
  const std::vector<double> doubles = {1e300, -2, INFINITY, NAN, -1e300};
  const auto bytes = std::as_bytes(std::span(doubles));
  const Health found = whole(tensor("f64", {5}), bytes);
  EXPECT_EQ(found.nan, 1U);
  EXPECT_EQ(found.pos_inf, 1U);
  EXPECT_EQ(found.neg_inf, 0U);
  EXPECT_EQ(found.first_bad, 2);
  EXPECT_EQ(found.absmax, std::numeric_limits<float>::max());
}

TEST_F(Scan, CountsIntegersAndStopsWhenAsked) {
  const std::vector<std::int64_t> ids = {0, 1, 2};
  EXPECT_EQ(whole(tensor("i64", {3}), std::as_bytes(std::span(ids))).count, 3U);
  std::stop_source stop;
  stop.request_stop();
  const std::vector<float> floats(64);
  DumpTensor made = tensor("f32", {64});
  DumpTensor* const one = &made;
  const FetchTensor fetch = [&](std::size_t) -> Result<TensorBytes> {
    return TensorBytes{std::as_bytes(std::span(floats)), {}};
  };
  EXPECT_TRUE(scan_tensors({&one, 1}, fetch));
  EXPECT_FALSE(scan_tensors({&one, 1}, fetch, {.threads = 1, .done = {}, .stop = stop.get_token(), .sums = {}}));
}

TEST_F(Scan, TakesSumsWhereTheyAreWanted) {
  const std::vector<float> floats(3000, 0.5F);
  std::vector<DumpTensor> made = {tensor("f32", {3000}), tensor("f32", {3000})};
  const std::vector<DumpTensor*> both = {&made[0], &made[1]};
  const FetchTensor fetch = [&](std::size_t) -> Result<TensorBytes> {
    return TensorBytes{std::as_bytes(std::span(floats)), {}};
  };
  ScanOptions options;
  options.sums = [&](const DumpTensor& one) { return &one == &made[1]; };
  ASSERT_TRUE(scan_tensors(both, fetch, options));
  EXPECT_TRUE(std::isnan(made[0].health.sum));
  EXPECT_TRUE(std::isnan(made[0].health.sum_sq));
  EXPECT_EQ(made[0].health.absmax, 0.5F);
  EXPECT_EQ(made[1].health.sum, 1500.0);
  EXPECT_EQ(made[1].health.sum_sq, 750.0);
}

/// Threads change nothing, and a tensor that cannot be had is named, not fatal.
TEST_F(Scan, SharesManyTensorsAmongThreads) {
  std::vector<std::vector<float>> values(40);
  std::vector<DumpTensor> tensors;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i].assign(1 + i * i * 700, 0.25F + static_cast<float>(i));
    values[i].back() = i % 3 == 0 ? NAN : 1e-3F;
    tensors.push_back(tensor("f32", {static_cast<std::int64_t>(values[i].size())}));
  }
  const FetchTensor fetch = [&](std::size_t i) -> Result<TensorBytes> {
    if (i % 16 == 5) return fail("a damaged member");
    return TensorBytes{std::as_bytes(std::span(values[i])), {}};
  };
  std::vector<std::vector<DumpTensor>> scanned;
  for (const int threads : {1, 2, 5}) {
    scanned.push_back(tensors);
    std::vector<DumpTensor*> all;
    for (DumpTensor& one : scanned.back()) all.push_back(&one);
    const auto unscanned = scan_tensors(all, fetch, {.threads = threads, .done = {}, .stop = {}, .sums = {}});
    ASSERT_TRUE(unscanned);
    ASSERT_EQ(unscanned->size(), 3U);
    EXPECT_EQ((*unscanned)[1].index, 21U);
    EXPECT_EQ((*unscanned)[1].reason, "a damaged member");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i % 16 == 5) continue;
    EXPECT_EQ(scanned[0][i].health.nan, i % 3 == 0 ? 1U : 0U);
    EXPECT_EQ(scanned[0][i].health.count, values[i].size());
    for (const auto& other : {scanned[1], scanned[2]}) {
      EXPECT_EQ(std::memcmp(&other[i].health, &scanned[0][i].health, sizeof(Health)), 0);
    }
  }
}

}  // namespace
}  // namespace nanscope
