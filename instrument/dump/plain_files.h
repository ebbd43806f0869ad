#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/dump.h"

/// What files of no known program say besides the names of their tensors: which pass they are of, and in which order
/// their tensors came.
namespace nanscope {

/// Where a tensor was stored.
struct StoredAt {
  bool plain = false;                    ///< in a file that no producer claimed
  bool keeps_order = false;              ///< its file has its tensors in the order in which they were put into it
  std::size_t place = 0;                 ///< in its file
  std::int64_t modified = 0;             ///< when its file was last written to, in nanoseconds
  std::optional<std::size_t> file = {};  ///< of OpenDump::files()
};

using WhereStored = std::function<StoredAt(const DumpTensor&)>;

/// Whether a key says which side of a module a tensor is, or what of it, and not of which module: "output", "input.1".
bool is_side(std::string_view key);

/// Files of one folder that hold tensors of the same names are of several passes: the number in which their names
/// differ is the step, names that differ otherwise are runs. So is a file named by a number in a folder that is named
/// by a module. A file of sides alone among files of modules is a module's. Returns what was taken for what.
std::vector<RunNote> tell_files_apart(std::vector<DumpTensor>& tensors, const WhereStored& stored);

/// Puts tensors whose names say no place behind those that precede them in their file; where no name of a pass says
/// one and each has its own file, by the times at which those were written. Returns what was ordered by time.
std::vector<RunNote> order_by_files(std::vector<DumpTensor>& tensors, const WhereStored& stored);

/// Of a key in a list of passes, "1.model.layers.0.mlp.output", the same as "step_1/model.layers.0.mlp.output"; the key
/// itself where `keys` are no such list.
std::string key_of_listed_pass(const std::string& key, bool listed);
bool are_listed_passes(const std::vector<std::string>& keys);

}  // namespace nanscope
