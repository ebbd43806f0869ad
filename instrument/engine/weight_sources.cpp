#include <fmt/format.h>

#include <cmath>
#include <span>
#include <utility>

#include "core/numbers/decode_span.h"
#include "instrument/engine/reference_weights.h"
#include "instrument/engine/weight_source.h"
#include "instrument/weights/random.h"
#include "instrument/weights/safetensors.h"

namespace nanscope {
namespace {

class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(const ModelConfig& model) : seed_(model.seed), init_scale_(model.init_scale) {}

  Result<std::vector<float>> tensor(std::string_view name, std::int64_t rows, std::int64_t columns) override {
    const auto count = static_cast<std::size_t>(rows * columns);
    if (name.ends_with("norm.weight")) return std::vector<float>(count, 1.0F);
    if (name.ends_with(".bias")) return std::vector<float>(count, 0.0F);
    std::vector<float> values(count);
    if (name.ends_with(".decay")) {
      const std::uint64_t stream = stream_of(name);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(0.5 + 0.48 * uniform(seed_, stream, i));
      return values;
    }
    const double fan_in = name == "embed.weight" ? 1.0 : static_cast<double>(columns);
    fill_gaussian(values, seed_, name, static_cast<float>(init_scale_ / std::sqrt(fan_in)));
    return values;
  }

 private:
  std::uint64_t seed_;
  double init_scale_;
};

class FileWeights final : public WeightSource {
 public:
  FileWeights(SafetensorsFile file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  Result<std::vector<float>> tensor(std::string_view name, std::int64_t rows, std::int64_t columns) override {
    const SafetensorsEntry* entry = file_.find(name);
    if (entry == nullptr) return fail(fmt::format("{}: no tensor '{}'", path_, name));
    const bool vector = rows == 1 && entry->shape == std::vector<std::int64_t>{columns};
    if (!vector && entry->shape != std::vector<std::int64_t>{rows, columns}) {
      return fail(fmt::format("{}: tensor '{}' has shape [{}], expected [{},{}]", path_, name,
                              fmt::join(entry->shape, ","), rows, columns));
    }
    Result<std::vector<float>> values = safetensors_values(*entry, file_.bytes(*entry));
    if (!values) return values;
    if (Status status = apply_scale(std::string(name) + "_scale", *values); !status) {
      return tl::unexpected(status.error());
    }
    return values;
  }

 private:
  /// Multiplies codes by the one scale that a quantised checkpoint holds beside them, when it does.
  Status apply_scale(const std::string& name, std::vector<float>& values) const {
    const SafetensorsEntry* entry = file_.find(name);
    if (entry == nullptr) return {};
    if (entry->count() != 1) {
      return fail(fmt::format("{}: tensor '{}' has shape [{}], expected one scale of the whole weight", path_, name,
                              fmt::join(entry->shape, ",")));
    }
    const Result<std::vector<float>> scale = safetensors_values(*entry, file_.bytes(*entry));
    if (!scale) return tl::unexpected(scale.error());
    for (float& value : values) value *= scale->front();
    return {};
  }

  SafetensorsFile file_;
  std::string path_;
};

class CheckpointWeights final : public WeightSource {
 public:
  explicit CheckpointWeights(std::shared_ptr<const Checkpoint> checkpoint) : checkpoint_(std::move(checkpoint)) {}

  Result<std::vector<float>> tensor(std::string_view name, std::int64_t rows, std::int64_t columns) override {
    const Result<WeightData> data = checkpoint_->weight(name, rows, columns);
    if (!data) return tl::unexpected(data.error());
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    decode(data->format, std::span(data->data, values.size() * info(data->format).storage_bytes()), values);
    return values;
  }
  std::shared_ptr<const Checkpoint> checkpoint() const override { return checkpoint_; }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
};

}  // namespace

std::unique_ptr<WeightSource> make_random_weights(const ModelConfig& model) {
  return std::make_unique<RandomWeights>(model);
}

Result<std::unique_ptr<WeightSource>> open_weight_file(const std::filesystem::path& path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return tl::unexpected(file.error());
  return std::make_unique<FileWeights>(std::move(*file), path.string());
}

Result<std::unique_ptr<WeightSource>> open_checkpoint_weights(const ModelConfig& model) {
  const ModelFamily* family = find_family(model.family);
  if (family == nullptr) return fail(fmt::format("no family '{}'", model.family));
  Result<std::shared_ptr<const Checkpoint>> checkpoint = Checkpoint::open(model.weights, *family, model);
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  return std::make_unique<CheckpointWeights>(std::move(*checkpoint));
}

Result<std::unique_ptr<WeightSource>> make_weight_source(const ModelConfig& model) {
  if (!model.family.empty()) return open_checkpoint_weights(model);
  if (model.weights == "reference") return make_reference_weights(model);
  if (model.weights == "random") return make_random_weights(model);
  return open_weight_file(model.weights);
}

}  // namespace nanscope
