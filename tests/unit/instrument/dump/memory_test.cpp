#include "instrument/dump/containers/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "instrument/dump/open_dump.h"

namespace nanscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

NamedTensor tensor(std::string name, const std::vector<float>& values, std::vector<std::int64_t> shape) {
  return {std::move(name), find_dtype("f32"), std::move(shape), {std::as_bytes(std::span(values)), nullptr}};
}

class MemoryDump : public testing::Test {
 protected:
  std::string refused(std::vector<NamedTensor> tensors) {
    const auto opened = OpenDump::of("given", std::move(tensors));
    EXPECT_FALSE(opened.has_value());
    return opened ? "" : opened.error().message;
  }

  const std::vector<float> values_{1, 2, std::numeric_limits<float>::quiet_NaN(), 4, 5, 6};
};

TEST_F(MemoryDump, IsNamedPutInOrderAndScannedAsAFileIs) {
  const std::vector<float> weight{1, 1, 1};
  const auto dump = OpenDump::of("given", {tensor("step_1/model.layers.0.mlp.output", values_, {2, 3}),
                                           tensor("step_0/model.layers.1.mlp.output", values_, {1, 2, 3}),
                                           tensor("step_0/model.layers.0.input_layernorm.weight", weight, {3})});
  ASSERT_TRUE(dump.has_value()) << dump.error().message;
  std::vector<std::string> names;
  for (const DumpTensor& one : (*dump)->dump().tensors) names.push_back(one.name);
  EXPECT_THAT(names, ElementsAre("step_0/model.layers.0.input_layernorm.weight", "step_0/model.layers.1.mlp.output",
                                 "step_1/model.layers.0.mlp.output"));
  const DumpTensor& last = (*dump)->dump().tensors.back();
  EXPECT_EQ(last.health.nan, 1U);
  EXPECT_EQ(last.health.first_bad, 2);
  EXPECT_EQ(last.at.step, 1);
  EXPECT_EQ((*dump)->dump().target, "given");
  EXPECT_TRUE((*dump)->check().has_value());
}

TEST_F(MemoryDump, ReadsBytesWhereTheyLie) {
  const auto dump = OpenDump::of("given", {tensor("model.layers.0.mlp.output", values_, {2, 3})});
  ASSERT_TRUE(dump.has_value()) << dump.error().message;
  const auto bytes = (*dump)->bytes((*dump)->dump().tensors.front());
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(static_cast<const void*>(bytes->bytes.data()), static_cast<const void*>(values_.data()));
}

TEST_F(MemoryDump, RefusesWhatIsNoDumpInOneLine) {
  EXPECT_EQ(refused({}), "given: no tensors were given");
  EXPECT_THAT(refused({tensor("", values_, {6})}), HasSubstr("without a name"));
  EXPECT_THAT(refused({tensor("x", values_, {6}), tensor("x", values_, {6})}), HasSubstr("two tensors of that name"));
  EXPECT_THAT(refused({tensor("x", values_, {-6, -1})}), HasSubstr("an extent of -6 is negative"));
  EXPECT_THAT(refused({tensor("x", values_, {7})}), HasSubstr("has 24 bytes, expected the 28 of its shape"));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refused({tensor("x", values_, {most, most, most})}), HasSubstr("many more"));
}

}  // namespace
}  // namespace nanscope
