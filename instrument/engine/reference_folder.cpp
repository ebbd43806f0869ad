#include "instrument/engine/reference_folder.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/parse_json.h"
#include "instrument/engine/engine.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/model_folder.h"
#include "instrument/engine/weight_source.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

std::string_view dtype_name(Format format) {
  if (format == Format::bf16) return "bfloat16";
  return format == Format::f16 ? "float16" : "float32";
}

std::string config_text(const EngineConfig& config, std::int64_t vocabulary) {
  const ModelConfig& model = config.model;
  nlohmann::ordered_json json{{"model_type", "nanscope_reference"},
                              {"dtype", dtype_name(config.activation_format)},
                              {"kv_cache_dtype", dtype_name(config.kv.format)},
                              {"vocab_size", vocabulary},
                              {"hidden_size", model.width},
                              {"num_hidden_layers", model.layers},
                              {"num_attention_heads", model.heads},
                              {"num_key_value_heads", model.kv_heads},
                              {"head_dim", model.head_dim},
                              {"intermediate_size", model.mlp_width},
                              {"hidden_act", "silu"},
                              {"norm", get_knob(config, "model.norm")},
                              {"norm_placement", get_knob(config, "model.norm_placement")},
                              {"norm_eps", parse_json_or_none<nlohmann::ordered_json>(get_knob(config, "norm.eps"))},
                              {"inner_norm", model.inner_norm},
                              {"rope_theta", model.rope_base},
                              {"tie_word_embeddings", model.tied_head},
                              {"patch_size", model.patch_size}};
  return json.dump(2) + '\n';
}

/// What is written must be read as it was: the first knob of the model that is not is one that no key states.
Status check_stated(const EngineConfig& config, std::string_view text, std::int64_t vocabulary) {
  const Result<ModelSpec> spec = parse_model_spec(text, "config.json");
  if (!spec) return tl::unexpected(spec.error());
  EngineConfig read;
  if (Status used = use_model_spec(read, *spec); !used) return used;
  EngineConfig written = config;
  written.model.family = read.model.family;
  written.model.weights = read.model.weights;
  written.model.tokenizer = read.model.tokenizer;
  written.model.vocabulary = vocabulary;
  // What drew the weights is not stated: they are written.
  written.model.seed = read.model.seed;
  written.model.init_scale = read.model.init_scale;
  for (const Knob& knob : knobs()) {
    const bool of_model = knob.name.starts_with("model.") || knob.name.starts_with("rope.") ||
                          knob.name.starts_with("moe.") || knob.name == "norm.eps" ||
                          knob.name == "activation.format" || knob.name == "kv.format";
    if (of_model && knob.get(written) != knob.get(read)) {
      return fail(fmt::format("{}={} has no place in the config.json of a reference model, which would say {}",
                              knob.name, knob.get(written), knob.get(read)));
    }
  }
  return {};
}

std::vector<SafetensorsInput> tensors_of(const LoadedModel& model) {
  std::vector<SafetensorsInput> tensors;
  for (const Weight& weight : model.weights) {
    const kernels::TensorView& view = weight.view;
    std::vector<std::int64_t> shape{view.columns};
    if (view.rows > 1) shape.insert(shape.begin(), view.rows);
    const auto bytes = static_cast<std::size_t>(view.elements()) * info(view.format).storage_bytes();
    tensors.push_back({weight.name, std::string(safetensors_dtype(view.format)), std::move(shape),
                       std::span(static_cast<const std::byte*>(view.data), bytes)});
  }
  return tensors;
}

}  // namespace

Result<std::string> reference_config_json(const EngineConfig& config, std::int64_t vocabulary) {
  std::string text = config_text(config, vocabulary);
  if (Status stated = check_stated(config, text, vocabulary); !stated) return tl::unexpected(stated.error());
  return text;
}

Status write_reference_folder(const EngineConfig& config, const std::filesystem::path& folder,
                              const OutputOptions& output, std::stop_token stop) {
  if (config.model.weights != "reference") return fail("model.weights must be reference");
  const Result<Tokenizer> tokenizer = load_shipped_tokenizer();
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  const auto vocabulary = static_cast<std::int64_t>(tokenizer->vocab_size());
  const Result<std::string> text = reference_config_json(config, vocabulary);
  if (!text) return tl::unexpected(text.error());
  Result<OutputFolder> files = OutputFolder::create(folder, output);
  if (!files) return tl::unexpected(files.error());
  const auto device = kernels::make_device("cpu", 1);
  if (!device) return tl::unexpected(device.error());
  const auto source = make_weight_source(config.model);
  if (!source) return tl::unexpected(source.error());
  const auto model = load_model(config, **device, **source, vocabulary, std::move(stop));
  if (!model) return tl::unexpected(model.error());
  const auto weights = encode_safetensors(tensors_of(**model), {{"format", "pt"}});
  if (!weights) return tl::unexpected(weights.error());
  const auto write = [&](const char* name, std::span<const std::byte> bytes) { return files->write(name, bytes); };
  if (Status done = write("config.json", std::as_bytes(std::span(*text))); !done) return done;
  if (Status done = write("model.safetensors", *weights); !done) return done;
  if (Status done = write("tokenizer.json", std::as_bytes(std::span(shipped_tokenizer_json()))); !done) return done;
  return files->commit();
}

}  // namespace nanscope
