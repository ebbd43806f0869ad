// The tiny checkpoints of families as GGUF files: they are written here as llama.cpp's converter does it (names, order
// of heads, gains), and have to be the checkpoints again. tests/real/gguf_models.py compares files of the package gguf
// with transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "instrument/engine/knobs.h"
#include "instrument/engine/model_folder.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/model/checkpoint.h"
#include "instrument/model/rope_table.h"
#include "instrument/quantize/quantize.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/gguf/gguf_builder.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing_gguf::Builder;

fs::path checkpoint_folder(const std::string& name) {
  return fs::path(NANSCOPE_SOURCE_DIR "/tests/unit/instrument/model/checkpoints") / name;
}

void write_file(const fs::path& path, const std::vector<std::byte>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// Parts of names, the longest first, as gguf-py has them (constants.py, tensor_mapping.py).
const std::vector<std::pair<std::string, std::string>>& parts_of_names() {
  static const std::vector<std::pair<std::string, std::string>> parts = {
      {"model.layers.", "blk."},
      {"transformer.h.", "blk."},
      {"model.embed_tokens", "token_embd"},
      {"transformer.wte", "token_embd"},
      {"transformer.wpe", "position_embd"},
      {"transformer.ln_f", "output_norm"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"input_layernorm", "attn_norm"},
      {"ln_1", "attn_norm"},
      {"ln_2", "ffn_norm"},
      {"attn.c_attn", "attn_qkv"},
      {"attn.c_proj", "attn_output"},
      {"mlp.c_fc", "ffn_up"},
      {"mlp.c_proj", "ffn_down"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.qkv_proj", "attn_qkv"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"block_sparse_moe.gate", "ffn_gate_inp"},
      {"mlp.gate_up_proj", "ffn_up"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
  };
  return parts;
}

bool replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return at != std::string::npos;
}

/// What a family's conversion has beside the names of all.
struct Conversion {
  std::string checkpoint;
  std::string architecture;
  bool rotates_neighbours = false;
  bool gains_of_one = false;
  bool turned = false;
  std::string post_attention_norm = "ffn_norm";
};

/// A matrix of f32 rows.
struct Matrix {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

Matrix converted(Matrix from, const std::string& name, const Conversion& how, const ModelConfig& model) {
  const auto rows = static_cast<std::size_t>(from.shape.front());
  const std::size_t columns = from.values.size() / rows;
  Matrix to = from;
  const bool query = name.find("q_proj") != std::string::npos;
  if (how.rotates_neighbours && (query || name.find("k_proj") != std::string::npos)) {
    const auto half = static_cast<std::size_t>(model.head_dim / 2);
    // Of each head, row i of the first half and row i of the second stand beside each other.
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t head = row / (2 * half);
      const std::size_t within = row % (2 * half);
      const std::size_t place = head * 2 * half + within % half * 2 + within / half;
      std::memcpy(&to.values[place * columns], &from.values[row * columns], columns * sizeof(float));
    }
  }
  if (how.gains_of_one && name.ends_with("norm.weight")) {
    for (float& value : to.values) value += 1;
  }
  const bool linear = name.find(".c_") != std::string::npos && from.shape.size() == 2;
  if (how.turned && linear) {
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t column = 0; column < columns; ++column)
        to.values[column * rows + row] = from.values[row * columns + column];
    }
    std::swap(to.shape[0], to.shape[1]);
  }
  return to;
}

std::string converted_name(std::string name, const Conversion& how) {
  replace(name, "post_attention_layernorm", how.post_attention_norm);
  for (const auto& [from, to] : parts_of_names()) replace(name, from, to);
  return name;
}

void add_keys(Builder& file, const Conversion& how, const EngineConfig& config) {
  const ModelConfig& model = config.model;
  const auto key = [&](const char* name) { return how.architecture + "." + name; };
  const auto number = [&](const char* name, std::int64_t value) {
    file.u32(key(name), static_cast<std::uint32_t>(value));
  };
  file.text("general.architecture", how.architecture).text("general.name", "small");
  number("block_count", model.layers);
  number("embedding_length", model.width);
  number("feed_forward_length", model.mlp_width);
  number("attention.head_count", model.heads);
  number("context_length", model.positions > 0 ? model.positions : 128);
  if (how.architecture == "gpt2") {
    file.f32(key("attention.layer_norm_epsilon"), config.norm.eps);
    return;
  }
  number("attention.head_count_kv", model.kv_heads);
  number("attention.key_length", model.head_dim);
  number("attention.value_length", model.head_dim);
  number("rope.dimension_count", model.rotated > 0 ? model.rotated : model.head_dim);
  file.f32(key("rope.freq_base"), static_cast<float>(model.rope_base));
  file.f32(key("attention.layer_norm_rms_epsilon"), config.norm.eps);
  if (model.window > 0 && how.architecture != "llama") number("attention.sliding_window", model.window);
  if (model.attention_softcap > 0) file.f32(key("attn_logit_softcapping"), static_cast<float>(model.attention_softcap));
  if (model.logit_softcap > 0) file.f32(key("final_logit_softcapping"), static_cast<float>(model.logit_softcap));
  if (model.experts > 0) {
    number("expert_count", model.experts);
    number("expert_used_count", model.experts_per_token);
  }
  const RopeConfig& rope = config.rope;
  if (rope.scaling == RopeScaling::linear || rope.scaling == RopeScaling::yarn) {
    file.text(key("rope.scaling.type"), rope.scaling == RopeScaling::yarn ? "yarn" : "linear");
    file.f32(key("rope.scaling.factor"), static_cast<float>(rope.factor));
  }
  if (rope.scaling == RopeScaling::yarn || rope.scaling == RopeScaling::longrope)
    number("rope.scaling.original_context_length", rope.trained);
}

void add_factors(Builder& file, const EngineConfig& config) {
  const auto add = [&](const char* name, const std::vector<double>& factors) {
    file.floats(name, {factors.size()}, {factors.begin(), factors.end()});
  };
  if (config.rope.scaling == RopeScaling::longrope) {
    add("rope_factors_long.weight", config.rope.long_factors);
    add("rope_factors_short.weight", config.rope.short_factors);
  }
  if (config.rope.scaling != RopeScaling::llama3) return;
  RopeConfig plain;
  const auto slowed = rope_table(config.model, config.rope, false, 1).frequencies;
  const auto whole = rope_table(config.model, plain, false, 1).frequencies;
  std::vector<double> factors;
  for (std::size_t i = 0; i < whole.size(); ++i) factors.push_back(double{whole[i]} / double{slowed[i]});
  add("rope_freqs.weight", factors);
}

/// The tensors of the experts of a layer follow each other in one.
void add_expert(std::map<std::string, Matrix>& stacked, const std::string& name, const Matrix& part) {
  static const std::map<std::string, std::string> kParts = {{"w1", "gate"}, {"w3", "up"}, {"w2", "down"}};
  const std::string layer = name.substr(13, name.find('.', 13) - 13);
  const std::string which = name.substr(name.rfind('.', name.size() - 8) + 1, 2);
  Matrix& all = stacked["blk." + layer + ".ffn_" + kParts.at(which) + "_exps.weight"];
  if (all.shape.empty()) all.shape = {0, part.shape[0], part.shape[1]};
  ++all.shape[0];
  all.values.insert(all.values.end(), part.values.begin(), part.values.end());
}

Builder as_gguf(const Conversion& how) {
  const fs::path folder = checkpoint_folder(how.checkpoint);
  EngineConfig config;
  EXPECT_TRUE(use_model_folder(config, folder));
  Builder file;
  add_keys(file, how, config);
  const SafetensorsFile weights = SafetensorsFile::open(folder / "model.safetensors").value();
  std::map<std::string, Matrix> stacked;
  for (int expert = 0; expert < std::max<int>(1, static_cast<int>(config.model.experts)); ++expert) {
    for (const SafetensorsEntry& entry : weights.entries()) {
      const std::string own = ".experts." + std::to_string(expert) + ".";
      const bool of_expert = entry.name.find(".experts.") != std::string::npos;
      if (of_expert ? entry.name.find(own) == std::string::npos : expert > 0) continue;
      const Matrix matrix{entry.shape, safetensors_values(entry, weights.bytes(entry)).value()};
      if (of_expert) {
        add_expert(stacked, entry.name, matrix);
      } else {
        stacked.emplace(converted_name(entry.name, how), converted(matrix, entry.name, how, config.model));
      }
    }
  }
  for (const auto& [name, matrix] : stacked)
    file.floats(name, {matrix.shape.rbegin(), matrix.shape.rend()}, matrix.values);
  add_factors(file, config);
  return file;
}

const std::vector<Conversion>& conversions() {
  static const std::vector<Conversion> all = {
      {.checkpoint = "llama2", .architecture = "llama", .rotates_neighbours = true},
      {.checkpoint = "llama3", .architecture = "llama", .rotates_neighbours = true},
      {.checkpoint = "llama-linear", .architecture = "llama", .rotates_neighbours = true},
      {.checkpoint = "mixtral", .architecture = "llama", .rotates_neighbours = true},
      {.checkpoint = "qwen2", .architecture = "qwen2"},
      {.checkpoint = "qwen3", .architecture = "qwen3"},
      {.checkpoint = "phi3", .architecture = "phi3"},
      {.checkpoint = "gpt2", .architecture = "gpt2", .turned = true},
      {.checkpoint = "olmo2", .architecture = "olmo2", .post_attention_norm = "post_attention_norm"},
      {.checkpoint = "gemma2",
       .architecture = "gemma2",
       .gains_of_one = true,
       .post_attention_norm = "post_attention_norm"},
      {.checkpoint = "gemma3",
       .architecture = "gemma3",
       .gains_of_one = true,
       .post_attention_norm = "post_attention_norm"}};
  return all;
}

class GgufFamilies : public ::testing::TestWithParam<Conversion> {};

TEST_P(GgufFamilies, WeightsAreThoseOfTheCheckpoint) {
  const TemporaryFolder folder;
  write_file(folder / "m.gguf", as_gguf(GetParam()).build());
  const auto files = CheckpointFiles::open(folder / "m.gguf");
  ASSERT_TRUE(files) << files.error().message;
  const SafetensorsFile wanted =
      SafetensorsFile::open(checkpoint_folder(GetParam().checkpoint) / "model.safetensors").value();
  EXPECT_EQ(files->tensors().size(), wanted.entries().size());
  for (const SafetensorsEntry& entry : wanted.entries()) {
    const CheckpointFiles::Tensor found = files->find(entry.name);
    ASSERT_NE(found.entry, nullptr) << entry.name;
    EXPECT_EQ(found.entry->shape, entry.shape) << entry.name;
    const auto values = safetensors_values(entry, wanted.bytes(entry)).value();
    const CheckpointFiles::Held held = found.held();
    ASSERT_EQ(held.bytes.size(), values.size() * sizeof(float)) << entry.name;
    const bool gain = GetParam().gains_of_one && entry.name.ends_with("norm.weight");
    for (std::size_t i = 0; i < values.size(); ++i) {
      float one = 0;
      std::memcpy(&one, held.bytes.data() + i * sizeof(float), sizeof(float));
      const float stored = values[i] + 1;  // rounded
      ASSERT_EQ(one, gain ? stored - 1 : values[i]) << entry.name << ' ' << i;
    }
  }
}

/// Settings that no key of GGUF has, or that are written in another form.
std::set<std::string> other_knobs(const std::string& checkpoint) {
  std::set<std::string> all = {"model.weights", "model.end_tokens"};
  if (checkpoint == "llama3")
    all.insert({"rope.scaling", "rope.factor", "rope.trained", "rope.amplitude", "rope.short_factors",
                "rope.long_factors", "rope.low_factor", "rope.high_factor"});
  if (checkpoint == "phi3") all.insert({"rope.short_factors", "rope.long_factors"});  // in f32; the angles are compared
  if (checkpoint == "gemma2" || checkpoint == "gemma3") all.insert("model.attention_scale");
  if (checkpoint == "gemma3") all.insert("model.full_layers");
  return all;
}

TEST_P(GgufFamilies, SettingsAreThoseOfTheCheckpoint) {
  const TemporaryFolder folder;
  write_file(folder / "m.gguf", as_gguf(GetParam()).build());
  EngineConfig wanted;
  EngineConfig found;
  ASSERT_TRUE(use_model_folder(wanted, checkpoint_folder(GetParam().checkpoint)));
  const Status used = use_model_folder(found, folder.path());
  ASSERT_TRUE(used) << used.error().message;
  const std::set<std::string> others = other_knobs(GetParam().checkpoint);
  for (const Knob& knob : knobs()) {
    if (others.contains(knob.name)) continue;
    const std::string a = knob.get(wanted);
    const std::string b = knob.get(found);
    // The file's numbers are f32.
    const bool number = knob.allowed == "number" && !a.empty() && !b.empty();
    if (number ? std::abs(std::stod(a) - std::stod(b)) > 1e-6 * std::abs(std::stod(a)) : a != b)
      ADD_FAILURE() << knob.name << ": " << b << " instead of " << a;
  }
  for (const bool local : {false, true}) {
    for (const std::int64_t context : {8, 100}) {
      const RopeTable a = rope_table(wanted.model, wanted.rope, local, context);
      const RopeTable b = rope_table(found.model, found.rope, local, context);
      ASSERT_EQ(a.frequencies.size(), b.frequencies.size());
      EXPECT_NEAR(a.amplitude, b.amplitude, 1e-6);
      for (std::size_t i = 0; i < a.frequencies.size(); ++i)
        EXPECT_NEAR(a.frequencies[i], b.frequencies[i], 1e-6 * a.frequencies[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GgufFamilies, ::testing::ValuesIn(conversions()), [](const auto& info) {
  std::string name = info.param.checkpoint;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(GgufNames, OfMixturesAreSplitByExpert) {
  const auto of = [](std::string_view tensor, std::string_view type) { return original_name(tensor, type).name; };
  for (const char* type : {"qwen2_moe", "qwen3_moe"}) {
    EXPECT_EQ(of("blk.3.ffn_gate_inp.weight", type), "model.layers.3.mlp.gate.weight");
    EXPECT_EQ(of("blk.3.ffn_gate_exps.weight", type), "model.layers.3.mlp.experts.{}.gate_proj.weight");
    EXPECT_EQ(of("blk.3.ffn_up_exps.weight", type), "model.layers.3.mlp.experts.{}.up_proj.weight");
    EXPECT_EQ(of("blk.3.ffn_down_exps.weight", type), "model.layers.3.mlp.experts.{}.down_proj.weight");
  }
  EXPECT_EQ(of("blk.0.ffn_up_shexp.weight", "qwen2_moe"), "model.layers.0.mlp.shared_expert.up_proj.weight");
  EXPECT_EQ(of("blk.0.ffn_gate_shexp.weight", "qwen2_moe"), "model.layers.0.mlp.shared_expert.gate_proj.weight");
  EXPECT_EQ(of("blk.0.ffn_down_shexp.weight", "qwen2_moe"), "model.layers.0.mlp.shared_expert.down_proj.weight");
  EXPECT_EQ(of("blk.0.ffn_gate_inp_shexp.weight", "qwen2_moe"), "model.layers.0.mlp.shared_expert_gate.weight");
  EXPECT_EQ(original_name("blk.0.ffn_gate_inp_shexp.weight", "qwen2_moe").change, GgufChange::flat);
  EXPECT_EQ(of("blk.0.unheard_of.weight", "llama"), "blk.0.unheard_of.weight");
  EXPECT_EQ(of("blk.0.attn_q.weight", ""), "blk.0.attn_q.weight");
}

Builder small_llama() { return as_gguf({.checkpoint = "llama2", .architecture = "llama", .rotates_neighbours = true}); }

std::string refusal(const TemporaryFolder& folder, const Builder& file) {
  write_file(folder / "m.gguf", file.build());
  const auto spec = read_model_spec(folder / "m.gguf");
  return spec ? "" : spec.error().message;
}

TEST(GgufConfigs, AreRefusedByTheKeyThatIsNotUnderstood) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal(folder, small_llama().f32("llama.logit_scale", 2)),
              HasSubstr("m.gguf: not supported: llama.logit_scale"));
  EXPECT_THAT(
      refusal(folder, small_llama().text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.attn_factor", 1)),
      HasSubstr("not supported: llama.rope.scaling.attn_factor"));
  EXPECT_THAT(refusal(folder, Builder().text("general.architecture", "mamba")),
              HasSubstr("general.architecture: 'mamba' is none that is run; there are gemma2, "));
  EXPECT_THAT(refusal(folder, Builder().text("general.architecture", "qwen2")),
              HasSubstr("no tensor 'token_embd.weight'"));
  Builder bare;
  bare.text("general.architecture", "qwen2").floats("token_embd.weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(refusal(folder, bare), HasSubstr("qwen2.embedding_length: is missing"));
  bare.text("qwen2.embedding_length", "two");
  EXPECT_THAT(refusal(folder, bare), HasSubstr("qwen2.embedding_length: expected one whole number"));
}

/// No key has the scale of Gemma's scores: it is that of a head's channels but in the largest models.
TEST(GgufConfigs, ScaleGemmasScoresByTheSizeOfTheModel) {
  const auto scale_of = [](const char* architecture, std::uint32_t layers) {
    const TemporaryFolder folder;
    Builder file;
    const auto key = [&](const char* name) { return std::string(architecture) + "." + name; };
    file.text("general.architecture", architecture).u32(key("block_count"), layers).u32(key("embedding_length"), 96);
    file.u32(key("attention.head_count"), 4).u32(key("attention.key_length"), 16).u32(key("feed_forward_length"), 8);
    write_file(folder / "m.gguf", file.floats("token_embd.weight", {1, 1}, {1}).build());
    return read_model_spec(folder / "m.gguf").value().model.attention_scale;
  };
  EXPECT_DOUBLE_EQ(scale_of("gemma2", 26), 1 / std::sqrt(16.0));
  EXPECT_DOUBLE_EQ(scale_of("gemma2", 46), 1 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(scale_of("gemma3", 26), 1 / std::sqrt(16.0));
  EXPECT_DOUBLE_EQ(scale_of("gemma3", 62), 1 / std::sqrt(24.0));
}

TEST(GgufConfigs, NameATokenizerThatIsRead) {
  const TemporaryFolder folder;
  const auto tokenizer_of = [&](const char* model, const char* pre) {
    Builder file = small_llama();
    write_file(folder / "m.gguf", file.text("tokenizer.ggml.model", model).text("tokenizer.ggml.pre", pre).build());
    return read_model_spec(folder / "m.gguf").value().model.tokenizer;
  };
  EXPECT_EQ(tokenizer_of("gpt2", "llama-bpe"), (folder / "m.gguf").string());
  EXPECT_EQ(tokenizer_of("gpt2", "unheard-of"), "");
  EXPECT_EQ(tokenizer_of("gpt2", ""), "");
  EXPECT_EQ(tokenizer_of("llama", "default"), "");
}

TEST(GgufModels, TensorsThatDoNotFitAreNamed) {
  const TemporaryFolder folder;
  const auto opened = [&](const Builder& file) {
    write_file(folder / "m.gguf", file.build());
    const auto files = CheckpointFiles::open(folder / "m.gguf");
    return files ? std::string() : files.error().message;
  };
  EXPECT_EQ(opened(small_llama()), "");
  Builder other = small_llama();
  other.tensors.push_back({"blk.0.x.weight", {4}, 41, std::vector<std::byte>(4)});
  EXPECT_THAT(opened(other), HasSubstr("tensor 'blk.0.x.weight' is of type 41, which is not decoded"));
  EXPECT_THAT(opened(small_llama().floats("blk.9.attn_q.weight", {2, 3}, {1, 2, 3, 4, 5, 6})),
              HasSubstr("'blk.9.attn_q.weight' of 3 rows, expected a multiple of twice the 4 heads"));
  EXPECT_THAT(opened(small_llama().floats("model.norm.weight", {1}, {1})),
              HasSubstr("two tensors are 'model.norm.weight'"));
  // A tensor that no weight is made of is refused where the model is loaded.
  write_file(folder / "m.gguf", small_llama().floats("blk.0.extra.weight", {1}, {1}).build());
  EngineConfig config;
  ASSERT_TRUE(use_model_folder(config, folder / "m.gguf"));
  const auto checkpoint = Checkpoint::open(config.model.weights, *find_family("llama"), config.model);
  ASSERT_TRUE(checkpoint);
  EXPECT_THAT((*checkpoint)->check_all_used({}).error().message, HasSubstr("belong to no weight"));
  EXPECT_THAT((*checkpoint)->place("layers.0.q_proj.weight", 32, 32).error().message,
              HasSubstr("lies in a GGUF file, and can be read alone"));
}

TEST(GgufModels, MayBeSplit) {
  const TemporaryFolder folder;
  const Builder whole = small_llama();
  const auto part = [&](std::uint16_t number, std::uint16_t count, Builder file) {
    const auto u16 = [&](const char* key, std::uint16_t value) {
      file.value(key, 2, testing_gguf::Bytes().number(value).bytes);
    };
    u16("split.no", number);
    u16("split.count", count);
    return file;
  };
  Builder first = whole;
  Builder second;
  second.tensors.assign(whole.tensors.begin() + 5, whole.tensors.end());
  first.tensors.resize(5);
  write_file(folder / "m-00001-of-00002.gguf", part(0, 2, first).build());
  EXPECT_THAT(CheckpointFiles::open(folder.path()).error().message, HasSubstr("m-00002-of-00002.gguf"));
  write_file(folder / "m-00002-of-00002.gguf", part(1, 2, second).build());
  const auto files = CheckpointFiles::open(folder.path());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->tensors().size(), whole.tensors.size());
  EXPECT_EQ(files->file_count(), 2U);
  EXPECT_TRUE(read_model_spec(folder.path()));
  EXPECT_THAT(CheckpointFiles::open(folder / "m-00002-of-00002.gguf").error().message,
              HasSubstr("is part 2 of 2: give the first, m-00001-of-00002.gguf"));
  write_file(folder / "m-00002-of-00002.gguf", part(1, 3, second).build());
  EXPECT_THAT(CheckpointFiles::open(folder.path()).error().message, HasSubstr("split.no and split.count"));
  write_file(folder / "m-00002-of-00002.gguf", part(0, 2, second).build());
  EXPECT_THAT(CheckpointFiles::open(folder.path()).error().message, HasSubstr("split.no and split.count"));
}

TEST(GgufModels, AreFoundInFoldersWithoutSafetensors) {
  const TemporaryFolder folder;
  EXPECT_EQ(gguf_of(folder.path()).value(), std::nullopt);
  write_file(folder / "a.gguf", small_llama().build());
  EXPECT_EQ(gguf_of(folder.path()).value(), folder / "a.gguf");
  write_file(folder / "plain", small_llama().build());
  EXPECT_EQ(gguf_of(folder / "plain").value(), folder / "plain");
  write_file(folder / "b.gguf", {});
  EXPECT_THAT(gguf_of(folder.path()).error().message,
              HasSubstr("holds 2 GGUF files, 'a.gguf' and 'b.gguf' first: name one"));
  std::ofstream(folder / "model.safetensors") << "x";
  EXPECT_EQ(gguf_of(folder.path()).value(), std::nullopt);
}

TEST(GgufModels, AreNotQuantizedAgain) {
  const TemporaryFolder folder;
  write_file(folder / "m.gguf", small_llama().build());
  const auto made = quantize_checkpoint(folder / "m.gguf", folder / "out", {});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("m.gguf: is a GGUF file: give the safetensors"));
}

}  // namespace
}  // namespace nanscope
