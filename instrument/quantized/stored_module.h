#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/weights/checkpoint_files.h"

namespace nanscope {

/// The tensors of one module by what they are to it: "weight", "weight_scale", "input_scale" ... Names that producers
/// have of their own for the same thing are told as one: ".scale" and ".qscale_weight" as "weight_scale_inv", gpt-oss's
/// "_blocks" and "_scales" as "blocks" and "scales".
struct StoredModule {
  std::string path;  ///< "model.layers.0.mlp.down_proj"
  std::map<std::string, CheckpointFiles::Tensor, std::less<>> tensors;

  /// Without a file where there is none.
  CheckpointFiles::Tensor find(std::string_view part) const;
  bool has(std::string_view part) const { return tensors.contains(part); }
  /// The weight, packed or not; without a file where there is none.
  CheckpointFiles::Tensor weight() const;
  /// Behind the last dot of the path.
  std::string_view leaf() const;
  /// What stands before it, with the dot.
  std::string_view parent() const;
};

/// All of a checkpoint, by path.
std::vector<StoredModule> stored_modules(const CheckpointFiles& files);

}  // namespace nanscope
