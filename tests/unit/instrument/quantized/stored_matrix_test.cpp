// What quantized weights decode to, beside what their producers' own packages decode them to (make_checkpoints.py).
#include "instrument/quantized/stored_matrix.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/instrument/quantized/edited_checkpoint.h"

namespace nanscope {
namespace {

using ::testing::HasSubstr;

/// FNV-1a of 64 bits over the f32 of a matrix.
std::string fnv1a(const StoredMatrix& matrix) {
  std::uint64_t hash = 0xcbf29ce484222325;
  std::vector<float> row(static_cast<std::size_t>(matrix.columns));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    matrix.row(r, row);
    for (const std::byte byte : std::as_bytes(std::span(row))) {
      hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    }
  }
  return fmt::format("{:016x}", hash);
}

class Producers : public ::testing::TestWithParam<const char*> {};

TEST_P(Producers, DecodeAsTheirPackagesDo) {
  const std::filesystem::path folder =
      std::filesystem::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/quantized/checkpoints") / GetParam();
  const auto config = read_quantization_config(folder).value();
  const auto files = CheckpointFiles::open(folder).value();
  const auto expected = nlohmann::json::parse(read_text(folder / "expected.json"));
  std::size_t compared = 0;
  for (const StoredModule& module : stored_modules(files)) {
    const auto known = expected["decoded"].find(module.path);
    if (known == expected["decoded"].end()) continue;
    const auto matrix = stored_matrix(module, config);
    ASSERT_TRUE(matrix) << matrix.error().text;
    EXPECT_EQ(matrix->rows, (*known)["rows"].get<std::int64_t>());
    EXPECT_EQ(matrix->columns, (*known)["columns"].get<std::int64_t>());
    EXPECT_EQ(fnv1a(*matrix), (*known)["fnv1a"].get<std::string>()) << module.path;
    ++compared;
  }
  EXPECT_EQ(compared, expected["decoded"].size());
}

INSTANTIATE_TEST_SUITE_P(All, Producers,
                         ::testing::Values("fp8-block", "fp8-tensor", "ct-fp8-tensor", "ct-fp8-channel", "ct-nvfp4",
                                           "ct-mxfp4", "ct-mxfp8", "modelopt-nvfp4", "modelopt-mxfp8", "torchao-fp8",
                                           "torchao-nvfp4", "gpt-oss-mxfp4", "ct-int4", "ct-int4-asym", "ct-int4-g-idx",
                                           "ct-int3", "gptq-int4", "gptq-int4-desc-act", "gptq-int4-asym",
                                           "gptq-int4-v2", "gptq-int8", "gptq-int3", "awq-int4", "bnb-nf4", "bnb-fp4"));

/// Why a module of an edited checkpoint cannot be decoded.
std::string refusal(const EditedCheckpoint& checkpoint, std::string_view path) {
  const std::filesystem::path folder = checkpoint.write();
  const auto config = read_quantization_config(folder).value();
  const auto files = CheckpointFiles::open(folder).value();
  for (const StoredModule& module : stored_modules(files)) {
    if (module.path != path) continue;
    const auto matrix = stored_matrix(module, config);
    EXPECT_FALSE(matrix);
    return matrix ? "" : matrix.error().text;
  }
  return "no such module";
}

TEST(StoredMatrix, ScalesInTilesAreRefused) {
  EditedCheckpoint tiles("torchao-nvfp4");
  tiles.metadata["model.layers.0.mlp.up_proj.weight"] =
      R"({"_type": "NVFP4Tensor", "_data": {"is_swizzled_scales": true}})";
  EXPECT_THAT(refusal(tiles, "model.layers.0.mlp.up_proj"),
              HasSubstr("up_proj._weight_scale' is stored in tiles of 128 x 4"));
}

TEST(StoredMatrix, AScaleOfAnotherShapeIsNamed) {
  EditedCheckpoint blocks("fp8-block");
  blocks.set("model.layers.0.mlp.down_proj.weight_scale_inv", {2, 2}, {1, 1, 1, 1});
  EXPECT_THAT(refusal(blocks, "model.layers.0.mlp.down_proj"),
              HasSubstr("down_proj.weight_scale_inv' has shape [2,2] beside a weight of [64,96], expected [2,3]"));
  EditedCheckpoint groups("ct-nvfp4");
  auto& scale = groups.tensors.at("model.layers.0.mlp.up_proj.weight_scale");
  scale.shape = {96, 2};
  scale.bytes.resize(192);
  EXPECT_THAT(refusal(groups, "model.layers.0.mlp.up_proj"), HasSubstr("expected [96,4]: one for 16"));
}

TEST(StoredMatrix, PackedCodesNeedAScale) {
  EditedCheckpoint checkpoint("ct-mxfp4");
  checkpoint.tensors.erase("model.layers.0.mlp.up_proj.weight_scale");
  EXPECT_THAT(refusal(checkpoint, "model.layers.0.mlp.up_proj"), HasSubstr("is packed and has no scale beside it"));
}

TEST(StoredMatrix, PackedIntegersThatDoNotFitAreNamed) {
  const auto shortened = [](const char* name, const std::string& tensor, const std::string& path) {
    EditedCheckpoint checkpoint(name);
    auto& one = checkpoint.tensors.at(path + tensor);
    const auto row = one.bytes.size() / static_cast<std::size_t>(one.shape.front());
    --one.shape.front();
    one.bytes.resize(one.bytes.size() - row);
    return refusal(checkpoint, path);
  };
  const std::string up = "model.layers.0.mlp.up_proj";
  EXPECT_THAT(shortened("gptq-int4", ".scales", up), HasSubstr("up_proj.scales' has shape [1,96], expected [2,96]"));
  EXPECT_THAT(shortened("gptq-int4", ".qzeros", up), HasSubstr("up_proj.qzeros' has shape [1,12], expected [2,12]"));
  EXPECT_THAT(shortened("gptq-int4", ".g_idx", up), HasSubstr("up_proj.g_idx' is I32 [63], expected I32 [64]"));
  EXPECT_THAT(shortened("awq-int4", ".qweight", up), HasSubstr("up_proj.qweight' has 63 columns"));
  EXPECT_THAT(shortened("ct-int4", ".weight_packed", up), HasSubstr("fit a weight of [96,64] by none of the config's"));
  EXPECT_THAT(shortened("bnb-nf4", ".weight", up), HasSubstr("bytes, expected 3072 for [96,64]"));
}

TEST(StoredMatrix, GroupsThatAreNotThereAreNamed) {
  EditedCheckpoint checkpoint("gptq-int4-desc-act");
  auto& index = checkpoint.tensors.at("model.layers.0.mlp.up_proj.g_idx");
  index.bytes[4 * 5] = std::byte{2};
  EXPECT_THAT(refusal(checkpoint, "model.layers.0.mlp.up_proj"), HasSubstr("has group 2 for column 5"));
}

/// The same codes under the names and in the shapes of other producers decode to the same.
TEST(StoredMatrix, OtherNamesAreTheSameWeight) {
  EditedCheckpoint checkpoint("ct-mxfp4");
  const std::string module = "model.layers.0.mlp.up_proj";
  const auto hash = [](const EditedCheckpoint& edited, std::string_view path) -> std::string {
    const std::filesystem::path folder = edited.write();
    const auto config = read_quantization_config(folder).value();
    const auto files = CheckpointFiles::open(folder).value();
    for (const StoredModule& one : stored_modules(files)) {
      if (one.path != path) continue;
      const auto matrix = stored_matrix(one, config);
      return matrix ? fnv1a(*matrix) : matrix.error().text;
    }
    return "no such module";
  };
  const std::string own = hash(checkpoint, module);
  // gpt-oss: experts, rows, blocks of 32, 16 bytes each.
  auto codes = checkpoint.tensors.at(module + ".weight_packed");
  auto scales = checkpoint.tensors.at(module + ".weight_scale");
  codes.shape = {2, 48, 2, 16};
  scales.shape = {2, 48, 2};
  checkpoint.tensors["model.layers.0.mlp.experts.up_proj_blocks"] = codes;
  checkpoint.tensors["model.layers.0.mlp.experts.up_proj_scales"] = scales;
  EXPECT_EQ(hash(checkpoint, "model.layers.0.mlp.experts.up_proj"), own);
  // DeepSeek-V4: experts' codes are I8, their scale is called so.
  checkpoint.rename(module + ".weight_packed", module + ".weight");
  checkpoint.rename(module + ".weight_scale", module + ".scale");
  checkpoint.tensors.at(module + ".weight").dtype = "I8";
  checkpoint.tensors.at(module + ".scale").dtype = "F8_E8M0";
  EXPECT_EQ(hash(checkpoint, module), own);
}

TEST(QuantizationConfig, IsReadInEachOfItsPlaces) {
  const auto read = [](std::string_view config, std::string_view modelopt = {}) {
    return parse_quantization_config(config, "config.json", modelopt, "hf_quant_config.json").value();
  };
  EXPECT_EQ(read("{}").method, QuantMethod::none);
  const auto nested = read(R"({"text_config": {"quantization_config": {"quant_method": "fp8",
      "activation_scheme": "static", "weight_block_size": [128, 64], "ignored_layers": ["a"],
      "modules_to_not_convert": ["b"], "scale_fmt": "ue8m0"}}})");
  EXPECT_EQ(nested.method, QuantMethod::fp8);
  EXPECT_EQ(nested.inputs, InputScales::fixed);
  EXPECT_EQ(nested.block, (std::array<std::int64_t, 2>{128, 64}));
  EXPECT_THAT(nested.ignored, ::testing::UnorderedElementsAre("a", "b"));
  EXPECT_TRUE(nested.powers_of_two);
  const auto beside = read("{}", R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
      "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "*.router"]}})");
  EXPECT_EQ(beside.method, QuantMethod::modelopt);
  EXPECT_EQ(beside.kv_cache, "FP8");
  EXPECT_EQ(beside.ignored.size(), 2U);
}

TEST(QuantizationConfig, WhatIsNoConfigIsRefusedByKey) {
  const auto said = [](std::string_view config) {
    const auto read = parse_quantization_config(config, "config.json", {}, {});
    EXPECT_FALSE(read);
    return read ? "" : read.error().message;
  };
  EXPECT_THAT(said("["), HasSubstr("config.json: not a JSON text"));
  EXPECT_THAT(said(R"({"quantization_config": 3})"), HasSubstr("config.json: quantization_config: not a JSON object"));
  EXPECT_THAT(said(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}})"),
              HasSubstr("weight_block_size: expected rows and columns of 1 to"));
  EXPECT_THAT(said(R"({"quantization_config": {"quant_method": 7}})"), HasSubstr("quant_method"));
}

}  // namespace
}  // namespace nanscope
