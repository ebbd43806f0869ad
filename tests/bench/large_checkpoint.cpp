#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files/output_file.h"
#include "instrument/weights/random.h"
#include "instrument/weights/safetensors.h"
#include "tests/bench/bench.h"

/// large_checkpoint OUT --like 7b|4gib|1b|tiny: writes a Hugging Face folder of a Llama of that shape with random bf16
/// weights, for bench_model: config.json, and a shard a layer beside model.safetensors.index.json. Gaussian with the
/// standard deviation 0.02 that Llama's trainers begin with, norms 1; the same bytes everywhere. OUT must not be there.
/// What is in memory at a time is twice a shard. There is no tokenizer: prompts are token ids.
namespace nanscope {
namespace {

struct Shape {
  std::string_view name;
  std::int64_t layers;
  std::int64_t width;
  std::int64_t mlp_width;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t vocabulary;
  bool tied;
};
/// Llama 2 7B, as many of its layers as take 4 GiB, Llama 3.2 1B, and one to try the program with.
constexpr std::array kShapes = {
    Shape{"7b", 32, 4096, 11008, 32, 32, 128, 32000, false}, Shape{"4gib", 10, 4096, 11008, 32, 32, 128, 32000, false},
    Shape{"1b", 16, 2048, 8192, 32, 8, 64, 128256, true}, Shape{"tiny", 2, 64, 96, 4, 2, 16, 256, false}};
constexpr std::uint64_t kSeed = 1;
constexpr double kDeviation = 0.02;
constexpr std::uint32_t kOne = 0x3f80;  // bf16

using Codes = std::vector<std::uint16_t>;

struct Tensor {
  std::string name;
  std::int64_t rows;
  std::int64_t columns;  ///< 0: a vector, of ones
};

/// bf16 of the quantiles of 2^16 equal parts: 16 random bits choose one.
Codes quantiles() {
  Codes table(1 << 16);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto value = static_cast<float>(normal_quantile((static_cast<double>(i) + 0.5) * 0x1p-16) * kDeviation);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    table[i] = static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  }
  return table;
}

Codes random_codes(const Tensor& tensor, const Codes& table) {
  if (tensor.columns == 0) return Codes(static_cast<std::size_t>(tensor.rows), kOne);
  Codes codes(static_cast<std::size_t>(tensor.rows * tensor.columns));
  const std::uint64_t stream = stream_of(tensor.name);
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  for (std::size_t i = 0; i < codes.size(); i += 8) {
    const PhiloxCounter block =
        philox4x32({low(i / 8), low(i / 8 >> 32), low(stream), low(stream >> 32)}, {low(kSeed), low(kSeed >> 32)});
    for (std::size_t j = 0; j < std::min<std::size_t>(8, codes.size() - i); ++j) {
      codes[i + j] = table[block[j / 2] >> (j % 2 * 16) & 0xffffU];
    }
  }
  return codes;
}

class Writer {
 public:
  Writer(OutputFolder& folder, std::size_t shards) : folder_(folder), shards_(shards) {}

  void write(const std::vector<Tensor>& tensors) {
    std::vector<Codes> codes;
    std::vector<SafetensorsInput> inputs;
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", ++written_, shards_);
    for (const Tensor& tensor : tensors) {
      codes.push_back(random_codes(tensor, table_));
      std::vector<std::int64_t> shape{tensor.rows};
      if (tensor.columns > 0) shape.push_back(tensor.columns);
      inputs.push_back({tensor.name, "BF16", std::move(shape), {}});
      map_ += fmt::format("{}\n    \"{}\": \"{}\"", map_.empty() ? "" : ",", tensor.name, file);
    }
    for (std::size_t i = 0; i < codes.size(); ++i) {
      inputs[i].bytes = std::as_bytes(std::span(codes[i]));
      bytes_ += inputs[i].bytes.size();
    }
    must(folder_.write(file, must(encode_safetensors(std::move(inputs), {{"format", "pt"}}))));
  }

  void write_index() {
    const std::string index =
        fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n", bytes_, map_);
    must(folder_.write("model.safetensors.index.json", std::as_bytes(std::span(index))));
  }

 private:
  OutputFolder& folder_;
  std::size_t shards_;
  Codes table_ = quantiles();
  std::size_t written_ = 0;
  std::uint64_t bytes_ = 0;
  std::string map_;
};

std::string config_of(const Shape& shape) {
  return fmt::format(R"({{
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "bos_token_id": null,
  "eos_token_id": null,
  "dtype": "bfloat16",
  "head_dim": {},
  "hidden_act": "silu",
  "hidden_size": {},
  "intermediate_size": {},
  "max_position_embeddings": 4096,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": {},
  "num_hidden_layers": {},
  "num_key_value_heads": {},
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "tie_word_embeddings": {},
  "vocab_size": {}
}}
)",
                     shape.head_dim, shape.width, shape.mlp_width, shape.heads, shape.layers, shape.kv_heads,
                     shape.tied, shape.vocabulary);
}

std::vector<Tensor> layer_tensors(const Shape& shape, std::int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::int64_t queries = shape.heads * shape.head_dim;
  const std::int64_t keys = shape.kv_heads * shape.head_dim;
  return {{prefix + "input_layernorm.weight", shape.width, 0},
          {prefix + "self_attn.q_proj.weight", queries, shape.width},
          {prefix + "self_attn.k_proj.weight", keys, shape.width},
          {prefix + "self_attn.v_proj.weight", keys, shape.width},
          {prefix + "self_attn.o_proj.weight", shape.width, queries},
          {prefix + "post_attention_layernorm.weight", shape.width, 0},
          {prefix + "mlp.gate_proj.weight", shape.mlp_width, shape.width},
          {prefix + "mlp.up_proj.weight", shape.mlp_width, shape.width},
          {prefix + "mlp.down_proj.weight", shape.width, shape.mlp_width}};
}

void write(const std::filesystem::path& out, const Shape& shape) {
  OutputFolder folder = must(OutputFolder::create(out, {}));
  const std::string config = config_of(shape);
  must(folder.write("config.json", std::as_bytes(std::span(config))));
  Writer writer(folder, static_cast<std::size_t>(shape.layers) + 2);
  writer.write({{"model.embed_tokens.weight", shape.vocabulary, shape.width}});
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) writer.write(layer_tensors(shape, layer));
  std::vector<Tensor> last{{"model.norm.weight", shape.width, 0}};
  if (!shape.tied) last.push_back({"lm_head.weight", shape.vocabulary, shape.width});
  writer.write(last);
  writer.write_index();
  must(folder.commit());
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  using namespace nanscope;
  const std::string_view like = argc == 4 && std::string_view(argv[2]) == "--like" ? argv[3] : "";
  const auto* const shape =
      std::find_if(kShapes.begin(), kShapes.end(), [&](const Shape& one) { return one.name == like; });
  if (shape == kShapes.end()) {
    fmt::print(stderr, "usage: large_checkpoint OUT --like 7b|4gib|1b|tiny\n");
    return 2;
  }
  write(argv[1], *shape);
  return 0;
}
