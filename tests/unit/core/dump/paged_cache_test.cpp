#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/numbers/codec.h"
#include "tests/unit/core/dump/memory_dump.h"

namespace nanscope {
namespace {

using testing::MemoryDump;

constexpr std::int64_t kHeads = 2;  // as many as halves of a cache
constexpr std::int64_t kWidth = 4;
constexpr std::int64_t kBlock = 8;
constexpr std::int64_t kBlocks = 5;
constexpr std::int64_t kChannels = kHeads * kWidth;
/// Two sequences, of 10 and of 3 rows, and their blocks.
constexpr std::array<std::int64_t, 2> kLengths = {10, 3};
constexpr std::array<std::array<std::int64_t, 2>, 2> kTable = {{{3, 1}, {4, -1}}};
constexpr std::int64_t kRows = 13;

std::int64_t slot_of(std::int64_t row) {
  const std::size_t sequence = row < kLengths[0] ? 0 : 1;
  const std::int64_t position = sequence == 0 ? row : row - kLengths[0];
  return kTable[sequence][static_cast<std::size_t>(position / kBlock)] * kBlock + position % kBlock;
}

/// Element of K (0) or V (1) in a pool of shape (blocks, heads, slots, 2 width), or (blocks, slots, heads, 2 width).
using Place = std::int64_t (*)(int half, std::int64_t slot, std::int64_t head, std::int64_t channel);

std::int64_t beside(int half, std::int64_t slot, std::int64_t head, std::int64_t channel) {
  return ((slot / kBlock * kHeads + head) * kBlock + slot % kBlock) * 2 * kWidth + half * kWidth + channel;
}
std::int64_t behind(int half, std::int64_t slot, std::int64_t head, std::int64_t channel) {
  return (slot / kBlock * kHeads + head) * kBlock * 2 * kWidth + (half * kBlock + slot % kBlock) * kWidth + channel;
}
std::int64_t transposed(int half, std::int64_t slot, std::int64_t head, std::int64_t channel) {
  if (half == 1) return behind(half, slot, head, channel);
  return (slot / kBlock * kHeads + head) * kBlock * 2 * kWidth + channel * kBlock + slot % kBlock;
}
std::int64_t slots_first(int half, std::int64_t slot, std::int64_t head, std::int64_t channel) {
  return (slot * kHeads + head) * 2 * kWidth + half * kWidth + channel;
}

double wave(std::int64_t seed) {
  return decode(Format::f16, encode(Format::f16, std::sin(static_cast<float>(seed)), Overflow::overflow));
}
double value(std::int64_t row, std::int64_t channel) { return wave(1000 + row * kChannels + channel); }
double key(std::int64_t row, std::int64_t channel) { return wave(7000 + 3 * (row * kChannels + channel)); }

/// A key rotated by its position: channels half a head apart are a pair.
double rotated(std::int64_t row, std::int64_t channel) {
  const std::int64_t position = row < kLengths[0] ? row : row - kLengths[0];
  const std::int64_t pair = channel % kWidth % (kWidth / 2);
  const double angle = static_cast<double>(position) / static_cast<double>(1 + 4 * pair);
  const std::int64_t first = channel / kWidth * kWidth + pair;
  const double a = key(row, first);
  const double b = key(row, first + kWidth / 2);
  if (position == 0) return key(row, channel);
  return channel == first ? a * std::cos(angle) - b * std::sin(angle) : b * std::cos(angle) + a * std::sin(angle);
}

MemoryDump dump_of(Place place, bool with_step = true, bool twice = false) {
  MemoryDump dump;
  std::vector<double> qkv;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t c = 0; c < kChannels; ++c) qkv.push_back(wave(row - c));
    for (std::int64_t c = 0; c < kChannels; ++c) qkv.push_back(key(row, c));
    for (std::int64_t c = 0; c < kChannels; ++c) qkv.push_back(value(row, c));
  }
  const std::string at = "model.layers.0.self_attn.";
  dump.add(at + "qkv_proj.output", "f16", {kRows, 3 * kChannels}, qkv);
  dump.add(at + "attn.output", "f16", {kRows, kChannels});
  std::vector<double> pool(static_cast<std::size_t>(kBlocks * kBlock * kChannels * 2), 0);
  for (std::int64_t row = 0; row < kRows && with_step; ++row) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      pool[static_cast<std::size_t>(place(0, slot_of(row), c / kWidth, c % kWidth))] = rotated(row, c);
      pool[static_cast<std::size_t>(place(1, slot_of(row), c / kWidth, c % kWidth))] = value(row, c);
    }
  }
  // Another block holds what the second sequence's does.
  for (std::int64_t row = kLengths[0]; row < kRows && twice; ++row) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const std::int64_t slot = slot_of(row) % kBlock;
      pool[static_cast<std::size_t>(place(0, slot, c / kWidth, c % kWidth))] = rotated(row, c);
      pool[static_cast<std::size_t>(place(1, slot, c / kWidth, c % kWidth))] = value(row, c);
    }
  }
  if (place == slots_first) {
    dump.add(at + "attn.kv_cache", "f16", {kBlocks, kBlock, kHeads, 2 * kWidth}, pool);
  } else {
    dump.add(at + "attn.kv_cache", "f16", {kBlocks, kHeads, kBlock, 2 * kWidth}, pool);
  }
  return dump;
}

class PagedCacheOf : public ::testing::TestWithParam<Place> {};

TEST_P(PagedCacheOf, TheStepsValuesShowLayoutAndSequences) {
  MemoryDump dump = dump_of(GetParam());
  const auto run = dump.run();
  const Step& step = run->steps().front();
  ASSERT_EQ(step.spans.size(), 2U);
  for (std::size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(step.spans[s].rows, kLengths[s]);
    EXPECT_EQ(step.spans[s].first_token, 0);
  }
  const Op* store = run->find_op(step.id, 0, "kv_store");
  ASSERT_NE(store, nullptr);
  const Tensor* k = run->output(*store, "k_cache");
  const Tensor* v = run->output(*store, "v_cache");
  ASSERT_EQ(v->tokens, kBlocks * kBlock);
  ASSERT_EQ(v->channels, kChannels);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto keys = run->row_values(*k, slot_of(row));
    const auto values = run->row_values(*v, slot_of(row));
    ASSERT_TRUE(keys && values);
    for (std::int64_t c = 0; c < kChannels; ++c) {
      EXPECT_EQ((*values)[static_cast<std::size_t>(c)], value(row, c)) << row << ' ' << c;
      EXPECT_NEAR((*keys)[static_cast<std::size_t>(c)], rotated(row, c), 1e-3) << row << ' ' << c;
    }
  }
  EXPECT_EQ(std::get<KvStoreAttributes>(store->attributes).block_size, kBlock);
  EXPECT_TRUE(run->notes().empty());
}

INSTANTIATE_TEST_SUITE_P(PagedCache, PagedCacheOf, ::testing::Values(beside, behind, transposed, slots_first));

TEST(PagedCache, OneThatDoesNotHoldTheStepIsNotUnderstood) {
  MemoryDump dump = dump_of(transposed, false);
  const auto run = dump.run();
  EXPECT_EQ(run->steps().front().spans.size(), 1U);
  EXPECT_EQ(run->find_op(run->steps().front().id, 0, "kv_store"), nullptr);
  ASSERT_EQ(run->notes().size(), 1U);
  EXPECT_NE(run->notes().front().text.find("layout is not understood"), std::string::npos);
}

/// Rows that lie in two places have no place: the layout is known, and the slots are not.
TEST(PagedCache, SlotsThatAllowTwoReadingsAreNotKnown) {
  MemoryDump dump = dump_of(beside, true, true);
  const auto run = dump.run();
  const Step& step = run->steps().front();
  EXPECT_EQ(step.spans.size(), 1U);
  const Op* store = run->find_op(step.id, 0, "kv_store");
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(run->output(*store, "v_cache")->channels, kChannels);
  EXPECT_TRUE(run->kv_history().empty());
}

/// Values that agree beside keys that do not are no ground: V lies where it does in two layouts.
TEST(PagedCache, KeysMustAgreeToo) {
  MemoryDump dump = dump_of([](int half, std::int64_t slot, std::int64_t head, std::int64_t channel) {
    return transposed(half, slot, head, half == 0 ? (channel + 1) % kWidth : channel);
  });
  const auto run = dump.run();
  EXPECT_EQ(run->find_op(run->steps().front().id, 0, "kv_store"), nullptr);
}

}  // namespace
}  // namespace nanscope
