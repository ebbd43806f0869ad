#include "instrument/quantized/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/parse_json.h"
#include "core/text/safe_text.h"
#include "instrument/files/file.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/model/config_reader.h"

namespace nanscope {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostConfig = 16u << 20;
constexpr std::int64_t kMostBlock = 1 << 20;
constexpr std::size_t kMostGroups = 4096;

const std::map<std::string_view, QuantMethod> kMethods = {
    {"fp8", QuantMethod::fp8},
    {"mxfp8", QuantMethod::mxfp8},
    {"compressed-tensors", QuantMethod::compressed_tensors},
    {"modelopt", QuantMethod::modelopt},
    {"modelopt_fp4", QuantMethod::modelopt},
    {"modelopt_mxfp8", QuantMethod::modelopt},
    {"modelopt_mixed", QuantMethod::modelopt},
    {"mxfp4", QuantMethod::mxfp4},
    {"gpt_oss_mxfp4", QuantMethod::mxfp4},
    {"fbgemm_fp8", QuantMethod::fbgemm_fp8},
    {"torchao", QuantMethod::torchao},
    {"gptq", QuantMethod::gptq},
    {"gptq_marlin", QuantMethod::gptq},
    {"awq", QuantMethod::awq},
    {"awq_marlin", QuantMethod::awq},
    {"bitsandbytes", QuantMethod::bitsandbytes},
};

Result<json> parse(std::string_view text, const std::string& file) {
  auto parsed = parse_json(text);
  if (!parsed) return fail(file + ": " + parsed.error().message);
  if (!parsed->is_object()) return fail(file + ": not a JSON object");
  return parsed;
}

/// A key that is a list of texts, whatever null or another type there means nothing.
void add_texts(ConfigReader& from, std::string_view key, std::vector<std::string>& to) {
  if (!from.has(key)) return;
  for (std::string& text : from.texts(key)) to.push_back(std::move(text));
}

std::optional<std::array<std::int64_t, 2>> read_block(ConfigReader& from, std::string_view key) {
  if (!from.has(key)) return std::nullopt;
  const std::vector<std::int64_t> sides = from.integers(key);
  if (!from.status()) return std::nullopt;
  if (sides.size() != 2 ||
      std::any_of(sides.begin(), sides.end(), [](auto side) { return side < 1 || side > kMostBlock; })) {
    from.reject(key, fmt::format("expected rows and columns of 1 to {}", kMostBlock));
    return std::nullopt;
  }
  return std::array{sides[0], sides[1]};
}

/// What a group does to the inputs of its products.
Status read_inputs(ConfigReader& group, QuantGroup& one) {
  const json* inputs = group.object("input_activations");
  if (inputs == nullptr) return {};
  // "local" is dynamic over blocks beside a fixed scale of the whole.
  const auto dynamic = inputs->find("dynamic");
  const bool all = dynamic != inputs->end() && dynamic->is_boolean() && dynamic->get<bool>();
  one.inputs = all ? InputScales::dynamic : InputScales::fixed;
  ConfigReader reader(*inputs, group.where() + ": input_activations");
  one.input_bits = reader.integer("num_bits", 8, 1, 64);
  one.input_type = reader.text("type", "int");
  one.input_strategy = reader.text("strategy");
  one.input_group_size = reader.integer("group_size", 0, -1, kMostBlock);
  one.input_symmetric = reader.flag("symmetric", true);
  one.input_scale_format = reader.text("scale_dtype");
  return reader.status();
}

Status read_groups(ConfigReader& config, QuantizationConfig& out) {
  const json* groups = config.object("config_groups");
  if (groups == nullptr) return config.status();
  if (groups->size() > kMostGroups) {
    return fail(fmt::format("{}: config_groups has {} groups, expected at most {}", config.where(), groups->size(),
                            kMostGroups));
  }
  for (const auto& [name, object] : groups->items()) {
    ConfigReader group(object, fmt::format("{}: config_groups: {}", config.where(), one_line(name)));
    QuantGroup one;
    add_texts(group, "targets", one.targets);
    if (Status inputs = read_inputs(group, one); !inputs) return inputs;
    if (const json* weights = group.object("weights"); weights != nullptr) {
      ConfigReader reader(*weights, group.where() + ": weights");
      one.bits = reader.integer("num_bits", 8, 1, 64);
      one.type = reader.text("type", "int");
      one.strategy = reader.text("strategy");
      one.symmetric = reader.flag("symmetric", true);
      one.act_order = reader.text("actorder") == "group" || reader.text("actorder") == "dynamic";
      one.group_size = reader.integer("group_size", 0, -1, kMostBlock);
      one.block = read_block(reader, "block_structure").value_or(one.block);
      if (!reader.status()) return reader.status();
    }
    if (!group.status()) return group.status();
    out.groups.push_back(std::move(one));
  }
  return {};
}

/// GPTQ and AWQ have one group for all: bits, and elements of a row that share a scale and a zero point.
void read_packed(ConfigReader& config, QuantizationConfig& out) {
  const bool awq = out.method == QuantMethod::awq;
  QuantGroup group;
  group.targets = {"Linear"};
  group.type = "int";
  group.strategy = "group";
  group.bits = config.integer(awq && config.has("w_bit") ? "w_bit" : "bits", 0, 1, 64);
  group.group_size =
      config.integer(awq && config.has("q_group_size") ? "q_group_size" : "group_size", 0, -1, kMostBlock);
  group.symmetric = !awq && config.flag("sym", true);
  group.act_order = !awq && config.has("desc_act") && config.flag("desc_act", false);
  const std::string format = config.text("format", awq ? "gemm" : "gptq");
  out.format = config.text(awq ? "version" : "checkpoint_format", format);
  std::transform(out.format.begin(), out.format.end(), out.format.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  out.groups.push_back(std::move(group));
}

Status read_object(const json& object, const std::string& where, QuantizationConfig& out) {
  ConfigReader config(object, where);
  out.name = config.text("quant_method");
  const auto method = kMethods.find(out.name);
  out.method = method != kMethods.end() ? method->second : QuantMethod::other;
  out.format = config.text(out.method == QuantMethod::modelopt ? "quant_algo" : "format");
  out.states_inputs = config.has("activation_scheme");
  if (config.text("activation_scheme", "dynamic") == "static") out.inputs = InputScales::fixed;
  out.states_block = config.states("weight_block_size");
  out.block = read_block(config, "weight_block_size");
  out.powers_of_two = config.text("scale_fmt") == "ue8m0";
  for (const char* key :
       {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules"}) {
    add_texts(config, key, out.ignored);
  }
  if (Status groups = read_groups(config, out); !groups) return groups;
  if (out.method == QuantMethod::gptq || out.method == QuantMethod::awq) read_packed(config, out);
  if (config.object("kv_cache_scheme") != nullptr) out.kv_cache = "FP8";
  if (const std::string algo = config.text("kv_cache_quant_algo"); !algo.empty()) out.kv_cache = algo;
  return config.status();
}

/// hf_quant_config.json, which says what config.json may not.
Status read_modelopt(const json& file, const std::string& where, QuantizationConfig& out) {
  ConfigReader top(file, where);
  const json* object = top.object("quantization");
  if (object == nullptr) return top.status();
  ConfigReader quantization(*object, where + ": quantization");
  if (out.method == QuantMethod::none) {
    out.method = QuantMethod::modelopt;
    out.name = "modelopt";
  }
  if (out.format.empty()) out.format = quantization.text("quant_algo");
  if (out.kv_cache.empty()) out.kv_cache = quantization.text("kv_cache_quant_algo");
  add_texts(quantization, "exclude_modules", out.ignored);
  return quantization.status();
}

}  // namespace

std::string QuantizationConfig::text() const {
  if (method == QuantMethod::none) return "no quantization_config";
  std::string out = one_line(name);
  if (!format.empty()) out += ", " + one_line(format);
  if (block) out += fmt::format(", blocks of {} x {}", (*block)[0], (*block)[1]);
  if (powers_of_two) out += ", scales are powers of two";
  if (states_inputs) out += inputs == InputScales::fixed ? ", inputs by fixed scales" : ", inputs by dynamic scales";
  if (!kv_cache.empty()) out += ", KV cache " + one_line(kv_cache);
  return out;
}

std::string quant_method_names() {
  std::string names;
  for (const auto& [name, method] : kMethods) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

Result<QuantizationConfig> parse_quantization_config(std::string_view config, const std::string& file,
                                                     std::string_view modelopt, const std::string& modelopt_file) {
  const Result<json> parsed = parse(config, file);
  if (!parsed) return tl::unexpected(parsed.error());
  QuantizationConfig out;
  // Models of several parts keep it beside the text model's numbers.
  const std::array<const char*, 2> keys = {"quantization_config", "compression_config"};
  for (const bool nested : {false, true}) {
    const auto part = nested ? parsed->find("text_config") : parsed->end();
    if (nested && (part == parsed->end() || !part->is_object())) break;
    const json& object = nested ? *part : *parsed;
    for (const char* key : keys) {
      const auto found = object.find(key);
      if (out.method != QuantMethod::none || found == object.end() || found->is_null()) continue;
      if (Status read = read_object(*found, fmt::format("{}: {}", file, key), out); !read)
        return tl::unexpected(read.error());
    }
  }
  if (modelopt.empty()) return out;
  const Result<json> second = parse(modelopt, modelopt_file);
  if (!second) return tl::unexpected(second.error());
  if (Status read = read_modelopt(*second, modelopt_file, out); !read) return tl::unexpected(read.error());
  return out;
}

Result<QuantizationConfig> read_quantization_config(const std::filesystem::path& folder) {
  const auto gguf = gguf_of(folder);
  if (!gguf) return tl::unexpected(gguf.error());
  if (*gguf) return QuantizationConfig();
  const std::filesystem::path path = folder / "config.json";
  const auto bytes = read_file(path, kMostConfig);
  if (!bytes) return tl::unexpected(bytes.error());
  const std::filesystem::path second = folder / "hf_quant_config.json";
  std::vector<std::byte> modelopt;
  std::error_code error;
  if (std::filesystem::exists(second, error)) {
    auto read = read_file(second, kMostConfig);
    if (!read) return tl::unexpected(read.error());
    modelopt = std::move(*read);
  }
  return parse_quantization_config(as_text(*bytes), path.string(), as_text(modelopt), second.string());
}

}  // namespace nanscope
