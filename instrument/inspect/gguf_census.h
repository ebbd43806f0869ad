#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/gguf/block_type.h"

/// What a GGUF file holds, by type, and which of its scales are no scales.
namespace nanscope {

struct GgufTensorCensus {
  std::string name;      ///< in the file
  std::string original;  ///< in the checkpoint that was converted; the same where the architecture is not known
  std::string type;      ///< "Q4_K"; "type 41" of one that is not decoded
  bool decoded = true;   ///< else nothing was read of it
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::int64_t elements = 0;
  std::int64_t scales = 0;      ///< 0: elements are numbers of their own
  std::int64_t nan = 0;         ///< scales and minimums that are NaN; of plain numbers, elements
  std::int64_t inf = 0;         ///< the same of Inf
  std::int64_t zero = 0;        ///< scales that are 0
  std::int64_t first_bad = -1;  ///< the block (of plain numbers: the element) of the first NaN or Inf
};

struct GgufCensus {
  std::string target;
  std::uint32_t version = 0;
  std::string architecture;
  std::string config_error;  ///< why the model cannot be run; empty: its config is understood
  std::size_t files = 0;
  std::vector<GgufTensorCensus> tensors;  ///< in the order of the files

  std::uint64_t bytes() const;
  std::int64_t elements() const;
  /// NaN and Inf.
  std::int64_t bad() const;
};

struct GgufCensusOptions {
  std::stop_token stop;
  std::function<void(std::size_t done, std::size_t total)> progress;
};

/// Reads all scales. Errors: those of GgufModel::open(), a file that changed meanwhile, stopped.
Result<GgufCensus> census_of_gguf(const std::filesystem::path& path, const GgufCensusOptions& options);

}  // namespace nanscope
