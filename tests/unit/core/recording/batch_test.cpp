#include "core/recording/batch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/core/recording/sample.h"

namespace nanscope::insert {
namespace {

/// Writes down what a batch holds, in order.
std::string contents(Batch& batch) {
  std::string text;
  const Status walked = batch.each([&text](const auto& row) -> Status {
    using Row = std::decay_t<decltype(row)>;
    if constexpr (std::is_same_v<Row, AddOp>) {
      text += fmt::format("op {}{}", row.row.id, row.row.attributes);
      for (const InputRow& input : row.inputs) text += fmt::format(" {}={}", input.role, input.weight);
    } else if constexpr (std::is_same_v<Row, AddTensor>) {
      text += fmt::format("tensor {}{} {}+{} {}", row.row.id, row.row.role, row.detail.tokens.size(),
                          row.detail.tiles.size(), row.bytes.size());
    } else {
      text += std::holds_alternative<EndStep>(row) ? "end" : "other";
    }
    text += "; ";
    return {};
  });
  EXPECT_TRUE(walked);
  return text;
}

void fill(Batch& batch) {
  batch.add(StepRow{});
  const InputRow inputs[] = {{1, "x", 4, ""}, {1, "weight", 0, "layers.0.q_proj.weight"}};
  batch.add(OpRow{1, 1, 0, "q_proj", "gemm", R"({"a":1})"}, inputs);
  TensorRow tensor;
  tensor.id = 7;
  tensor.role = "out";
  batch.add(tensor, {sample::many(3, 1), sample::many(6, 2)}, sample::noise(40, 1));
}

TEST(Batch, KeepsTheOrderOfUnlikeRows) {
  Batch batch;
  EXPECT_TRUE(batch.empty());
  fill(batch);
  batch.add(OpRow{2, 1, 0, "k_proj", "gemm", ""}, {});
  EXPECT_FALSE(batch.ends_step());
  batch.add(EndStep{});
  EXPECT_TRUE(batch.ends_step());
  EXPECT_EQ(contents(batch), R"(other; op 1{"a":1} x= weight=layers.0.q_proj.weight; tensor 7out 3+6 40; op 2; end; )");
  EXPECT_GT(batch.bytes(), 9 * sizeof(Health) + 40);
}

TEST(Batch, MemoryThatIsUsedAgainHoldsNothingOfBefore) {
  Batch batch;
  fill(batch);
  EXPECT_EQ(batch.take_elements().size(), 1U);
  EXPECT_TRUE(batch.take_elements().empty());
  batch.clear();
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(batch.bytes(), 0U);
  EXPECT_EQ(contents(batch), "");
  batch.add(OpRow{3, 1, 0, "o", "gemm", ""}, {});
  TensorRow tensor;
  tensor.id = 8;
  batch.add(tensor, {}, {});
  EXPECT_FALSE(batch.ends_step());
  EXPECT_EQ(contents(batch), "op 3; tensor 8 0+0 0; ");
}

TEST(Batch, AFailureEndsTheWalk) {
  Batch batch;
  fill(batch);
  int seen = 0;
  const Status walked =
      batch.each([&seen](const auto&) -> Status { return ++seen == 2 ? Status(fail("two")) : Status(); });
  ASSERT_FALSE(walked);
  EXPECT_EQ(walked.error().message, "two");
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace nanscope::insert
