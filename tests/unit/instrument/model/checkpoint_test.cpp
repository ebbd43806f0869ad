// Checkpoint folders: parts of fused and transposed tensors, shards, and folders that are damaged or hostile.
#include "instrument/model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/numbers/decode_span.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Tensors of f32 that count up from a first value.
class Tensors {
 public:
  Tensors& add(std::string name, std::vector<std::int64_t> shape, float first, std::string dtype = "F32") {
    std::int64_t count = 1;
    for (const std::int64_t side : shape) count *= side;
    auto& values = memory_.emplace_back(std::make_unique<std::vector<float>>());
    for (std::int64_t i = 0; i < count; ++i) values->push_back(first + static_cast<float>(i));
    const std::size_t bytes = dtype == "F32" ? 4 : 1;
    inputs_.push_back({std::move(name), std::move(dtype), std::move(shape),
                       std::as_bytes(std::span(*values)).first(static_cast<std::size_t>(count) * bytes)});
    return *this;
  }
  /// With a config.json, which says how weights are quantized: not at all.
  void write(const std::filesystem::path& path) const {
    std::ofstream(path.parent_path() / "config.json") << "{}";
    const std::vector<std::byte> bytes = encode_safetensors(inputs_).value();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  std::vector<SafetensorsInput> inputs_;
};

void write_text(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

/// Heads of 2, one of them for keys: four rows of q, two of k, two of v.
ModelConfig small_model() {
  ModelConfig model;
  model.layers = 1;
  model.width = 3;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 2;
  model.mlp_width = 2;
  return model;
}

std::vector<float> values_of(const Checkpoint& checkpoint, std::string_view name, std::int64_t rows,
                             std::int64_t columns) {
  const Result<WeightData> data = checkpoint.weight(name, rows, columns);
  EXPECT_TRUE(data) << (data ? "" : data.error().message);
  if (!data) return {};
  EXPECT_EQ(data->stride, columns);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  decode(data->format, std::span(data->data, values.size() * info(data->format).storage_bytes()), values);
  return values;
}

std::string refusal(const std::filesystem::path& folder, std::string_view family = "llama") {
  const auto checkpoint = Checkpoint::open(folder, *find_family(family), small_model());
  EXPECT_FALSE(checkpoint);
  return checkpoint ? "" : checkpoint.error().message;
}

/// As state_dict() of transformers 5 names them.
TEST(Checkpoint, ExpertsMayLieInOneTensor) {
  const TemporaryFolder folder;
  Tensors()
      .add("model.layers.0.mlp.experts.gate_up_proj", {2, 4, 3}, 0)
      .add("model.layers.0.mlp.experts.down_proj", {2, 3, 2}, 100)
      .add("model.layers.0.mlp.gate.weight", {2, 3}, 200)
      .write(folder / "model.safetensors");
  ModelConfig model = small_model();
  model.experts = 2;
  const auto checkpoint = Checkpoint::open(folder.path(), *find_family("mixtral"), model).value();
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.0.gate_proj.weight", 2, 3), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.1.up_proj.weight", 2, 3), ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.1.down_proj.weight", 3, 2),
              ElementsAre(106, 107, 108, 109, 110, 111));
  EXPECT_EQ(values_of(*checkpoint, "layers.0.router.weight", 2, 3).front(), 200);
  model.experts = 3;
  const auto other = Checkpoint::open(folder.path(), *find_family("mixtral"), model).value();
  const Result<WeightData> missing = other->weight("layers.0.experts.2.down_proj.weight", 3, 2);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("expected [3,3,2]"));
}

/// gpt-oss: (in, out), gate and up in turns, with biases.
TEST(Checkpoint, ExpertsMayLieTurnedAndInTurns) {
  const TemporaryFolder folder;
  Tensors()
      .add("model.layers.0.mlp.experts.gate_up_proj", {2, 3, 4}, 0)
      .add("model.layers.0.mlp.experts.gate_up_proj_bias", {2, 4}, 50)
      .add("model.layers.0.mlp.experts.down_proj", {2, 2, 3}, 100)
      .add("model.layers.0.mlp.experts.down_proj_bias", {2, 3}, 150)
      .add("model.layers.0.self_attn.sinks", {2}, 200)
      .write(folder / "model.safetensors");
  ModelConfig model = small_model();
  model.experts = 2;
  const auto checkpoint = Checkpoint::open(folder.path(), *find_family("gpt_oss"), model).value();
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.0.gate_proj.weight", 2, 3), ElementsAre(0, 4, 8, 2, 6, 10));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.1.up_proj.weight", 2, 3), ElementsAre(13, 17, 21, 15, 19, 23));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.1.down_proj.weight", 3, 2),
              ElementsAre(106, 109, 107, 110, 108, 111));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.1.gate_proj.bias", 1, 2), ElementsAre(54, 56));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.0.up_proj.bias", 1, 2), ElementsAre(51, 53));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.experts.1.down_proj.bias", 1, 3), ElementsAre(153, 154, 155));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.attention.sinks", 1, 2), ElementsAre(200, 201));
}

TEST(Checkpoint, PartsOfFusedProjectionsAreRowsOfThem) {
  const TemporaryFolder folder;
  Tensors()
      .add("model.layers.0.self_attn.qkv_proj.weight", {8, 3}, 0)
      .add("model.layers.0.mlp.gate_up_proj.weight", {4, 3}, 100)
      .write(folder / "model.safetensors");
  const auto checkpoint = Checkpoint::open(folder.path(), *find_family("phi3"), small_model()).value();
  EXPECT_EQ(values_of(*checkpoint, "layers.0.q_proj.weight", 4, 3).front(), 0);
  EXPECT_THAT(values_of(*checkpoint, "layers.0.k_proj.weight", 2, 3), ElementsAre(12, 13, 14, 15, 16, 17));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.v_proj.weight", 2, 3), ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.up_proj.weight", 2, 3), ElementsAre(106, 107, 108, 109, 110, 111));
}

TEST(Checkpoint, Conv1DIsTurnedRound) {
  const TemporaryFolder folder;
  Tensors()
      .add("h.0.attn.c_attn.weight", {3, 8}, 0)  // saved without the head: no "transformer." before it
      .add("h.0.attn.c_attn.bias", {8}, 50)
      .write(folder / "model.safetensors");
  const auto checkpoint = Checkpoint::open(folder.path(), *find_family("gpt2"), small_model()).value();
  EXPECT_THAT(values_of(*checkpoint, "layers.0.k_proj.weight", 2, 3), ElementsAre(4, 12, 20, 5, 13, 21));
  EXPECT_THAT(values_of(*checkpoint, "layers.0.v_proj.bias", 1, 2), ElementsAre(56, 57));
}

TEST(Checkpoint, GainsOfGemmaAreOneMore) {
  const TemporaryFolder folder;
  Tensors().add("model.norm.weight", {3}, 0.5F).write(folder / "model.safetensors");
  const auto checkpoint = Checkpoint::open(folder.path(), *find_family("gemma2"), small_model()).value();
  EXPECT_THAT(values_of(*checkpoint, "final_norm.weight", 1, 3), ElementsAre(1.5F, 2.5F, 3.5F));
}

TEST(Checkpoint, ShardsAreOneCheckpoint) {
  const TemporaryFolder folder;
  Tensors().add("model.norm.weight", {3}, 1).write(folder / "a.safetensors");
  Tensors().add("lm_head.weight", {2, 3}, 7).write(folder / "b.safetensors");
  write_text(folder / "model.safetensors.index.json",
             R"({"weight_map": {"model.norm.weight": "a.safetensors", "lm_head.weight": "b.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path(), *find_family("llama"), small_model()).value();
  EXPECT_THAT(values_of(*checkpoint, "final_norm.weight", 1, 3), ElementsAre(1, 2, 3));
  EXPECT_EQ(values_of(*checkpoint, "lm_head.weight", 2, 3).back(), 12);
  EXPECT_TRUE(checkpoint->check_all_used({"final_norm.weight", "lm_head.weight"}));
  const Status unused = checkpoint->check_all_used({"final_norm.weight"});
  ASSERT_FALSE(unused);
  EXPECT_THAT(unused.error().message, HasSubstr("'lm_head.weight' first"));
}

/// Layers behind the last predict further tokens, and only as many as the config.json says.
TEST(Checkpoint, LayersThatPredictFurtherTokensAreLeftOut) {
  const TemporaryFolder folder;
  Tensors()
      .add("model.norm.weight", {3}, 1)
      .add("model.layers.1.eh_proj.weight", {3, 6}, 1)
      .write(folder / "model.safetensors");
  for (const std::int64_t layers : {0, 1}) {
    ModelConfig model = small_model();
    model.mtp_layers = layers;
    const auto checkpoint = Checkpoint::open(folder.path(), *find_family("glm4_moe"), model).value();
    EXPECT_EQ(checkpoint->check_all_used({"final_norm.weight"}).has_value(), layers == 1);
  }
}

TEST(Checkpoint, AWeightThatDoesNotFitIsNamed) {
  const TemporaryFolder folder;
  Tensors()
      .add("model.norm.weight", {4}, 1)
      .add("lm_head.weight", {2, 3}, 1, "F8_E4M3")
      .write(folder / "model.safetensors");
  const auto checkpoint = Checkpoint::open(folder.path(), *find_family("llama"), small_model()).value();
  const auto said = [&](std::string_view name, std::int64_t rows, std::int64_t columns) {
    const Result<WeightData> data = checkpoint->weight(name, rows, columns);
    EXPECT_FALSE(data);
    return data ? "" : data.error().message;
  };
  EXPECT_THAT(said("final_norm.weight", 1, 3), HasSubstr("'model.norm.weight' has shape [4], expected [3]"));
  EXPECT_THAT(said("lm_head.weight", 2, 3),
              HasSubstr("is F8_E4M3 without a scale; weights in F32, BF16 and F16 are run"));
  EXPECT_THAT(said("layers.0.q_proj.weight", 4, 3), HasSubstr("no tensor 'model.layers.0.self_attn.q_proj.weight'"));
  EXPECT_THAT(said("layers.0.q_norm.weight", 1, 2), HasSubstr("llama checkpoints have no weight"));
}

TEST(Checkpoint, DamagedFoldersAreOneLine) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal(folder.path()), HasSubstr("neither model.safetensors nor"));
  Tensors().add("model.norm.weight", {3}, 1).write(folder / "a.safetensors");
  const auto index = [&](const std::string& text) {
    write_text(folder / "model.safetensors.index.json", text);
    const std::string said = refusal(folder.path());
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    EXPECT_EQ(said.find('\x1b'), std::string::npos) << said;
    return said;
  };
  EXPECT_THAT(index("{"), HasSubstr("not a JSON text"));
  EXPECT_THAT(index("{}"), HasSubstr("weight_map"));
  EXPECT_THAT(index(R"({"weight_map": {}})"), HasSubstr("names 0 files"));
  EXPECT_THAT(index(R"({"weight_map": {"a": "missing.safetensors"}})"), HasSubstr("missing.safetensors"));
  EXPECT_THAT(index(R"({"weight_map": {"model.lost": "a.safetensors"}})"), HasSubstr("no tensor 'model.lost'"));
  for (const std::string name : {"../a.safetensors", "/etc/passwd", "sub/a.safetensors", "..", ""}) {
    EXPECT_THAT(index(R"({"weight_map": {"a": ")" + name + "\"}}"), HasSubstr("no file of this folder")) << name;
  }
  EXPECT_THAT(index(R"({"weight_map": {"a\u001b[2J": 3}})"), HasSubstr("no file of this folder"));
  EXPECT_THAT(index(std::string(100000, '[')), HasSubstr("nested too deeply"));
  std::filesystem::resize_file(folder / "a.safetensors", std::filesystem::file_size(folder / "a.safetensors") - 4);
  EXPECT_THAT(index(R"({"weight_map": {"model.norm.weight": "a.safetensors"}})"), HasSubstr("a.safetensors"));
}

TEST(Checkpoint, AFileThatIsWrittenToIsNoticed) {
  const TemporaryFolder folder;
  Tensors().add("model.norm.weight", {3}, 1).write(folder / "model.safetensors");
  const auto checkpoint = Checkpoint::open(folder.path(), *find_family("llama"), small_model()).value();
  EXPECT_TRUE(checkpoint->check_unchanged());
  Tensors().add("model.norm.weight", {4}, 2).write(folder / "model.safetensors");
  EXPECT_FALSE(checkpoint->check_unchanged());
}

}  // namespace
}  // namespace nanscope
