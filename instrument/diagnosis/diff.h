#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "instrument/diagnosis/compare.h"
#include "instrument/diagnosis/evidence.h"
#include "core/run/run_data.h"
#include "core/run/tensor_source.h"
#include "core/result.h"

namespace nanscope {

enum class DifferenceKind : std::uint8_t {
  only_in_a,
  only_in_b,
  shape,    ///< tokens, channels or format differ
  content,  ///< the hashes differ
};

struct Difference {
  DifferenceKind kind = DifferenceKind::content;
  Where where;  ///< ids are A's, or B's when it is only there
  std::optional<TensorRow> a;
  std::optional<TensorRow> b;
  std::optional<TensorComparison> elements;  ///< when both sides' elements could be had
  std::string summary;                       ///< one sentence
};

struct DiffReport {
  std::uint64_t compared = 0;           ///< pairs of tensors
  std::uint64_t differing = 0;          ///< of them
  std::uint64_t unmatched = 0;          ///< tensors of one side alone
  std::vector<Difference> differences;  ///< in logical order; the first is the divergence
  bool same() const { return differing == 0 && unmatched == 0; }
};

struct DiffOptions {
  std::size_t limit = 1;  ///< differences to describe, with their elements
};

/// Aligns two runs by (request, step, layer, op, role), compares hashes, then the elements of the first
/// that differ. Errors: rows cannot be read.
Result<DiffReport> diff(RunData& a, TensorSource& a_tensors, RunData& b, TensorSource& b_tensors,
                        const DiffOptions& options = {});

nlohmann::ordered_json to_json(const DiffReport& report);
std::string_view name(DifferenceKind kind);

}  // namespace nanscope
