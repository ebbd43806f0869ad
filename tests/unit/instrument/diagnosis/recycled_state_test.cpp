/// Blocks that held a recurrent state before they held keys and values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "core/run/recording_view.h"
#include "instrument/diagnosis/why.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::recycled_state_test {
namespace {

using testing::classes;
using testing::constant;
using testing::diagnosis_of;
using ::testing::HasSubstr;
using testing::kNan;
using testing::number;
using testing::RunBuilder;

/// Request 0 leaves the states of recurrent layers 1 and 2 in block 4, request 1 gets it for its KV. The pool has the
/// regions K and V of layer 0: layer 2's state, the second one, lies in V. Slot 1 of V starts at byte 4, the state's
/// channel 1, whose lowest byte is 0xFF.
RunBuilder recycled_state(std::int64_t* values = nullptr) {
  constexpr float kStale = std::bit_cast<float>(0x3F8012FFU);
  RunBuilder b;
  b.request(0, {1, 1}, {7});
  b.step(0, 0, 0, 2);
  b.kv(0, 4, 0, 2, 0, KvAction::allocated, "recurrent_state");
  for (const std::int64_t layer : {1, 2}) {
    b.op(layer, "recurrent", "recurrent_scan", {});
    b.output("out", {2, 4, 0, 1}, [&](auto row, auto channel) { return row == 1 && channel == 1 ? kStale : 1.0F; });
    b.kv(0, 4, 0, 2, 0, KvAction::written, "recurrent_state", Format::f32, layer);
  }
  b.kv(0, 4, 0, 2, 0, KvAction::freed);
  b.request(1, {1}, {7});
  b.step(1, 0, 0, 1);
  b.kv(1, 4, 0, 2, 0, KvAction::allocated);
  b.op(0, "kv_store", "kv_store", {});
  b.output("k_codes", {1, 4, 0, 1}, constant(1), Format::e4m3);
  b.output("v_codes", {1, 4, 0, 1}, constant(1), Format::e4m3);
  b.op(0, "kv_read", "kv_read", {{"pool"}});
  b.output("k_read", {2, 4, 0, 1}, constant(1));
  const auto v = b.output("v_read", {2, 4, 0, 1}, [](auto key, auto i) { return key == 1 && i == 0 ? kNan : 1.0F; });
  b.kv(1, 4, 0, 1, 0, KvAction::written);
  b.op(0, "attn_mix", "attention_mix", {{"v", v}});
  const auto mix = b.output("out", {1, 4, 0, 1}, constant(kNan));
  b.op(-1, "lm_head", "gemm", {{"x", mix}});
  b.output("logits", {1, 5, 0, 1}, constant(kNan));
  if (values != nullptr) *values = v;
  return b;
}

TEST(RecycledState, ItsBitsReadAsAnotherFormatAreATailPoison) {
  RunBuilder b = recycled_state();
  const Diagnosis found = diagnosis_of(b);
  ASSERT_EQ(testing::root_of(found), "masked-tail-poison");
  EXPECT_THAT(found.faults[0].summary, HasSubstr("recurrent_state of request 0"));
  EXPECT_EQ(number(found.faults[0], "keys"), "1");
}

TEST(RecycledState, WithoutItsElementsItIsFoundAllTheSame) {
  RunBuilder b = recycled_state();
  b.tensors.data.clear();
  EXPECT_EQ(testing::root_of(diagnosis_of(b)), "masked-tail-poison");
}

TEST(RecycledState, TheWalkGoesOnToTheStaleNumber) {
  std::int64_t v = 0;
  RunBuilder b = recycled_state(&v);
  RecordingView run(b.run, b.tensors);
  const Result<WhyPath> path = why(run, Element{v, 1, 0});
  ASSERT_TRUE(path.has_value());
  ASSERT_EQ(path->hops.size(), 3U);
  EXPECT_EQ(path->origin, 1U);
  EXPECT_EQ(path->hops[1].code, 0xFFU);
  EXPECT_THAT(path->hops[1].text, HasSubstr("byte 0 of f32 1.00057971 (0x3F8012FF) is read as e4m3 0xFF, a NaN"));
  EXPECT_EQ(place_text(path->hops[2].where), "0/0/2/recurrent.out[1,1]");
}

/// Blocks of three slots of six codes: block 1 begins at byte 18, its state at 20. Slot 1, code 0 is byte 6 of the
/// block and byte 4 of the state.
TEST(RecycledState, OfABlockThatBeginsAtNoMultipleOfFour) {
  constexpr float kStale = std::bit_cast<float>(0x3F8012FFU);
  RunBuilder b;
  b.request(0, {1}, {7});
  b.step(0, 0, 0, 1);
  b.kv(0, 1, 0, 3, 0, KvAction::allocated, "recurrent_state");
  b.op(1, "recurrent", "recurrent_scan", {});
  b.output("out", {1, 3, 0, 1}, [&](auto, auto channel) { return channel == 1 ? kStale : 1.0F; });
  b.kv(0, 1, 0, 3, 0, KvAction::written, "recurrent_state", Format::f32, 1);
  b.kv(0, 1, 0, 3, 0, KvAction::freed);
  b.request(1, {1}, {7});
  b.step(1, 0, 0, 1);
  b.kv(1, 1, 0, 3, 0, KvAction::allocated);
  b.op(0, "kv_store", "kv_store", {}, R"({"block_size":3})");
  b.output("k_codes", {1, 6, 0, 1}, constant(1), Format::e4m3);
  b.output("v_codes", {1, 6, 0, 1}, constant(1), Format::e4m3);
  b.op(0, "kv_read", "kv_read", {{"pool"}}, R"({"block_size":3})");
  const auto k = b.output("k_read", {3, 6, 0, 1}, [](auto key, auto i) { return key == 1 && i == 0 ? kNan : 1.0F; });
  b.output("v_read", {3, 6, 0, 1}, constant(1));
  b.kv(1, 1, 0, 1, 0, KvAction::written);
  RecordingView run(b.run, b.tensors);
  const Result<WhyPath> path = why(run, Element{k, 1, 0});
  ASSERT_TRUE(path.has_value());
  ASSERT_EQ(path->hops.size(), 3U);
  EXPECT_EQ(path->hops[1].code, 0xFFU);
  EXPECT_EQ(place_text(path->hops[2].where), "0/0/1/recurrent.out[0,1]");
}

}  // namespace
}  // namespace nanscope::recycled_state_test
