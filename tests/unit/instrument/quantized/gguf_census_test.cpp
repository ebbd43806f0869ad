// What `inspect` counts in a GGUF file: scales that are NaN, Inf or 0, and plain numbers that are NaN or Inf.
#include "instrument/inspect/gguf_census.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/unit/instrument/gguf/gguf_builder.h"

namespace nanscope {
namespace {

using ::testing::HasSubstr;
using testing_gguf::Builder;

Result<GgufCensus> census(const Builder& file, const GgufCensusOptions& options = {}) {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = file.build();
  std::ofstream(folder / "m.gguf", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return census_of_gguf(folder / "m.gguf", options);
}

/// Blocks of Q4_1: their scale, their minimum, and codes.
std::vector<std::byte> blocks_of_q4_1(const std::vector<std::pair<std::uint16_t, std::uint16_t>>& scales) {
  testing_gguf::Bytes bytes;
  for (const auto& [scale, minimum] : scales) bytes.number(scale).number(minimum).raw(std::vector<std::byte>(16));
  return bytes.bytes;
}

constexpr std::uint16_t kOne = 0x3C00;
constexpr std::uint16_t kInf = 0x7C00;
constexpr std::uint16_t kNan = 0x7E00;

TEST(GgufCensuses, CountScalesThatAreNone) {
  Builder file;
  file.text("general.architecture", "llama");
  file.tensors.push_back({"blk.0.attn_v.weight",
                          {32, 6},
                          3,
                          blocks_of_q4_1({{kOne, 0}, {0, kOne}, {kOne, kNan}, {kInf, 0}, {kNan, 0}, {kOne, kOne}})});
  const auto made = census(file);
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_EQ(made->tensors.size(), 1U);
  const GgufTensorCensus& one = made->tensors[0];
  EXPECT_EQ(one.original, "model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(one.type, "Q4_1");
  EXPECT_EQ(one.scales, 6);
  EXPECT_EQ(one.nan, 2);
  EXPECT_EQ(one.inf, 1);
  EXPECT_EQ(one.zero, 1);  // a minimum of 0 is none
  EXPECT_EQ(one.first_bad, 2);
  EXPECT_EQ(made->bad(), 3);
  EXPECT_EQ(made->bytes(), 120U);
  EXPECT_EQ(made->elements(), 192);
  EXPECT_THAT(made->config_error, HasSubstr("no tensor 'token_embd.weight'"));
}

TEST(GgufCensuses, CountElementsOfPlainTypes) {
  const float nan = std::nanf("");
  Builder file;
  file.floats("f", {4}, {1, nan, -std::numeric_limits<float>::infinity(), 0});
  file.tensors.push_back({"i", {1}, 26, std::vector<std::byte>(4, std::byte{0xFF})});  // an I32, whose bits are a NaN's
  file.tensors.push_back({"x", {4}, 41, std::vector<std::byte>(4)});
  const auto made = census(file);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->tensors[0].nan, 1);
  EXPECT_EQ(made->tensors[0].inf, 1);
  EXPECT_EQ(made->tensors[0].zero, 0);
  EXPECT_EQ(made->tensors[0].scales, 0);
  EXPECT_EQ(made->tensors[0].first_bad, 1);
  EXPECT_EQ(made->tensors[1].nan, 0);
  EXPECT_FALSE(made->tensors[2].decoded);
  EXPECT_EQ(made->tensors[2].type, "type 41");
  EXPECT_EQ(made->elements(), 5);
  EXPECT_EQ(made->architecture, "");
}

TEST(GgufCensuses, Stop) {
  std::stop_source stop;
  stop.request_stop();
  Builder file;
  file.floats("f", {1}, {1});
  const auto made = census(file, {.stop = stop.get_token(), .progress = {}});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "stopped");
}

}  // namespace
}  // namespace nanscope
