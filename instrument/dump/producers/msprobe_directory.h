#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/dtype.h"
#include "core/result.h"
#include "core/tensor/health.h"

/// The dump.json of msprobe (Ascend, `mindstudio-probe`): names, shapes and statistics of every tensor of a step.
namespace nanscope {

struct MsprobeTensor {
  std::string stored;  ///< the name of its file without the extension, whether it is there or not
  std::string key;     ///< as hooks of PyTorch would call it: "model.layers.0.mlp.down_proj.output.0"
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  Health health;  ///< as far as maximum, minimum, mean and norm tell it; empty without them
  bool has_statistics = false;
  std::int64_t order = 0;
};

/// In the order in which modules and functions ran; a module's inputs stand before what is inside it.
/// Nothing when `text` is another program's dump.json. Error: damaged, with file and offset.
Result<std::optional<std::vector<MsprobeTensor>>> read_msprobe_directory(std::string_view text,
                                                                         const std::string& file);

/// One statistic: a number, or text or a bare word for what JSON has no number for. Nothing for anything else.
std::optional<double> msprobe_number(std::string_view text);

}  // namespace nanscope
