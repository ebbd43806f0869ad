#include "instrument/spectral/scale_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <span>

#include "core/tensor/content_hash.h"
#include "instrument/files/file.h"
#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

constexpr std::string_view kSchema = "nanscope.score-scales/1";
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

/// A tensor of a layer: its name behind "layers.N.", and what it is.
struct Column {
  std::string_view name;
  std::vector<float> FiledLayer::*values;
  bool of_keys;
  bool scale;
};
constexpr std::array kColumns{
    Column{"scores.scale", &FiledLayer::scores, false, true},
    Column{"q.scale", &FiledLayer::queries, false, true},
    Column{"k.scale", &FiledLayer::keys, true, true},
    Column{"scores.norm", &FiledLayer::norms, false, false},
};

std::string identity_text(std::uint64_t identity) { return fmt::format("{:016x}", identity); }

template <class Value, class Of>
std::vector<float> column(const std::vector<Value>& all, const Of& of) {
  std::vector<float> values(all.size());
  std::transform(all.begin(), all.end(), values.begin(), [&](const Value& one) { return static_cast<float>(of(one)); });
  return values;
}

/// Figures beside the scales, for who looks at the file with other tools.
std::vector<std::pair<std::string_view, std::vector<float>>> bounds_of(const LayerScales& layer) {
  return {{"scores.naive", column(layer.heads, [](const HeadBounds& one) { return one.naive; })},
          {"scores.worst_case", column(layer.heads, [](const HeadBounds& one) { return one.interaction; })},
          {"scores.calibrated", column(layer.heads, [](const HeadBounds& one) { return one.calibrated; })},
          {"q.calibrated", column(layer.queries, [](const ElementBounds& one) { return one.calibrated; })},
          {"k.calibrated", column(layer.keys, [](const ElementBounds& one) { return one.calibrated; })}};
}

FiledLayer filed(const LayerScales& layer) {
  return {.layer = layer.layer,
          .identity = layer.identity,
          .scores = column(layer.heads, [](const HeadBounds& one) { return one.scale; }),
          .queries = column(layer.queries, [](const ElementBounds& one) { return one.scale; }),
          .keys = column(layer.keys, [](const ElementBounds& one) { return one.scale; }),
          .norms = column(layer.norms, [](const HeadNorms& one) { return one.interaction; })};
}

/// "layers.3.scores.scale" -> 3; -1 for what is called otherwise.
std::int64_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  std::int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : -1;
}

Result<std::vector<float>> read_column(const SafetensorsFile& opened, const std::string& name, std::int64_t heads,
                                       bool scale) {
  const SafetensorsEntry* entry = opened.find(name);
  if (entry == nullptr) return fail(fmt::format("no tensor '{}'", name));
  if (entry->dtype != "F32" || entry->shape != std::vector<std::int64_t>{heads}) {
    return fail(fmt::format("'{}' is {} [{}], and is to be F32 [{}]: one value a head", name, entry->dtype,
                            fmt::join(entry->shape, ", "), heads));
  }
  Result<std::vector<float>> values = safetensors_values(*entry, opened.bytes(*entry));
  if (!values || !scale) return values;
  for (std::size_t head = 0; head < values->size(); ++head) {
    const float value = (*values)[head];
    if (std::isfinite(value) && value > 0) continue;
    return fail(fmt::format("'{}' is {} for head {}: a scale is above 0 and finite", name, value, head));
  }
  return values;
}

Result<FiledLayer> read_layer(const SafetensorsFile& opened, std::int64_t layer, const ModelConfig& model) {
  FiledLayer out;
  out.layer = layer;
  for (const Column& each : kColumns) {
    auto values = read_column(opened, fmt::format("layers.{}.{}", layer, each.name),
                              each.of_keys ? model.kv_heads : model.heads, each.scale);
    if (!values) return tl::unexpected(values.error());
    out.*each.values = std::move(*values);
  }
  const std::string key = fmt::format("layers.{}.identity", layer);
  const auto found = opened.header().metadata.find(key);
  const std::string text = found == opened.header().metadata.end() ? std::string() : found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.identity, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
    return fail(fmt::format("metadata '{}' is no identity of weights, 16 hexadecimal digits", key));
  }
  return out;
}

}  // namespace

const FiledLayer* ScaleFile::find(std::int64_t layer) const {
  const auto found =
      std::find_if(layers.begin(), layers.end(), [&](const FiledLayer& one) { return one.layer == layer; });
  return found == layers.end() ? nullptr : &*found;
}

Result<std::vector<std::byte>> encode_scale_file(const ModelScales& scales, std::string_view checkpoint,
                                                 std::string_view policy) {
  std::map<std::string, std::string> metadata{{"format", std::string(kSchema)},
                                              {"checkpoint", std::string(checkpoint)},
                                              {"policy", std::string(policy)},
                                              {"alpha", fmt::format("{}", scales.alpha)},
                                              {"delta", fmt::format("{}", scales.settings.delta)},
                                              {"length", fmt::format("{}", scales.settings.length)},
                                              {"utilization", fmt::format("{}", scales.settings.utilization)},
                                              {"largest", fmt::format("{}", scales.settings.largest)}};
  std::map<std::string, std::vector<float>> tensors;
  for (const LayerScales& layer : scales.layers) {
    if (layer.bound == ScoreBound::none) {
      return fail(fmt::format("layer {} has no scales: nothing bounds its tokens", layer.layer));
    }
    const std::string prefix = fmt::format("layers.{}.", layer.layer);
    const FiledLayer values = filed(layer);
    for (const Column& each : kColumns) tensors[prefix + std::string(each.name)] = values.*each.values;
    for (auto& [name, bounds] : bounds_of(layer)) tensors[prefix + std::string(name)] = std::move(bounds);
    metadata[prefix + "identity"] = identity_text(layer.identity);
  }
  std::vector<SafetensorsInput> inputs;
  inputs.reserve(tensors.size());
  for (const auto& [name, values] : tensors) {
    inputs.push_back({name, "F32", {std::ssize(values)}, std::as_bytes(std::span(values))});
  }
  return encode_safetensors(inputs, metadata);
}

Result<std::string> scale_file_hash(const std::filesystem::path& path) {
  const auto bytes = read_file(path, kMostBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  ContentHash hash;
  hash.add(*bytes);
  return fmt::format("{:016x}", hash.finish());
}

Result<ScaleFile> read_scale_file(const std::filesystem::path& path, const ModelConfig& model) {
  const Result<SafetensorsFile> opened = SafetensorsFile::open(path);
  if (!opened) return tl::unexpected(opened.error());
  const auto& metadata = opened->header().metadata;
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (text("format") != kSchema) {
    return fail(fmt::format("{}: no file of scores' scales: its metadata 'format' is '{}', not '{}'", path.string(),
                            text("format"), kSchema));
  }
  ScaleFile file{path.string(), text("checkpoint"), text("policy"), {}};
  for (const SafetensorsEntry& entry : opened->entries()) {
    const std::int64_t layer = layer_of(entry.name);
    if (layer < 0 || file.find(layer) != nullptr) continue;
    if (layer >= model.layers) {
      return fail(fmt::format("{}: scales of layer {}: the model has 0 to {}", file.file, layer, model.layers - 1));
    }
    auto read = read_layer(*opened, layer, model);
    if (!read) return fail(fmt::format("{}: {}", file.file, read.error().message));
    file.layers.push_back(std::move(*read));
  }
  std::sort(file.layers.begin(), file.layers.end(),
            [](const FiledLayer& a, const FiledLayer& b) { return a.layer < b.layer; });
  if (Status same = opened->check(); !same) return tl::unexpected(same.error());
  return file;
}

std::string other_weights_text(const ScaleFile& file, std::int64_t layer) {
  return fmt::format("{}: layer {}: scales of other weights, of checkpoint '{}'", file.file, layer, file.checkpoint);
}

void warn_of_other_weights(const ScaleFile& file, ModelScales& scales) {
  for (LayerScales& layer : scales.layers) {
    const FiledLayer* filed = file.find(layer.layer);
    if (filed == nullptr) {
      layer.warnings.push_back({"swapped-checkpoint", -1, fmt::format("{} has no scales of this layer", file.file), 1});
      continue;
    }
    if (filed->identity == layer.identity || layer.heads.empty()) continue;
    std::size_t worst = 0;
    double excess = 0;
    for (std::size_t head = 0; head < layer.heads.size(); ++head) {
      const double ratio = layer.heads[head].scale / double{filed->scores[head]};
      if (ratio <= excess) continue;
      excess = ratio;
      worst = head;
    }
    layer.warnings.push_back(
        {"swapped-checkpoint", static_cast<std::int64_t>(worst),
         fmt::format(
             "{} has scales of other weights, of checkpoint '{}', whose norm is {:.4g} and whose scale {:.4g}; "
             "these have {:.4g} and want {:.4g}, {}",
             file.file, file.checkpoint, filed->norms[worst], filed->scores[worst], layer.norms[worst].interaction,
             layer.heads[worst].scale,
             excess > 1 ? fmt::format("{:.4g} times the file's", excess) : std::string("which the file's scale holds")),
         excess});
  }
}

}  // namespace nanscope
