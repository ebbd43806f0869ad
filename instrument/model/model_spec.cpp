#include "instrument/model/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/parse_json.h"
#include "core/text/safe_text.h"
#include "instrument/files/file.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/model/family.h"
#include "instrument/quantized/product_inputs.h"
#include "instrument/quantized/quantization_config.h"

namespace nanscope {
namespace {

constexpr std::uint64_t kMostConfig = 16u << 20;

/// Keys of every config.json that no number of a model depends on.
void ignore_common(ConfigReader& config) {
  config.ignore({"architectures",
                 "model_type",
                 "_name_or_path",
                 "transformers_version",
                 "use_cache",
                 "auto_map",
                 "initializer_range",
                 "bos_token_id",
                 "pad_token_id",
                 "unk_token_id",
                 "sep_token_id",
                 "decoder_start_token_id",
                 "attention_dropout",
                 "output_attentions",
                 "output_hidden_states",
                 "output_router_logits",
                 "router_aux_loss_coef",
                 "return_dict",
                 "return_dict_in_generate",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "problem_type",
                 "task_specific_params",
                 "finetuning_task",
                 "prefix",
                 "torchscript",
                 "chunk_size_feed_forward",
                 "cache_implementation",
                 "_attn_implementation_autoset",
                 "attn_implementation",
                 "is_encoder_decoder",
                 "do_sample",
                 "temperature",
                 "top_k",
                 "top_p",
                 "max_length",
                 "min_length",
                 "use_mlp_bias",
                 "unsloth_version",
                 "unsloth_fixed"});
}

void read_format(ConfigReader& config, ModelSpec& spec) {
  const std::string older = config.text("torch_dtype", "float32");
  const std::string dtype = config.text("dtype", older);
  if (dtype == "bfloat16") {
    spec.format = Format::bf16;
  } else if (dtype == "float16") {
    spec.format = Format::f16;
  } else if (dtype != "float32") {
    config.reject("dtype",
                  fmt::format("'{}' is not supported, only float32, bfloat16 and float16 are", one_line(dtype)));
  }
}

bool has_nvfp4_inputs(const QuantizationConfig& config) {
  if (config.method == QuantMethod::modelopt) return config.format == "NVFP4";
  return config.method == QuantMethod::compressed_tensors && config.format == "nvfp4-pack-quantized" &&
         std::any_of(config.groups.begin(), config.groups.end(),
                     [](const QuantGroup& group) { return group.inputs == InputScales::fixed; });
}

bool has_fp8_inputs(const QuantizationConfig& config) {
  if (config.method == QuantMethod::modelopt) return config.format == "FP8";
  if (config.method == QuantMethod::fp8) return config.inputs == InputScales::fixed;
  return config.method == QuantMethod::compressed_tensors && config.format == "float-quantized" &&
         std::any_of(config.groups.begin(), config.groups.end(),
                     [](const QuantGroup& group) { return group.inputs == InputScales::fixed; });
}

std::string known_types() {
  std::string all;
  for (const ModelFamily* family : model_families()) all.append(all.empty() ? "" : " ").append(family->model_types);
  std::replace(all.begin(), all.end(), ' ', '|');
  return all;
}

void read_attention(ConfigReader& config, ModelSpec& spec) {
  const nlohmann::json* settings = config.object("nanscope_attention");
  if (settings == nullptr) return;
  for (const auto& [name, value] : settings->items()) {
    if (!value.is_string()) return config.reject("nanscope_attention", fmt::format("{}: is no text", one_line(name)));
    spec.attention.emplace_back("attention." + name, value.get<std::string>());
  }
}

}  // namespace

Result<ModelSpec> parse_model_spec(std::string_view text, const std::string& file) {
  const auto json = parse_json(text);
  if (!json) return fail(file + ": " + json.error().message);
  ConfigReader config(*json, file);
  const std::string type = config.text("model_type");
  const ModelFamily* family = family_of_type(type);
  if (config.status() && family == nullptr) {
    config.reject("model_type",
                  fmt::format("'{}' is no family that the engine runs; there are {}", one_line(type), known_types()));
  }
  const auto quantization = parse_quantization_config(text, file, {}, {});
  if (!quantization) return tl::unexpected(quantization.error());
  if (config.has("quantization_config") && quantization->method == QuantMethod::other) {
    config.reject("quantization_config",
                  fmt::format("weights of the quant_method '{}' are not decoded; those of {} are",
                              one_line(quantization->name), quant_method_names()));
  }
  if (!config.status()) return tl::unexpected(config.status().error());
  ModelSpec spec;
  spec.model.family = family->name;
  spec.model.patch_size = 0;
  spec.quantized = quantization->method != QuantMethod::none;
  spec.nvfp4_inputs = has_nvfp4_inputs(*quantization);
  spec.fp8_inputs = has_fp8_inputs(*quantization);
  spec.casts_inputs = product_of({}, *quantization).input_format.has_value();
  ignore_common(config);
  read_format(config, spec);
  read_attention(config, spec);
  spec.model.end_tokens = config.integer_or_list("eos_token_id");
  if (Status read = family->read(config, spec); !read) return tl::unexpected(read.error());
  if (Status finished = config.finish(); !finished) return tl::unexpected(finished.error());
  return spec;
}

namespace {

Result<ModelSpec> read_gguf_spec(const std::filesystem::path& path) {
  const auto model = GgufModel::open(path);
  if (!model) return tl::unexpected(model.error());
  const auto config = (*model)->config();
  if (!config) return tl::unexpected(config.error());
  Result<ModelSpec> spec = parse_model_spec(*config, path.string());
  if (!spec) return spec;
  spec->model.weights = path.lexically_normal().string();
  if ((*model)->has_tokenizer()) spec->model.tokenizer = spec->model.weights;
  return spec;
}

}  // namespace

Result<ModelSpec> read_model_spec(const std::filesystem::path& folder) {
  const auto gguf = gguf_of(folder);
  if (!gguf) return tl::unexpected(gguf.error());
  if (*gguf) return read_gguf_spec(**gguf);
  const std::filesystem::path path = folder / "config.json";
  const auto bytes = read_file(path, kMostConfig);
  if (!bytes) return tl::unexpected(bytes.error());
  Result<ModelSpec> spec = parse_model_spec(as_text(*bytes), path.string());
  if (!spec) return spec;
  spec->model.weights = folder.lexically_normal().string();
  const std::filesystem::path tokenizer = folder / "tokenizer.json";
  std::error_code error;
  if (std::filesystem::exists(tokenizer, error)) spec->model.tokenizer = tokenizer.lexically_normal().string();
  return spec;
}

}  // namespace nanscope
