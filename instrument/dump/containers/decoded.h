#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "instrument/dump/container.h"
#include "instrument/quantized/quantization_config.h"
#include "instrument/quantized/stored_matrix.h"
#include "instrument/quantized/stored_module.h"

namespace nanscope {

/// The quantized weights of a checkpoint as f32: codes times scales, made when they are asked for. Where scales are
/// stored in more bits than the activations that were served, each weight is there once more, as `weight_decoded`: with
/// scales that were rounded to the activations' format when they were loaded.
class DecodedContainer final : public Container {
 public:
  /// Null where the checkpoint is not quantized. Errors: those of CheckpointFiles::open and of its config.json.
  /// `served`: of the activations; none: not known.
  static Result<std::unique_ptr<DecodedContainer>> open(const std::filesystem::path& folder,
                                                        std::optional<Format> served);

  Result<TensorBytes> bytes(std::size_t tensor) const override;
  Status check() const override { return files_.check_unchanged(); }
  /// Names of the tensors that they are made of.
  const std::set<std::string, std::less<>>& made_of() const { return made_of_; }

 private:
  DecodedContainer(CheckpointFiles files, QuantizationConfig config)
      : files_(std::move(files)), config_(std::move(config)) {}

  CheckpointFiles files_;
  QuantizationConfig config_;
  /// What a tensor is decoded from.
  struct Decoded {
    std::size_t module;
    std::optional<Format> scales_as;
  };
  void add(std::size_t module, const StoredMatrix& matrix, std::optional<Format> scales_as);

  std::vector<StoredModule> modules_;
  std::vector<Decoded> decoded_;  ///< of the tensors, in their order
  std::set<std::string, std::less<>> made_of_;
};

}  // namespace nanscope
