// Loads and stores of every length, with guards around what is written; views of every format against
// the scalar codec.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/numbers/codec.h"
#include "tests/unit/kernels/warp/warp_lanes.h"

namespace nanscope::kernels::test_warp_memory {
namespace {

constexpr std::size_t kWarp = 32;
constexpr std::size_t kGuard = 8;

std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return state >> 32;
}

/// What a load of n elements must give in all lanes, and a store of them in memory, guards included.
template <class Stored, class Lane>
void expect_moves(const std::vector<Stored>& from, std::int64_t n, Lane fill, const std::vector<Lane>& lanes,
                  const std::vector<Stored>& to, Stored untouched, const char* build) {
  for (std::size_t i = 0; i < kWarp; ++i) {
    const bool inside = static_cast<std::int64_t>(i) < n;
    EXPECT_EQ(lanes[i], inside ? static_cast<Lane>(from[i]) : fill) << build << " n " << n << " lane " << i;
    EXPECT_EQ(to[i], inside ? from[i] : untouched) << build << " n " << n << " element " << i;
  }
  for (std::size_t i = kWarp; i < to.size(); ++i) EXPECT_EQ(to[i], untouched) << build << " n " << n;
}

/// Exactly as long as what may be read: a sanitizer sees an access beyond.
template <class Stored>
std::vector<Stored> source(std::int64_t n) {
  std::vector<Stored> from(static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, 32)));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<Stored>(i * 7 + 3);
  return from;
}

TEST(WarpMemory, EveryLengthReadsAndWritesOnlyItsElements) {
  for (const WarpBuild& build : warp_builds()) {
    for (std::int64_t n = -1; n <= 34; ++n) {
      const auto f32 = source<float>(n);
      std::vector<float> lanes(kWarp);
      std::vector<float> to(kWarp + kGuard, -1.0F);
      build.table->load_store_f32(f32.data(), n, 99.0F, lanes.data(), to.data());
      expect_moves(f32, n, 99.0F, lanes, to, -1.0F, build.name);

      const auto u16 = source<std::uint16_t>(n);
      std::vector<std::uint32_t> words(kWarp);
      std::vector<std::uint16_t> to16(kWarp + kGuard, 0xeeee);
      build.table->load_store_u16(u16.data(), n, words.data(), to16.data());
      expect_moves<std::uint16_t, std::uint32_t>(u16, n, 0, words, to16, 0xeeee, build.name);

      const auto u8 = source<std::uint8_t>(n);
      std::vector<std::uint8_t> to8(kWarp + kGuard, 0xee);
      build.table->load_store_u8(u8.data(), n, words.data(), to8.data());
      expect_moves<std::uint8_t, std::uint32_t>(u8, n, 0, words, to8, 0xee, build.name);
    }
  }
}

TEST(WarpMemory, ComputedNanIsStoredCanonical) {
  for (const WarpBuild& build : warp_builds()) {
    std::vector<float> from(kWarp, std::bit_cast<float>(0xffc01234U));
    std::vector<float> lanes(kWarp);
    std::vector<float> to(kWarp);
    build.table->load_store_f32(from.data(), 32, 0.0F, lanes.data(), to.data());
    EXPECT_EQ(std::bit_cast<std::uint32_t>(lanes[3]), 0xffc01234U) << "a raw store keeps the payload";
    EXPECT_EQ(std::bit_cast<std::uint32_t>(to[3]), 0x7fffffffU);
  }
}

TEST(WarpMemory, ByteStreamsSkipTheGapsBetweenRows) {
  std::uint64_t state = 9;
  for (const std::int64_t row_bytes : {1, 6, 8, 100, 255, 256, 257, 1000}) {
    for (const std::int64_t gap : {0, 3}) {
      const std::int64_t rows = 1500 / row_bytes + 1;
      const std::int64_t total = rows * row_bytes;
      std::vector<std::uint8_t> memory(static_cast<std::size_t>(rows * (row_bytes + gap) - gap));
      for (auto& byte : memory) byte = static_cast<std::uint8_t>(next_random(state));
      std::vector<std::uint8_t> stream;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto first = memory.begin() + row * (row_bytes + gap);
        stream.insert(stream.end(), first, first + row_bytes);
      }
      stream.resize(stream.size() + 256);  // zeros beyond the end
      for (const WarpBuild& build : warp_builds()) {
        for (std::int64_t offset = 0; offset < total; offset += 256) {
          std::uint64_t found[kWarp];
          build.table->load_bytes(memory.data(), offset, total, row_bytes, row_bytes + gap, found);
          ASSERT_EQ(std::memcmp(found, stream.data() + offset, sizeof(found)), 0)
              << build.name << " row bytes " << row_bytes << " gap " << gap << " offset " << offset;
        }
      }
    }
  }
}

TEST(WarpMemory, GatherReadsOnlyWantedLanes) {
  const std::vector<float> base = {10, 11, 12, 13};
  for (const WarpBuild& build : warp_builds()) {
    std::int32_t index[kWarp];
    float wanted[kWarp];
    float out[kWarp];
    for (std::size_t i = 0; i < kWarp; ++i) {
      wanted[i] = i % 3 == 0 ? 1.0F : 0.0F;
      index[i] = i % 3 == 0 ? static_cast<std::int32_t>(i % 4) : 1 << 30;
    }
    build.table->gather(base.data(), index, wanted, out);
    for (std::size_t i = 0; i < kWarp; ++i) EXPECT_EQ(out[i], i % 3 == 0 ? base[i % 4] : 0.0F);
  }
}

TEST(WarpMemory, ViewsDecodeEveryCodeOfEveryFormat) {
  for (const FormatInfo& format : formats()) {
    if (format.bits > 16) continue;
    const auto codes = std::size_t{1} << format.bits;
    const std::size_t bytes = format.storage_bytes();
    const std::size_t columns = std::min<std::size_t>(codes, 200);  // ragged rows
    std::vector<std::uint8_t> memory((codes + columns) * bytes);
    for (std::size_t code = 0; code < codes; ++code) std::memcpy(memory.data() + code * bytes, &code, bytes);
    TensorView view{memory.data(), format.format, static_cast<std::int64_t>(codes / columns),
                    static_cast<std::int64_t>(columns), static_cast<std::int64_t>(columns)};
    for (const WarpBuild& build : warp_builds()) {
      for (std::int64_t row = 0; row < view.rows; ++row) {
        for (std::int64_t column = 0; column < view.columns; column += 32) {
          float found[kWarp];
          build.table->load_view(view, row, column, -7.0F, found);
          for (std::int64_t i = 0; i < 32; ++i) {
            const bool inside = column + i < view.columns;
            const auto code = static_cast<std::uint32_t>(row * view.columns + column + i);
            const float expected = inside ? decode(format.format, code) : -7.0F;
            ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected))
                << build.name << " " << format.name << " code " << code;
          }
        }
      }
    }
  }
}

TEST(WarpMemory, ViewsStoreRoundedAndLanesEncode) {
  std::uint64_t state = 21;
  for (const WarpBuild& build : warp_builds()) {
    for (int round = 0; round < 400; ++round) {
      float values[kWarp];
      for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(next_random(state)));
      for (const Format format : {Format::f32, Format::f16, Format::bf16}) {
        const auto bytes = static_cast<std::size_t>(storage_size(format));
        std::vector<std::uint8_t> memory(40 * bytes, 0xee);
        build.table->store_view({memory.data(), format, 1, 29, 29}, 0, 0, values);
        for (std::size_t i = 0; i < 40; ++i) {
          std::uint32_t code = 0;
          std::memcpy(&code, memory.data() + i * bytes, bytes);
          const std::uint32_t guard = bytes == 4 ? 0xeeeeeeeeU : 0xeeeeU;
          ASSERT_EQ(code, i < 29 ? nanscope::encode(format, values[i], Overflow::overflow) : guard) << build.name;
        }
      }
      for (const FormatInfo& format : formats()) {
        for (const Overflow overflow : {Overflow::saturate, Overflow::overflow}) {
          std::uint32_t codes[kWarp];
          build.table->encode(format.format, values, overflow, codes);
          for (std::size_t i = 0; i < kWarp; ++i) {
            ASSERT_EQ(codes[i], nanscope::encode(format.format, values[i], overflow))
                << build.name << " " << format.name << " " << values[i];
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace nanscope::kernels::test_warp_memory
