#include "instrument/spectral/scale_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <span>

#include "core/files/output_file.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class ScaleFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = model_scales(
        std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints") / "llama3", {});
    ASSERT_TRUE(made) << made.error().message;
    scales_ = std::move(*made);
    const auto bytes = encode_scale_file(scales_, "llama3", scales_.policy);
    ASSERT_TRUE(bytes) << bytes.error().message;
    ASSERT_TRUE(write_output(path("scales.safetensors"), *bytes));
  }

  std::filesystem::path path(const char* name) const { return folder_.path() / name; }
  Result<ScaleFile> read(const char* name) const { return read_scale_file(path(name), scales_.model); }

  /// The file again with one tensor changed, or left out where it has no values.
  Result<ScaleFile> with(const std::string& name, const std::vector<float>& values) {
    const auto opened = SafetensorsFile::open(path("scales.safetensors"));
    EXPECT_TRUE(opened);
    std::vector<SafetensorsInput> inputs;
    for (const SafetensorsEntry& entry : opened->entries()) {
      if (entry.name != name) inputs.push_back({entry.name, entry.dtype, entry.shape, opened->bytes(entry)});
    }
    if (!values.empty()) inputs.push_back({name, "F32", {std::ssize(values)}, std::as_bytes(std::span(values))});
    const auto bytes = encode_safetensors(inputs, opened->header().metadata);
    EXPECT_TRUE(bytes);
    EXPECT_TRUE(write_output(path("other.safetensors"), *bytes, {.replace = true}));
    return read("other.safetensors");
  }

  std::string refusal(const std::string& name, const std::vector<float>& values) {
    const auto file = with(name, values);
    return file ? "taken" : file.error().message;
  }

  TemporaryFolder folder_;
  ModelScales scales_;
};

TEST_F(ScaleFiles, HoldWhatWasMeasuredHeadByHead) {
  const auto file = read("scales.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->checkpoint, "llama3");
  EXPECT_EQ(file->policy, "geometry");
  ASSERT_THAT(file->layers, SizeIs(2));
  for (const LayerScales& layer : scales_.layers) {
    const FiledLayer* filed = file->find(layer.layer);
    ASSERT_NE(filed, nullptr);
    EXPECT_EQ(filed->identity, layer.identity);
    ASSERT_THAT(filed->scores, SizeIs(4));
    ASSERT_THAT(filed->keys, SizeIs(2));
    for (std::size_t head = 0; head < 4; ++head) {
      EXPECT_EQ(filed->scores[head], static_cast<float>(layer.heads[head].scale));
      EXPECT_EQ(filed->queries[head], static_cast<float>(layer.queries[head].scale));
      EXPECT_EQ(filed->norms[head], static_cast<float>(layer.norms[head].interaction));
    }
  }
  EXPECT_EQ(file->find(2), nullptr);
}

TEST_F(ScaleFiles, AreRefusedByPlaceAndReason) {
  EXPECT_THAT(refusal("layers.1.scores.scale", {}), HasSubstr("other.safetensors: no tensor 'layers.1.scores.scale'"));
  EXPECT_THAT(refusal("layers.1.scores.scale", {1, 1, 1}),
              HasSubstr("'layers.1.scores.scale' is F32 [3], and is to be F32 [4]: one value a head"));
  EXPECT_THAT(refusal("layers.1.k.scale", {1, 0}), HasSubstr("'layers.1.k.scale' is 0 for head 1"));
  EXPECT_THAT(refusal("layers.0.q.scale", {1, 1, std::nanf(""), 1}), HasSubstr("'layers.0.q.scale' is nan for head 2"));
  EXPECT_THAT(refusal("layers.0.q.scale", {1, 1, 1, -1}), HasSubstr("is -1 for head 3"));
  EXPECT_THAT(refusal("layers.7.q.scale", {1, 1, 1, 1}), HasSubstr("scales of layer 7: the model has 0 to 1"));
  const std::vector<float> one{1};
  const std::vector<SafetensorsInput> weights{{"w", "F32", {1}, std::as_bytes(std::span(one))}};
  ASSERT_TRUE(write_output(path("weights.safetensors"), *encode_safetensors(weights)));
  const auto none = read("weights.safetensors");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("weights.safetensors: no file of scores' scales"));
  EXPECT_FALSE(read("absent.safetensors"));
}

TEST_F(ScaleFiles, SayThatTheyAreOfOtherWeightsAndByHowMuch) {
  const auto file = read("scales.safetensors");
  ASSERT_TRUE(file);
  warn_of_other_weights(*file, scales_);
  EXPECT_FALSE(scales_.any_warning());
  auto mistral = model_scales(
      std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints") / "mistral", {});
  ASSERT_TRUE(mistral);
  for (LayerScales& layer : mistral->layers) layer.warnings.clear();
  warn_of_other_weights(*file, *mistral);
  for (const LayerScales& layer : mistral->layers) {
    ASSERT_THAT(layer.warnings, SizeIs(1));
    const ScaleWarning& warning = layer.warnings.front();
    EXPECT_EQ(warning.kind, "swapped-checkpoint");
    EXPECT_THAT(warning.figure, HasSubstr("scales of other weights, of checkpoint 'llama3'"));
    const auto head = static_cast<std::size_t>(warning.head);
    EXPECT_NEAR(warning.excess, layer.heads[head].scale / double{file->find(layer.layer)->scores[head]}, 1e-12);
  }
}

}  // namespace
}  // namespace nanscope
