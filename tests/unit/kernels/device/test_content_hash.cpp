// The hash against a plain scalar statement of the same function, and what a hash must do: tell apart.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <set>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops/content_hash.h"

namespace nanscope::kernels {
namespace {

std::uint64_t hash_of(Device& device, const TensorView& view) {
  std::vector<std::uint64_t> chunks(static_cast<std::size_t>(hash_chunks(view)));
  ContentHashArgs args{view, chunks.data()};
  std::uint64_t none = 0;
  if (chunks.empty()) args.chunks = &none;
  const Status launched = device.launch(args);
  EXPECT_TRUE(launched) << (launched ? "" : launched.error().message);
  return combine_hash(chunks, static_cast<std::uint64_t>(hashed_bytes(view)));
}

std::uint64_t hash_bytes(Device& device, std::vector<std::uint8_t>& bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  return hash_of(device, {bytes.data(), Format::e4m3, 1, count, count});
}

std::vector<std::uint8_t> random_bytes(std::size_t count, std::uint64_t state) {
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::uint8_t>(state >> 56);
  }
  return bytes;
}

std::uint64_t scalar_mix(std::uint64_t value) {
  const std::uint64_t h = (value ^ (value >> 32)) * 0xd6e8feb86659fd93U;
  return h ^ (h >> 29);
}

std::uint64_t scalar_chunk(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;
  std::uint64_t total = 0;
  for (std::uint64_t lane = 0; lane < 32; ++lane) {
    const std::uint64_t lane_secret = (2 * lane + 1) * kGolden;
    std::uint64_t sum = lane_secret;
    for (std::uint64_t step = 0; step * 256 < count; ++step) {
      std::uint64_t word = 0;
      const std::size_t at = step * 256 + lane * 8;
      if (at < count) std::memcpy(&word, bytes + at, std::min<std::size_t>(8, count - at));
      const std::uint64_t keyed = word ^ (lane_secret + step * 64 * kGolden);
      sum += (keyed & 0xffffffffU) * (keyed >> 32) + std::rotl(word, 32);
    }
    total += scalar_mix(scalar_mix(sum ^ (lane_secret >> 7)) + lane_secret);
  }
  return total;
}

std::vector<std::unique_ptr<Device>> devices() {
  std::vector<std::unique_ptr<Device>> list;
  for (const char* name : {"cpu:baseline", "cpu:avx2", "cpu:avx512"}) {
    auto device = make_device(name, 2);
    if (device) list.push_back(std::move(*device));
  }
  return list;
}

TEST(ContentHash, IsItsScalarDefinition) {
  for (const auto& device : devices()) {
    for (const std::size_t count : {0U, 1U, 7U, 8U, 255U, 256U, 257U, 8191U, 8192U, 8193U, 40000U}) {
      std::vector<std::uint8_t> bytes = random_bytes(count, count);
      std::vector<std::uint64_t> chunks;
      for (std::size_t at = 0; at < count; at += 8192) {
        chunks.push_back(scalar_chunk(bytes.data() + at, std::min<std::size_t>(8192, count - at)));
      }
      bytes.reserve(1);
      std::uint8_t none = 0;
      const TensorView view{bytes.empty() ? &none : bytes.data(), Format::e4m3, 1, static_cast<std::int64_t>(count),
                            static_cast<std::int64_t>(count)};
      EXPECT_EQ(hash_of(*device, view), combine_hash(chunks, count)) << device->info().isa << " " << count << " bytes";
    }
  }
}

TEST(ContentHash, GapsBetweenRowsDoNotCount) {
  for (const auto& device : devices()) {
    std::vector<std::uint8_t> dense = random_bytes(2 * 37 * 500, 4);
    std::vector<std::uint8_t> gaps(2 * 40 * 500, 0xab);
    for (std::size_t row = 0; row < 500; ++row) std::memcpy(gaps.data() + row * 80, dense.data() + row * 74, 74);
    EXPECT_EQ(hash_of(*device, {dense.data(), Format::bf16, 500, 37, 37}),
              hash_of(*device, {gaps.data(), Format::bf16, 500, 37, 40}));
  }
}

TEST(ContentHash, EveryBitOfInputTurnsHalfTheOutput) {
  const auto device = std::move(devices().back());
  std::vector<std::uint8_t> bytes = random_bytes(1024, 6);
  const std::uint64_t before = hash_bytes(*device, bytes);
  std::vector<int> flips(64);
  int total = 0;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    const std::uint64_t changed = before ^ hash_bytes(*device, bytes);
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    ASSERT_GT(std::popcount(changed), 8) << "input bit " << bit;
    total += std::popcount(changed);
    for (std::size_t i = 0; i < 64; ++i) flips[i] += static_cast<int>(changed >> i & 1);
  }
  const auto inputs = static_cast<double>(bytes.size() * 8);
  EXPECT_NEAR(total / inputs, 32.0, 0.5);
  for (const int times : flips) EXPECT_NEAR(times / inputs, 0.5, 0.05);
}

TEST(ContentHash, SimilarContentsDiffer) {
  const auto device = std::move(devices().back());
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  const auto add = [&](std::vector<std::uint8_t> bytes) {
    seen.insert(hash_bytes(*device, bytes));
    ++made;
  };
  std::vector<std::uint8_t> bytes = random_bytes(16384, 8);
  add(bytes);
  // Two words change places: in a step, in a lane, across chunks.
  for (std::size_t a = 0; a < 2048; a += 7) {
    for (const std::size_t b : {a + 1, a + 32, a + 64, a + 1024}) {
      if (b >= 2048) continue;
      std::vector<std::uint8_t> swapped = bytes;
      const auto word = [&](std::size_t index) { return swapped.begin() + static_cast<std::ptrdiff_t>(index * 8); };
      std::swap_ranges(word(a), word(a + 1), word(b));
      add(std::move(swapped));
    }
  }
  EXPECT_EQ(seen.size(), made);

  seen.clear();
  made = 0;
  for (std::size_t length = 1; length < 600; ++length) add(std::vector<std::uint8_t>(length, 0));  // zeros, by length
  for (std::size_t value = 1; value < 256; ++value)
    add(std::vector<std::uint8_t>(512, static_cast<std::uint8_t>(value)));
  for (std::size_t at = 0; at < 16384; at += 3) {
    std::vector<std::uint8_t> one(16384, 0);
    one[at] = 1;
    add(std::move(one));
  }
  EXPECT_EQ(seen.size(), made);
}

TEST(ContentHash, SignedZerosAndNanPayloadsAreContents) {
  const auto device = std::move(devices().back());
  std::vector<std::uint32_t> values = {0x00000000U, 0x80000000U, 0x7fc00000U, 0x7fc00001U, 0xffc00000U};
  std::set<std::uint64_t> seen;
  for (std::uint32_t& value : values) seen.insert(hash_of(*device, {&value, Format::f32, 1, 1, 1}));
  EXPECT_EQ(seen.size(), values.size());
}

}  // namespace
}  // namespace nanscope::kernels
