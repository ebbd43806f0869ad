#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/dump/producers/msprobe_tensors.h"

/// The dump.json of msprobe: names, shapes and statistics of every tensor of a step.
namespace nanscope {

/// In the order in which modules and functions ran; a module's inputs stand before what is inside it.
/// Nothing when `text` is another program's dump.json. Error: damaged, or more tensors than a file of its size may
/// list, with file and offset.
Result<std::optional<std::vector<MsprobeTensor>>> read_msprobe_directory(std::string_view text,
                                                                         const std::string& file);

}  // namespace nanscope
