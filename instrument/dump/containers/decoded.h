#pragma once
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "instrument/dump/container.h"
#include "instrument/quantized/quantization_config.h"
#include "instrument/quantized/stored_module.h"

namespace nanscope {

/// The quantized weights of a checkpoint as f32: codes times scales, made when they are asked for.
class DecodedContainer final : public Container {
 public:
  /// Null where the checkpoint is not quantized. Errors: those of CheckpointFiles::open and of its config.json.
  static Result<std::unique_ptr<DecodedContainer>> open(const std::filesystem::path& folder);

  Result<TensorBytes> bytes(std::size_t tensor) const override;
  Status check() const override { return files_.check_unchanged(); }
  /// Names of the tensors that they are made of.
  const std::set<std::string, std::less<>>& made_of() const { return made_of_; }

 private:
  DecodedContainer(CheckpointFiles files, QuantizationConfig config)
      : files_(std::move(files)), config_(std::move(config)) {}

  CheckpointFiles files_;
  QuantizationConfig config_;
  std::vector<StoredModule> modules_;  ///< of the tensors, in their order
  std::set<std::string, std::less<>> made_of_;
};

}  // namespace nanscope
