#include "instrument/verify/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/dump/dtype.h"
#include "core/parse_json.h"
#include "core/text/safe_text.h"
#include "instrument/files/file.h"
#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostConfig = 16u << 20;
constexpr std::string_view kBefore = "base_model.model.";
constexpr std::string_view kDown = ".lora_A.weight";
constexpr std::string_view kUp = ".lora_B.weight";

struct AdapterConfig {
  double scale = 1;
  bool turned = false;  ///< weights are (in, out)
};

Result<AdapterConfig> read_config(const fs::path& file) {
  const auto bytes = read_file(file, kMostConfig);
  if (!bytes) return tl::unexpected(bytes.error());
  const std::string where = file.string();
  const auto parsed = parse_json(as_text(*bytes));
  if (!parsed) return fail(where + ": " + parsed.error().message);
  const nlohmann::json& json = *parsed;
  if (!json.is_object()) return fail(where + ": is no JSON object");
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number() ? found->get<double>() : NAN;
  };
  const auto flag = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_boolean() && found->get<bool>();
  };
  const auto kind = json.find("peft_type");
  if (kind == json.end() || *kind != "LORA") return fail(where + ": peft_type is not LORA");
  if (flag("use_dora")) return fail(where + ": use_dora is not supported");
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    const auto found = json.find(key);
    if (found != json.end() && found->is_object() && !found->empty())
      return fail(fmt::format("{}: {} is not supported", where, key));
  }
  const double rank = number("r");
  const double alpha = number("lora_alpha");
  if (!(rank >= 1) || !std::isfinite(alpha)) return fail(where + ": r and lora_alpha have to be numbers, r at least 1");
  return AdapterConfig{alpha / (flag("use_rslora") ? std::sqrt(rank) : rank), flag("fan_in_fan_out")};
}

/// A matrix of f32 values.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;
};

Result<Matrix> matrix_of(const SafetensorsFile& file, const SafetensorsEntry& entry, const std::string& where) {
  if (entry.shape.size() != 2) return fail(fmt::format("{}: tensor '{}' is no matrix", where, one_line(entry.name)));
  auto values = safetensors_values(entry, file.bytes(entry));
  if (!values) return fail(fmt::format("{}: {}", where, values.error().message));
  return Matrix{entry.shape[0], entry.shape[1], std::move(*values)};
}

/// The files of a checkpoint, by the tensors in them.
struct Base {
  std::vector<std::pair<std::string, SafetensorsFile>> files;

  /// A module's weight, with or without what stands before the layers.
  std::pair<const std::pair<std::string, SafetensorsFile>*, const SafetensorsEntry*> find(std::string name) const {
    for (int round = 0; round < 2; ++round) {
      for (const auto& file : files) {
        if (const SafetensorsEntry* entry = file.second.find(name)) return {&file, entry};
      }
      const std::size_t dot = name.find('.');
      if (dot == std::string::npos) break;
      name = name.substr(dot + 1);
    }
    return {nullptr, nullptr};
  }
};

Result<Base> open_base(const fs::path& folder) {
  Base base;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    auto file = SafetensorsFile::open(entry.path());
    if (!file) return tl::unexpected(file.error());
    base.files.emplace_back(entry.path().string(), std::move(*file));
  }
  return base;
}

/// values += scale B A, or its transpose.
void add_product(Matrix& weight, const Matrix& down, const Matrix& up, const AdapterConfig& config) {
  for (std::int64_t out = 0; out < up.rows; ++out) {
    for (std::int64_t in = 0; in < down.columns; ++in) {
      double sum = 0;
      for (std::int64_t r = 0; r < down.rows; ++r)
        sum += double{up.values[static_cast<std::size_t>(out * up.columns + r)]} *
               double{down.values[static_cast<std::size_t>(r * down.columns + in)]};
      const std::int64_t at = config.turned ? in * weight.columns + out : out * weight.columns + in;
      float& value = weight.values[static_cast<std::size_t>(at)];
      value = static_cast<float>(double{value} + config.scale * sum);
    }
  }
}

}  // namespace

Result<std::vector<NamedTensor>> merged_weights(const fs::path& adapter, const fs::path& checkpoint) {
  const auto config = read_config(adapter / "adapter_config.json");
  if (!config) return tl::unexpected(config.error());
  const std::string file_name = (adapter / "adapter_model.safetensors").string();
  const auto file = SafetensorsFile::open(file_name);
  if (!file) return tl::unexpected(file.error());
  const auto base = open_base(checkpoint);
  if (!base) return tl::unexpected(base.error());
  std::vector<NamedTensor> merged;
  for (const SafetensorsEntry& entry : file->entries()) {
    const std::string name = entry.name;
    if (name.ends_with(kUp)) continue;
    const auto refused = [&](std::string_view why) {
      return fail(fmt::format("{}: tensor '{}' {}", file_name, one_line(name), why));
    };
    if (!name.starts_with(kBefore) || !name.ends_with(kDown)) return refused("is no part of a LoRA adapter of modules");
    const std::string module = name.substr(kBefore.size(), name.size() - kBefore.size() - kDown.size());
    const SafetensorsEntry* partner = file->find(std::string(kBefore) + module + std::string(kUp));
    if (partner == nullptr) return refused("has no lora_B beside it");
    const auto [where, weight] = base->find(module + ".weight");
    if (weight == nullptr) return refused("is of a module that the checkpoint does not have");
    auto own = matrix_of(where->second, *weight, where->first);
    const auto down = matrix_of(*file, entry, file_name);
    const auto up = matrix_of(*file, *partner, file_name);
    if (!own) return tl::unexpected(own.error());
    if (!down) return tl::unexpected(down.error());
    if (!up) return tl::unexpected(up.error());
    const std::int64_t outputs = config->turned ? own->columns : own->rows;
    const std::int64_t inputs = config->turned ? own->rows : own->columns;
    if (up->rows != outputs || down->columns != inputs || up->columns != down->rows)
      return refused(fmt::format("does not fit the {} x {} weight of its module", own->rows, own->columns));
    add_product(*own, *down, *up, *config);
    auto values = std::make_shared<std::vector<float>>(std::move(own->values));
    NamedTensor one;
    one.name = weight->name;
    one.dtype = find_dtype("f32");
    one.shape = {own->rows, own->columns};
    one.bytes = {std::as_bytes(std::span<const float>(*values)), values};
    merged.push_back(std::move(one));
  }
  if (merged.empty()) return fail(file_name + ": holds no adapter");
  return merged;
}

}  // namespace nanscope
