#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/model/checkpoint.h"

namespace nanscope {

/// Where a model's weights come from. Names and shapes are listed in docs/weights.md.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The weight `name`, rows x columns, row-major (PyTorch's Linear layout: out x in; vectors are
  /// one row). Errors name the tensor, and what was expected and found.
  virtual Result<std::vector<float>> tensor(std::string_view name, std::int64_t rows, std::int64_t columns) = 0;
  /// The folder whose files hold the weights, to be used as they lie there; null for sources that make them.
  virtual std::shared_ptr<const Checkpoint> checkpoint() const { return nullptr; }
};

/// Gaussian weights from a counter-based generator, a stream of its own for every name: standard
/// deviation init_scale / sqrt(columns) for projections and the head, init_scale for the
/// embedding; norms are 1 and biases 0, and a recurrence's decay is spread over [0.5, 0.98].
std::unique_ptr<WeightSource> make_random_weights(const ModelConfig& model);

/// A safetensors file that holds every weight under its name, in any float format, times the scale NAME_scale if it
/// holds one.
Result<std::unique_ptr<WeightSource>> open_weight_file(const std::filesystem::path& path);

/// A checkpoint folder, its weights under the names of `model.family`.
Result<std::unique_ptr<WeightSource>> open_checkpoint_weights(const ModelConfig& model);

/// What `model.weights` names, except "reference", which has a source of its own.
Result<std::unique_ptr<WeightSource>> make_weight_source(const ModelConfig& model);

}  // namespace nanscope
