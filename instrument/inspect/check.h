#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/inspect/inspection.h"
#include "instrument/quantized/quantization_config.h"
#include "instrument/quantized/stored_matrix.h"
#include "instrument/quantized/stored_module.h"

/// Checks of a checkpoint. Each is one file in checks/ and one line in checks.def.
namespace nanscope {

/// A module, and what its tensors make where they make something.
struct Inspected {
  const StoredModule* module = nullptr;
  std::optional<StoredMatrix> matrix;
  NotKnown unknown;        ///< why they make no matrix
  bool candidate = false;  ///< a product's weight that a quantized model has quantized
  bool listed = false;     ///< the config's list leaves it as it is
  double rms = 0;          ///< of the rows that were looked at, as the config reads them
  double code_rms = 0;     ///< of their codes
};

/// What checks look at.
struct InspectSubject {
  const QuantizationConfig& config;
  const Loader& loader;
  std::span<const Inspected> modules;
  const std::map<std::string_view, const Inspected*>& by_path;
  std::int64_t rows;                         ///< of each weight that are looked at; 0: all
  std::string_view kv_cache_dtype = "auto";  ///< what the server is told to store the cache in

  /// Rows of a matrix to look at, spread evenly.
  std::vector<std::int64_t> rows_of(const StoredMatrix& matrix) const;
  /// The parts that a server runs as one and that begin with this module: q, k and v, or gate and up; empty where it
  /// begins none.
  std::vector<const Inspected*> fused_with(const Inspected& first) const;
  /// Whether it is an expert's.
  static bool is_expert(const StoredModule& module);
};

using Check = void (*)(const InspectSubject& subject, std::vector<InspectFinding>& findings);

std::span<const Check> inspect_checks();

#define NANSCOPE_CHECK(name) void check_##name(const InspectSubject& subject, std::vector<InspectFinding>& findings);
#include "instrument/inspect/checks.def"
#undef NANSCOPE_CHECK

/// "a, b and 3 more".
std::string some_of(std::span<const std::string> names);

}  // namespace nanscope
