#include "instrument/train/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/parse_json.h"
#include "core/recording/weight_version.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/reference_folder.h"
#include "instrument/files/file.h"
#include "instrument/model/checkpoint.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/weights/safetensors.h"

namespace nanscope::train {

namespace {

constexpr std::string_view kWeightsFile = "model.safetensors";
constexpr std::uint64_t kMostBeside = std::uint64_t{256} << 20;
/// What lies beside the weights of a checkpoint and goes on being true of trained ones.
constexpr std::array<std::string_view, 9> kBeside = {
    "config.json", "generation_config.json",  "tokenizer_config.json", "tokenizer.model",    "vocab.json",
    "merges.txt",  "special_tokens_map.json", "added_tokens.json",     "chat_template.jinja"};

/// A tensor of the file while it is put together.
struct OpenTensor {
  Format format = Format::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

using OpenTensors = std::map<std::string, OpenTensor>;

/// The elements of a weight as they are on the device, row-major without gaps.
Result<std::vector<std::byte>> bytes_of_weight(const Weight& weight, kernels::Device& device) {
  if (weight.scaled.given()) return fail(fmt::format("the weight '{}' is quantized, and is not written", weight.name));
  const kernels::TensorView& view = weight.view;
  const std::size_t width = info(view.format).storage_bytes();
  const std::size_t row_bytes = static_cast<std::size_t>(view.columns) * width;
  std::vector<std::byte> bytes(static_cast<std::size_t>(view.rows) * row_bytes);
  for (std::int64_t row = 0; row < view.rows; ++row) {
    const auto* from = static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(row * view.stride) * width;
    const auto to = std::span(bytes).subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes);
    if (Status done = device.download(to, from); !done) return tl::unexpected(done.error());
  }
  return bytes;
}

/// The values less the offset, in f32.
void take_offset(std::vector<std::byte>& bytes, float offset) {
  for (std::size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    value -= offset;
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
}

Status put(const Weight& weight, const WeightPlace& place, std::vector<std::byte> bytes, OpenTensors& tensors) {
  const std::size_t width = info(weight.view.format).storage_bytes();
  OpenTensor& tensor = tensors[place.tensor];
  if (tensor.bytes.empty()) {
    const std::int64_t elements =
        std::accumulate(place.shape.begin(), place.shape.end(), std::int64_t{1}, std::multiplies<>());
    tensor = {weight.view.format, place.shape, std::vector<std::byte>(static_cast<std::size_t>(elements) * width)};
  }
  if (tensor.format != weight.view.format) {
    return fail(fmt::format("the weight '{}' is {}, another part of '{}' is {}", weight.name, name(weight.view.format),
                            place.tensor, name(tensor.format)));
  }
  if (place.offset != 0) {
    if (tensor.format != Format::f32) {
      return fail(fmt::format("the weight '{}' is stored less {}, which takes f32", weight.name, place.offset));
    }
    take_offset(bytes, place.offset);
  }
  const auto at = [&](std::int64_t element) { return static_cast<std::size_t>(element) * width; };
  const std::int64_t columns = weight.view.columns;
  for (std::int64_t row = 0; row < weight.view.rows; ++row) {
    if (place.next_column == 1 && (place.run == 0 || place.next_row != 0)) {
      std::memcpy(tensor.bytes.data() + at(place.at(row, 0)), bytes.data() + at(row * columns), at(columns));
      continue;
    }
    for (std::int64_t column = 0; column < columns; ++column) {
      std::memcpy(tensor.bytes.data() + at(place.at(row, column)), bytes.data() + at(row * columns + column), width);
    }
  }
  return {};
}

/// Under a name of our own, or of the checkpoint's where there is one.
Result<WeightPlace> place_of_weight(const Weight& weight, const Checkpoint* checkpoint) {
  const kernels::TensorView& view = weight.view;
  const std::string_view name = weight_of_version(weight.name);
  if (checkpoint != nullptr) return checkpoint->place(name, view.rows, view.columns);
  WeightPlace place{std::string(name), {view.columns}, 0, view.columns, 1};
  if (view.rows > 1) place.shape.insert(place.shape.begin(), view.rows);
  return place;
}

Result<FolderFile> weights_file(const LoadedModel& model, kernels::Device& device, const Checkpoint* checkpoint) {
  OpenTensors tensors;
  for (const Weight& weight : model.weights) {
    const auto place = place_of_weight(weight, checkpoint);
    if (!place) return tl::unexpected(place.error());
    auto bytes = bytes_of_weight(weight, device);
    if (!bytes) return tl::unexpected(bytes.error());
    if (Status done = put(weight, *place, std::move(*bytes), tensors); !done) return tl::unexpected(done.error());
  }
  std::vector<SafetensorsInput> inputs;
  for (const auto& [name, tensor] : tensors) {
    inputs.push_back({name, std::string(safetensors_dtype(tensor.format)), tensor.shape, tensor.bytes});
  }
  auto bytes = encode_safetensors(inputs, {{"format", "pt"}});
  if (!bytes) return tl::unexpected(bytes.error());
  return FolderFile{std::string(kWeightsFile), std::move(*bytes)};
}

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// As they lie in the folder; one that is not there is left out.
Status add_beside(const std::filesystem::path& folder, std::vector<FolderFile>& files) {
  for (const std::string_view name : kBeside) {
    std::error_code error;
    if (!std::filesystem::exists(folder / name, error)) continue;
    auto bytes = read_file(folder / name, kMostBeside);
    if (!bytes) return tl::unexpected(bytes.error());
    files.push_back({std::string(name), std::move(*bytes)});
  }
  return {};
}

Status add_of_own_names(const EngineConfig& config, std::int64_t vocabulary, std::vector<FolderFile>& files) {
  EngineConfig stated = config;
  const Format cache = config.kv.format;
  const bool plain = cache == Format::f32 || cache == Format::f16 || cache == Format::bf16;
  if (!plain) stated.kv.format = config.activation_format;  // a deployment's, which the model does not depend on
  if (const auto text = reference_config_json(stated, vocabulary)) {
    files.push_back({"config.json", bytes_of_text(*text)});
  }
  if (config.model.tokenizer.empty()) {
    files.push_back({"tokenizer.json", bytes_of_text(shipped_tokenizer_json())});
  }
  return {};
}

/// Settings of attention that are not the usual ones, which the model was trained with: without them it would be
/// measured as another one.
Status state_attention(const EngineConfig& config, std::vector<FolderFile>& files) {
  const auto file = std::ranges::find(files, "config.json", &FolderFile::name);
  if (file == files.end()) return {};
  Result<nlohmann::ordered_json> json = parse_json<nlohmann::ordered_json>(as_text(file->bytes));
  if (!json) return fail("config.json: " + json.error().message);
  constexpr std::string_view kPrefix = "attention.";
  auto settings = nlohmann::ordered_json::object();
  const EngineConfig usual;
  for (const Knob& knob : knobs()) {
    if (!knob.name.starts_with(kPrefix) || knob.get(config) == knob.get(usual)) continue;
    settings[knob.name.substr(kPrefix.size())] = knob.get(config);
  }
  if (settings.empty() && !json->contains("nanscope_attention")) return {};
  json->erase("nanscope_attention");
  if (!settings.empty()) (*json)["nanscope_attention"] = settings;
  file->bytes = bytes_of_text(json->dump(2) + '\n');
  return {};
}

}  // namespace

Result<std::vector<FolderFile>> model_files(const EngineConfig& config, const LoadedModel& model,
                                            kernels::Device& device) {
  std::shared_ptr<const Checkpoint> checkpoint;
  if (!config.model.family.empty()) {
    const ModelFamily* family = find_family(config.model.family);
    if (family == nullptr) return fail(fmt::format("no family '{}'", config.model.family));
    auto opened = Checkpoint::open(config.model.weights, *family, config.model);
    if (!opened) return tl::unexpected(opened.error());
    checkpoint = std::move(*opened);
  }
  std::vector<FolderFile> files;
  auto weights = weights_file(model, device, checkpoint.get());
  if (!weights) return tl::unexpected(weights.error());
  files.push_back(std::move(*weights));
  const Status added = checkpoint != nullptr ? add_beside(config.model.weights, files)
                                             : add_of_own_names(config, model.vocabulary, files);
  if (!added) return tl::unexpected(added.error());
  if (Status stated = state_attention(config, files); !stated) return tl::unexpected(stated.error());
  if (!config.model.tokenizer.empty()) {
    auto bytes = read_file(config.model.tokenizer, kMostBeside);
    if (!bytes) return tl::unexpected(bytes.error());
    files.push_back({"tokenizer.json", std::move(*bytes)});
  }
  return files;
}

}  // namespace nanscope::train
