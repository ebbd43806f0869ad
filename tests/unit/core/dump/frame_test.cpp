#include "core/dump/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <span>

#include "core/run/mask.h"
#include "tests/unit/core/dump/memory_dump.h"

/// Whose rows the rows of a pass are, from ids, masks, positions and lengths.
namespace nanscope {
namespace {

using ::testing::ElementsAre;
using testing::MemoryDump;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// "row+rows@first_token/context" of each span.
std::vector<std::string> spans(const Frame& frame) {
  std::vector<std::string> found;
  for (const Span& span : frame.spans) {
    found.push_back(std::to_string(span.row) + '+' + std::to_string(span.rows) + '@' +
                    std::to_string(span.first_token) + '/' + std::to_string(span.context));
  }
  return found;
}

Frame frame_of_all(MemoryDump& dump) {
  std::vector<const DumpTensor*> pass;
  for (const DumpTensor& tensor : dump.tensors()) pass.push_back(&tensor);
  const auto integers = [&](const DumpTensor& tensor) -> std::optional<std::vector<std::int64_t>> {
    if (const auto whole = dump.integers(tensor)) return *whole;
    const auto values = dump.values(tensor, 0, tensor.count());
    if (!values) return std::nullopt;
    std::vector<std::int64_t> all;
    for (const float value : *values) all.push_back(value < -1e9F ? -1000000000 : static_cast<std::int64_t>(value));
    return all;
  };
  return frame_of(pass, integers, [&](const DumpTensor& tensor, std::int64_t count) {
    const auto values = dump.values(tensor, 0, count);
    return values ? std::optional(*values) : std::nullopt;
  });
}

/// Probabilities of one head: each of `rows` rows sees the keys up to its own, the first at `first_token`.
void add_probabilities(MemoryDump& dump, std::int64_t rows, std::int64_t keys, std::int64_t first_token) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t key = 0; key < keys; ++key)
      values.push_back(key <= first_token + row ? 1.0 / static_cast<double>(first_token + row + 1) : 0);
  }
  dump.add("model.layers.0.self_attn.probs", "f32", {1, rows, keys}, values);
}

/// Activations of `shape`, whose last dimension is the width.
MemoryDump activations(const std::vector<std::int64_t>& shape) {
  MemoryDump dump;
  dump.add("model.layers.0.input_layernorm.output", "f32", shape);
  dump.add("model.layers.0.mlp.down_proj.output", "f32", shape);
  return dump;
}

TEST(Frame, OneSequence) {
  MemoryDump dump = activations({6, 8});
  const Frame frame = frame_of_all(dump);
  EXPECT_EQ(frame.rows, 6);
  EXPECT_EQ(frame.batch, 1);
  EXPECT_THAT(spans(frame), ElementsAre("0+6@0/6"));
  EXPECT_FALSE(frame.placed);
}

TEST(Frame, ABatchWithoutPadding) {
  MemoryDump dump = activations({2, 3, 8});
  const Frame frame = frame_of_all(dump);
  EXPECT_EQ(frame.rows, 6);
  EXPECT_EQ(frame.batch, 2);
  EXPECT_THAT(spans(frame), ElementsAre("0+3@0/3", "3+3@0/3"));
}

TEST(Frame, PaddingToTheLeftAndToTheRight) {
  MemoryDump left = activations({2, 4, 8});
  left.add("attention_mask", "i64", {2, 4}, {0, 0, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(spans(frame_of_all(left)), ElementsAre("2+2@0/2", "4+4@0/4"));
  MemoryDump right = activations({2, 4, 8});
  right.add("attention_mask", "i64", {2, 4}, {1, 1, 1, 0, 1, 1, 1, 1});
  EXPECT_THAT(spans(frame_of_all(right)), ElementsAre("0+3@0/3", "4+4@0/4"));
}

TEST(Frame, AnAdditiveMaskOfQueriesAndKeys) {
  MemoryDump dump = activations({1, 3, 8});
  dump.add("attention_mask", "f32", {1, 1, 3, 3}, {-kInf, -kInf, -kInf, -kInf, 0, -kInf, -kInf, 0, 0});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("1+2@0/2"));
}

/// MPT's: the ones hide. The first token of the second sequence is padding.
TEST(Frame, AMaskOfQueriesAndKeysWhoseOnesHide) {
  MemoryDump dump = activations({2, 3, 8});
  dump.add("attention_mask", "i64", {2, 1, 3, 3}, {0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+3@0/3", "4+2@0/2"));
}

/// Ones that show: a padded query sees keys but not its own, and a sequence may be padding throughout.
TEST(Frame, OnesShowUnlessEachQuerySeesItsOwnKeyByAZero) {
  const auto hide = [](const std::vector<float>& mask, std::int64_t width) {
    return ones_hide(std::span<const float>(mask), width, width);
  };
  EXPECT_TRUE(hide({0, 1, 0, 0}, 2));
  EXPECT_FALSE(hide({1, 0, 1, 1}, 2));
  EXPECT_FALSE(hide({1, 0, 0, 1, 1, 0, 1, 1, 0}, 3));
  EXPECT_FALSE(hide({1, 1, 1, 1, 0, 0, 0, 0}, 2));
}

/// A log of calls names what ran, and of most of them the output is (batch, rows, channels).
TEST(Frame, OfCallsIsWhatMostOfThemGave) {
  MemoryDump dump;
  for (int call = 0; call < 3; ++call) {
    dump.add("silu." + std::to_string(call) + ".output", "f32",
             call == 0 ? std::vector<std::int64_t>{1, 9, 8} : std::vector<std::int64_t>{2, 3, 8});
    TensorName at;
    at.known = true;
    at.op = "silu." + std::to_string(call);
    at.role = "out";
    at.port = Port::output;
    dump.last().at = at;
  }
  const Frame frame = frame_of_all(dump);
  EXPECT_EQ(frame.batch, 2);
  EXPECT_EQ(frame.rows, 6);
}

/// A training batch of two sequences in one row: positions begin again where the mask hides all that stands before.
TEST(Frame, SequencesPackedIntoOne) {
  const auto packed = [](bool apart, double second = 0) {
    MemoryDump dump = activations({1, 5, 8});
    std::vector<double> mask;
    for (int row = 0; row < 5; ++row) {
      for (int key = 0; key < 5; ++key) mask.push_back(key > row || (apart && row >= 2 && key < 2) ? -kInf : 0);
    }
    dump.add("attention_mask", "f32", {1, 1, 5, 5}, mask);
    dump.add("position_ids", "i64", {1, 5}, {0, 1, second, second + 1, second + 2});
    return spans(frame_of_all(dump));
  };
  EXPECT_THAT(packed(true), ElementsAre("0+2@0/2", "2+3@0/3"));
  EXPECT_THAT(packed(false), ElementsAre("0+5@0/5"));
  EXPECT_THAT(packed(true, 2), ElementsAre("0+5@0/5")) << "a window hides keys, and positions go on";
}

TEST(Frame, FlattenedSequencesOfAServer) {
  MemoryDump dump = activations({7, 8});
  dump.add("query_start_loc", "i32", {4}, {0, 4, 5, 7});
  dump.add("seq_lens", "i32", {3}, {4, 9, 2});
  const Frame frame = frame_of_all(dump);
  EXPECT_THAT(spans(frame), ElementsAre("0+4@0/4", "4+1@8/9", "5+2@0/2"));
  EXPECT_TRUE(frame.placed);
}

TEST(Frame, RowsBehindTheLastSequenceAreNobodys) {
  MemoryDump dump = activations({8, 8});
  dump.add("cu_seqlens", "i32", {3}, {0, 3, 5});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+3@0/3", "3+2@0/2"));
}

TEST(Frame, DecodeRowsByTheLengthsOfTheirSequences) {
  MemoryDump dump = activations({3, 8});
  dump.add("seq_lens", "i32", {3}, {5, 9, 4});
  dump.add("positions", "i64", {3}, {4, 8, 3});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+1@4/5", "1+1@8/9", "2+1@3/4"));
}

TEST(Frame, RunsOfPositions) {
  MemoryDump dump = activations({6, 8});
  dump.add("positions", "i64", {6}, {0, 1, 2, 7, 0, 1});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+3@0/3", "3+1@7/8", "4+2@0/2"));
}

TEST(Frame, RowsStandBehindWhatTheCacheHeld) {
  MemoryDump dump = activations({2, 3, 8});
  dump.add("past_length", "i64", {}, {6});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+3@6/9", "3+3@6/9"));
  EXPECT_TRUE(frame_of_all(dump).placed);
  dump = activations({2, 3, 8});
  dump.add("past_length", "i64", {2}, {6, 1});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+3@6/9", "3+3@1/4"));
  dump = activations({2, 3, 8});
  dump.add("past_length", "i64", {}, {-6});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+3@0/3", "3+3@0/3"));
}

TEST(Frame, RowsThatAreStoredNowhereAreNobodys) {
  MemoryDump dump = activations({4, 8});
  dump.add("positions", "i64", {4}, {0, 1, 2, 3});
  dump.add("slot_mapping", "i64", {4}, {8, 9, -1, -1});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+2@0/2"));
}

TEST(Frame, TheLastKeyOfAPrefillsRowsIsTheirOwn) {
  MemoryDump fresh = activations({6, 8});
  add_probabilities(fresh, 6, 32, 0);  // the rest is the tail of a block
  EXPECT_THAT(spans(frame_of_all(fresh)), ElementsAre("0+6@0/6"));
  MemoryDump chunk = activations({6, 8});
  add_probabilities(chunk, 6, 32, 19);
  EXPECT_THAT(spans(frame_of_all(chunk)), ElementsAre("0+6@19/25"));
}

TEST(Frame, OneRowStandsAtTheEndOfKeysThatAreNoBlocks) {
  MemoryDump dump = activations({1, 8});
  add_probabilities(dump, 1, 15, 12);  // 13 and 14 became zero
  const Frame frame = frame_of_all(dump);
  EXPECT_THAT(spans(frame), ElementsAre("0+1@14/15"));
  EXPECT_EQ(frame.seen, 13);
}

TEST(Frame, OneRowStandsAtItsLastKeyWhereABlockHasATail) {
  MemoryDump dump = activations({1, 8});
  add_probabilities(dump, 1, 16, 12);
  const Frame frame = frame_of_all(dump);
  EXPECT_THAT(spans(frame), ElementsAre("0+1@12/13"));
  EXPECT_EQ(frame.keys, 16);
}

TEST(Frame, ScalesMakeNoRows) {
  MemoryDump dump;
  dump.add("model.layers.0.self_attn.k", "f32", {8, 4, 16});
  dump.add("model.layers.0.self_attn.k_scale", "f32", {1}, {0.5});
  EXPECT_EQ(frame_of_all(dump).rows, 8);
}

TEST(Frame, ImpossibleMetadataIsPassedOver) {
  MemoryDump dump = activations({4, 8});
  dump.add("query_start_loc", "i32", {3}, {0, 900, 2});
  dump.add("seq_lens", "i32", {2}, {-5, 2000000000});
  EXPECT_THAT(spans(frame_of_all(dump)), ElementsAre("0+4@0/4"));
}

TEST(Frame, WithoutActivationsThereAreNoRows) {
  MemoryDump dump;
  dump.add("model.layers.0.mlp.down_proj.weight", "f32", {4, 8});
  EXPECT_EQ(frame_of_all(dump).rows, 0);
}

TEST(Frame, ACacheThatEndsWithTheRowsHoldsWhatCameBefore) {
  std::vector<double> held;
  for (std::int64_t i = 0; i < 8 * 16; ++i) held.push_back(3 * (static_cast<double>((i * 37 + i * i / 5) % 19) - 9.5));
  const auto frame_with = [&](std::int64_t first) {
    MemoryDump dump = activations({1, 3, 16});
    std::vector<double> fresh;
    for (std::int64_t i = 0; i < 3 * 16; ++i) fresh.push_back(held[static_cast<std::size_t>(first * 16 + i)] / 50);
    dump.add("model.layers.0.self_attn.attn.v", "f32", {3, 2, 8}, fresh);
    dump.add("model.layers.0.self_attn.attn.v_cache", "f32", {8, 2, 8}, held);
    return frame_of_all(dump);
  };
  EXPECT_THAT(spans(frame_with(5)), ElementsAre("0+3@5/8"));
  EXPECT_TRUE(frame_with(5).placed);
  EXPECT_THAT(spans(frame_with(0)), ElementsAre("0+3@0/3"));
}

}  // namespace
}  // namespace nanscope
