// The reference model as a checkpoint folder: it runs as the built-in one, to the bit.
#include "instrument/engine/reference_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "instrument/engine/model_folder.h"
#include "instrument/image/image.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/engine/engine_rig.h"

namespace nanscope {
namespace {

using testing::CollectProbe;
using testing::Rig;

EngineConfig reference(const testing::Knobs& changes) {
  EngineConfig config;
  for (const auto& [knob, value] : changes) EXPECT_TRUE(set_knob(config, knob, value)) << knob;
  return config;
}

/// A text, and a bright image before another.
std::vector<RequestSpec> requests() {
  const Image white{32, 32, std::vector<std::uint8_t>(std::size_t{32} * 32 * 3, 255)};
  return {testing::text_request("The keeper lights the lamp", 4),
          {.name = "image",
           .parts = {ImagePart{"white.png", encode_png(white).value()}, TextPart{"What is there?"}},
           .max_tokens = 2}};
}

void expect_same_run(const EngineConfig& built_in, const EngineConfig& of_folder) {
  Rig one(built_in);
  Rig other(of_folder);
  const CollectProbe expected = one.collect(requests());
  const CollectProbe run = other.collect(requests());
  EXPECT_EQ(run.ops, expected.ops);
  ASSERT_EQ(run.tensors.size(), expected.tensors.size());
  EXPECT_GT(run.tensors.size(), 400U);
  for (std::size_t i = 0; i < run.tensors.size(); ++i) {
    ASSERT_EQ(run.tensors[i].format, expected.tensors[i].format) << expected.tensors[i].op;
    ASSERT_EQ(run.tensors[i].bytes, expected.tensors[i].bytes) << expected.tensors[i].op;
  }
}

TEST(ReferenceFolder, RunsAsTheBuiltInModelToTheBit) {
  const testing::Knobs other{{"model.inner_norm", "true"},  {"model.norm_placement", "sandwich"},
                             {"model.norm", "rms_norm"},    {"norm.eps", "1e-6"},
                             {"activation.format", "bf16"}, {"kv.format", "f16"}};
  for (const testing::Knobs& changes : {testing::Knobs{}, other}) {
    const TemporaryFolder folder;
    const EngineConfig built_in = reference(changes);
    const Status written = write_reference_folder(built_in, folder / "reference", {});
    ASSERT_TRUE(written) << written.error().message;
    EngineConfig of_folder;
    const Status used = use_model_folder(of_folder, folder / "reference");
    ASSERT_TRUE(used) << used.error().message;
    EXPECT_EQ(of_folder.model.family, "reference");
    expect_same_run(built_in, of_folder);
  }
}

TEST(ReferenceFolder, ItsTokenizerIsTheShippedOne) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_reference_folder({}, folder / "reference", {}));
  const Result<Tokenizer> tokenizer = Tokenizer::load(folder / "reference" / "tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::string text = "The keeper lights the lamp";
  EXPECT_EQ(tokenizer->encode(text).value(), testing::shipped_tokenizer()->encode(text).value());
}

TEST(ReferenceFolder, WhatItsConfigurationCannotSayIsRefusedByName) {
  const TemporaryFolder folder;
  const auto refusal = [&](const testing::Knobs& changes) {
    const Status written = write_reference_folder(reference(changes), folder / "reference", {});
    EXPECT_FALSE(std::filesystem::exists(folder / "reference"));
    return written ? std::string() : written.error().message;
  };
  EXPECT_THAT(refusal({{"model.window", "8"}}), ::testing::HasSubstr("model.window=8"));
  EXPECT_THAT(refusal({{"kv.format", "e4m3"}}), ::testing::HasSubstr("kv.format=e4m3"));
  EXPECT_THAT(refusal({{"model.weights", "random"}}), ::testing::HasSubstr("model.weights"));
  EXPECT_THAT(refusal({{"model.layers", "3"}}), ::testing::HasSubstr("model.layers"));
}

}  // namespace
}  // namespace nanscope
