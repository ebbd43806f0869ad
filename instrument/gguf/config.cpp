#include "instrument/gguf/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/text/safe_text.h"
#include "instrument/gguf/names.h"

namespace nanscope {
namespace {

using Json = nlohmann::json;

const GgufValue* value_of(const GgufHeader& header, std::string_view key) {
  const auto found = header.metadata.find(key);
  return found == header.metadata.end() ? nullptr : &found->second;
}

std::string architecture_of(const GgufHeader& header) {
  const GgufValue* value = value_of(header, "general.architecture");
  return value == nullptr ? std::string() : value->text().value_or(std::string());
}

/// Reads the keys of the architecture, and remembers which. The first error is kept.
class Keys {
 public:
  Keys(const GgufHeader& header, std::string architecture, std::string file)
      : header_(header), architecture_(std::move(architecture)), file_(std::move(file)) {}

  const Status& status() const { return status_; }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }
  bool has(std::string_view key) { return find(key) != nullptr; }

  /// One number; of a list whose items are all the same, that.
  std::optional<std::int64_t> integer(std::string_view key) {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    std::optional<std::int64_t> number = value->integer();
    if (const auto items = value->list(); items && !items->empty()) {
      number = items->front().integer();
      for (const GgufValue& item : *items) {
        if (item.integer() != number) number.reset();
      }
    }
    if (!number) reject(key, "expected one whole number, or a list of equal ones");
    return number;
  }
  std::optional<double> number(std::string_view key) {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    const std::optional<double> number = value->number();
    if (!number) reject(key, "expected a number");
    return number;
  }
  std::string text(std::string_view key) {
    const GgufValue* value = find(key);
    if (value == nullptr) return {};
    const std::optional<std::string> text = value->text();
    if (!text) reject(key, "expected a text");
    return text.value_or(std::string());
  }

  /// As a key of the config, where it is there.
  void copy_integer(Json& config, const char* to, std::string_view key) {
    if (const auto value = integer(key)) config[to] = *value;
  }
  void copy_number(Json& config, const char* to, std::string_view key) {
    if (const auto value = number(key)) config[to] = *value;
  }
  void needed(Json& config, const char* to, std::string_view key) {
    if (!has(key)) reject(key, "is missing");
    copy_integer(config, to, key);
  }
  void ignore(std::string_view key) { (void)find(key); }

  void reject(std::string_view key, std::string_view reason) {
    if (status_) status_ = fail(fmt::format("{}: {}: {}", file_, one_line(full(key)), reason));
  }
  /// Refuses keys of the architecture that nobody read: what they say may change numbers.
  void finish() {
    for (const auto& [key, value] : header_.metadata) {
      if (key.starts_with(architecture_ + ".") && !read_.contains(key) && status_)
        status_ = fail(fmt::format("{}: not supported: {}", file_, one_line(key)));
    }
  }

 private:
  const GgufValue* find(std::string_view key) {
    const std::string name = full(key);
    read_.insert(name);
    return value_of(header_, name);
  }

  const GgufHeader& header_;
  std::string architecture_;
  std::string file_;
  std::set<std::string, std::less<>> read_;
  Status status_;
};

struct Source {
  const GgufHeader& header;
  const std::function<std::vector<float>(std::string_view tensor)>& tensor;
  std::string_view model_type;

  bool holds(std::string_view name) const {
    return std::any_of(header.tensors.begin(), header.tensors.end(),
                       [&](const GgufTensor& one) { return one.name == name; });
  }
};

/// Factors of the angles stand in tensors: one set (Llama 3), or one for short and one for long contexts (LongRoPE).
void read_rope_factors(Keys& keys, const Source& source, Json& config) {
  const std::vector<float> all = source.tensor("rope_freqs.weight");
  const std::vector<float> shorter = all.empty() ? source.tensor("rope_factors_short.weight") : all;
  const std::vector<float> longer = all.empty() ? source.tensor("rope_factors_long.weight") : all;
  if (shorter.empty() && longer.empty()) return;
  Json& scaling = config["rope_scaling"];
  scaling = {{"rope_type", "longrope"}, {"short_factor", shorter}, {"long_factor", longer}};
  if (!all.empty()) scaling["attention_factor"] = 1.0;
  keys.copy_number(scaling, "attention_factor", "rope.scaling.attn_factor");
  keys.copy_integer(config, "original_max_position_embeddings", "rope.scaling.original_context_length");
}

void read_rope(Keys& keys, const Source& source, Json& config) {
  keys.copy_number(config, "rope_theta", "rope.freq_base");
  const auto rotated = keys.integer("rope.dimension_count");
  const double head_dim = config.value("head_dim", 0.0);
  if (rotated && static_cast<double>(*rotated) != head_dim)
    config["partial_rotary_factor"] = static_cast<double>(*rotated) / head_dim;
  read_rope_factors(keys, source, config);
  const std::string type = keys.text("rope.scaling.type");
  if (config.contains("rope_scaling") || type.empty() || type == "none") {
    if (const auto factor = keys.number("rope.scaling.factor"); factor && *factor != 1)
      keys.reject("rope.scaling.factor", "is stated without a rope.scaling.type");
    return;
  }
  Json& scaling = config["rope_scaling"];
  scaling["rope_type"] = type;
  keys.copy_number(scaling, "factor", "rope.scaling.factor");
  if (type == "yarn")
    keys.copy_integer(scaling, "original_max_position_embeddings", "rope.scaling.original_context_length");
}

void read_heads(Keys& keys, Json& config) {
  keys.needed(config, "num_attention_heads", "attention.head_count");
  keys.copy_integer(config, "num_key_value_heads", "attention.head_count_kv");
  const std::int64_t heads = config.value("num_attention_heads", std::int64_t{1});
  config["head_dim"] = config.value("hidden_size", std::int64_t{0}) / std::max<std::int64_t>(1, heads);
  keys.copy_integer(config, "head_dim", "attention.key_length");
  const auto values = keys.integer("attention.value_length");
  if (values && *values != config.value("head_dim", std::int64_t{0}))
    keys.reject("attention.value_length", "another number than of a key's channels is not supported");
}

void read_decoder(Keys& keys, const Source& source, Json& config) {
  keys.needed(config, "hidden_size", "embedding_length");
  keys.needed(config, "num_hidden_layers", "block_count");
  keys.needed(config, "intermediate_size", "feed_forward_length");
  keys.copy_integer(config, "max_position_embeddings", "context_length");
  keys.copy_number(config, "rms_norm_eps", "attention.layer_norm_rms_epsilon");
  read_heads(keys, config);
  read_rope(keys, source, config);
}

void read_experts(Keys& keys, Json& config, bool normalises) {
  keys.needed(config, "num_local_experts", "expert_count");
  keys.needed(config, "num_experts_per_tok", "expert_used_count");
  keys.copy_integer(config, "moe_intermediate_size", "expert_feed_forward_length");
  config["norm_topk_prob"] = normalises;
}

/// The largest models of both families scale scores by another number than that of a head's channels (llama.cpp,
/// src/models/gemma2-iswa.cpp and gemma3.cpp).
void read_gemma(Keys& keys, Json& config, std::int64_t layers_of_largest) {
  const std::int64_t heads = std::max<std::int64_t>(1, config.value("num_attention_heads", std::int64_t{1}));
  const bool largest = config.value("num_hidden_layers", std::int64_t{0}) == layers_of_largest;
  config["query_pre_attn_scalar"] =
      largest ? Json(config.value("hidden_size", std::int64_t{0}) / heads) : config["head_dim"];
  keys.copy_integer(config, "sliding_window", "attention.sliding_window");
  keys.copy_number(config, "attn_logit_softcapping", "attn_logit_softcapping");
  keys.copy_number(config, "final_logit_softcapping", "final_logit_softcapping");
}

void read_gpt2(Keys& keys, Json& config) {
  keys.needed(config, "n_embd", "embedding_length");
  keys.needed(config, "n_layer", "block_count");
  keys.needed(config, "n_head", "attention.head_count");
  keys.needed(config, "n_positions", "context_length");
  keys.copy_integer(config, "n_inner", "feed_forward_length");
  keys.copy_number(config, "layer_norm_epsilon", "attention.layer_norm_epsilon");
  const auto kv_heads = keys.integer("attention.head_count_kv");
  if (kv_heads && *kv_heads != config.value("n_head", std::int64_t{0}))
    keys.reject("attention.head_count_kv", "another number than attention.head_count is not supported");
}

void read_architecture(Keys& keys, const Source& source, Json& config) {
  const std::string_view type = source.model_type;
  const bool bias = source.holds("blk.0.attn_q.bias");
  if (type == "gpt2") return read_gpt2(keys, config);
  read_decoder(keys, source, config);
  if (type == "mixtral") read_experts(keys, config, true);
  if (type == "qwen2_moe" || type == "qwen3_moe") read_experts(keys, config, type == "qwen3_moe");
  if (type == "qwen2_moe")
    keys.copy_integer(config, "shared_expert_intermediate_size", "expert_shared_feed_forward_length");
  if (type == "gemma2") read_gemma(keys, config, 46);
  if (type == "gemma3_text") {
    read_gemma(keys, config, 62);
    keys.copy_number(config, "rope_local_base_freq", "rope.freq_base_swa");
    keys.copy_integer(config, "sliding_window_pattern", "attention.sliding_window_pattern");
  }
  if (type == "phi3" && keys.integer("attention.sliding_window").value_or(0) > 0)
    keys.copy_integer(config, "sliding_window", "attention.sliding_window");
  if (type == "llama" && source.holds("blk.0.ffn_gate.bias")) config["mlp_bias"] = true;
  if (type == "llama" || type == "qwen3" || type == "qwen3_moe" || type == "olmo2") config["attention_bias"] = bias;
}

std::int64_t experts_of(const GgufHeader& header, const std::string& architecture) {
  const GgufValue* experts = value_of(header, architecture + ".expert_count");
  return experts == nullptr ? 0 : experts->integer().value_or(0);
}

}  // namespace

std::string_view model_type_of(const GgufHeader& header) {
  const std::string architecture = architecture_of(header);
  return model_type_of(architecture, experts_of(header, architecture));
}

Result<std::string> config_of_gguf(const GgufHeader& header, const std::string& file,
                                   const std::function<std::vector<float>(std::string_view tensor)>& tensor) {
  const std::string architecture = architecture_of(header);
  const Source source{header, tensor, model_type_of(header)};
  if (source.model_type.empty())
    return fail(fmt::format("{}: general.architecture: '{}' is none that is run; there are {}", file,
                            one_line(architecture), known_architectures()));
  Keys keys(header, architecture, file);
  Json config = {{"model_type", source.model_type}, {"dtype", "float32"}};
  const auto table = std::find_if(header.tensors.begin(), header.tensors.end(),
                                  [](const GgufTensor& one) { return one.name == "token_embd.weight"; });
  if (table == header.tensors.end() || table->shape.size() != 2)
    return fail(fmt::format("{}: no tensor 'token_embd.weight' of two dimensions", file));
  config["vocab_size"] = table->shape[0];
  config["tie_word_embeddings"] = !source.holds("output.weight");
  const GgufValue* end = value_of(header, "tokenizer.ggml.eos_token_id");
  if (end != nullptr && end->integer()) config["eos_token_id"] = *end->integer();
  keys.ignore("vocab_size");
  keys.ignore("expert_count");  // 0 of a model without experts
  keys.ignore("expert_used_count");
  read_architecture(keys, source, config);
  keys.finish();
  if (!keys.status()) return tl::unexpected(keys.status().error());
  return config.dump();
}

}  // namespace nanscope
