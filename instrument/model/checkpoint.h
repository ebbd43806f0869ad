#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"
#include "instrument/model/family.h"
#include "instrument/model/model_config.h"
#include "instrument/quantized/stored_matrix.h"
#include "instrument/weights/checkpoint_files.h"

namespace nanscope {

/// A weight where it lies: rows x columns, `stride` elements from row to row.
struct WeightData {
  Format format = Format::f32;
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  std::shared_ptr<const void> owner;  ///< keeps it alive
  bool mapped = false;                ///< it lies in a file, which another process may change
};

/// A quantized weight where it lies: some rows of a matrix of codes and scales.
struct StoredWeight {
  StoredMatrix matrix;
  std::int64_t first_row = 0;
  std::int64_t row_step = 1;  ///< how far apart its rows are
};

/// Where the elements of a weight lie in the tensor of a checkpoint that holds it: (row, column) at
/// first + row * next_row + column * next_column, row-major, and further on for each run of rows before it.
struct WeightPlace {
  std::string tensor;               ///< its name in the files
  std::vector<std::int64_t> shape;  ///< of the tensor
  std::int64_t first = 0;
  std::int64_t next_row = 0;
  std::int64_t next_column = 0;
  float offset = 0;      ///< the weight is this much more than what is stored
  std::int64_t run = 0;  ///< rows, or elements of a vector, behind which others lie; 0: none do
  std::int64_t gap = 0;  ///< how many elements those are
  std::int64_t at(std::int64_t row, std::int64_t column) const {
    const std::int64_t runs = run > 0 ? (next_row == 0 ? column : row) / run : 0;
    return first + row * next_row + column * next_column + runs * gap;
  }
};

/// A fixed scale of what a product reads, as the checkpoint has it.
struct InputScale {
  float stored = 0;
  bool divisor = false;  ///< compressed-tensors' input_global_scale
  float multiplier() const { return divisor ? 1 / stored : stored; }
};

/// The weights of a Hugging Face checkpoint folder: model.safetensors, or the files that model.safetensors.index.json
/// names; or those of a GGUF file. All files are mapped; a weight is a view of them in its own dtype, unless it is
/// stored the other way round, in turns with another, with an offset, in another order, or quantized, which make a
/// copy: codes times scales in f32. stored() gives the codes and scales of safetensors.
class Checkpoint {
 public:
  /// Errors: no such files, an index that names files outside of the folder or files that are not there, a damaged
  /// file, a tensor in two files.
  static Result<std::shared_ptr<const Checkpoint>> open(const std::filesystem::path& folder, const ModelFamily& family,
                                                        const ModelConfig& model);

  /// A weight by our name (docs/weights.md). Errors name the tensor and the file, what was expected and what was found.
  Result<WeightData> weight(std::string_view name, std::int64_t rows, std::int64_t columns) const;

  /// The same of a weight that is quantized; nothing where it is not.
  Result<std::optional<StoredWeight>> stored(std::string_view name, std::int64_t rows, std::int64_t columns) const;

  /// That of a quantized weight; nothing where there is none. Errors: it is more than one number.
  Result<std::optional<InputScale>> input_scale(std::string_view name) const;

  /// The name of the module that holds a weight in the files: "model.layers.0.mlp.up_proj".
  Result<std::string> module_of(std::string_view name) const;

  /// Where a weight is to be written in a checkpoint like this one. Errors: as of weight(), and one that is quantized.
  Result<WeightPlace> place(std::string_view name, std::int64_t rows, std::int64_t columns) const;

  /// Refuses a checkpoint with tensors that no weight of the model is made of, by name: what is left out may matter.
  Status check_all_used(const std::set<std::string, std::less<>>& ours) const;

  /// Refuses files that were changed since they were opened.
  Status check_unchanged() const;

 private:
  /// What one of our names stands for.
  struct Source {
    std::string tensor;
    WeightRule rule;
    std::int64_t expert = 0;
    bool bias = false;
  };

  Checkpoint(std::string folder, CheckpointFiles files, const ModelFamily& family, ModelConfig model)
      : folder_(std::move(folder)), files_(std::move(files)), family_(family), model_(std::move(model)) {}
  Result<Source> source(std::string_view name) const;
  Result<WeightPlace> place_of(const Source& from, std::int64_t rows, std::int64_t columns) const;
  CheckpointFiles::Tensor find(std::string_view tensor) const;
  bool of_mtp_layer(std::string_view tensor) const;
  /// The module whose quantized weight a tensor's name means; null where it is not quantized.
  const StoredModule* quantized(std::string_view tensor) const;
  Result<StoredWeight> stored(const StoredModule& module, const Source& from, std::int64_t rows,
                              std::int64_t columns) const;

  std::string folder_;
  CheckpointFiles files_;
  const ModelFamily& family_;
  ModelConfig model_;
  QuantizationConfig quantization_;
  std::map<std::string, StoredModule, std::less<>> quantized_;  ///< by path
};

}  // namespace nanscope
