#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "instrument/diagnosis/compare.h"
#include "instrument/diagnosis/evidence.h"

namespace nanscope {

enum class DifferenceKind : std::uint8_t {
  only_in_a,
  only_in_b,
  shape,    ///< tokens, channels or format differ
  content,  ///< the hashes, or where there are none the elements, differ
};

struct Difference {
  DifferenceKind kind = DifferenceKind::content;
  Where where;  ///< ids are A's, or B's when it is only there
  std::optional<Tensor> a;
  std::optional<Tensor> b;
  std::optional<TensorComparison> elements;  ///< when both sides' elements could be had
  std::string summary;                       ///< one sentence
};

struct DiffReport {
  std::uint64_t compared = 0;           ///< pairs of tensors
  std::uint64_t differing = 0;          ///< of them
  std::uint64_t unmatched = 0;          ///< tensors of one side alone
  std::uint64_t unknown = 0;            ///< pairs of which neither hashes nor elements could be had
  std::vector<Difference> differences;  ///< in logical order; the first is the divergence
  bool same() const { return differing == 0 && unmatched == 0; }
};

struct DiffOptions {
  std::size_t limit = 1;  ///< differences to describe, with their elements
};

/// Aligns two runs by (rank, request, step, layer, op, role) and compares their tensors bit for bit: hashes where both
/// have them, else elements; then the elements of the first that differ. Parameters are compared where both runs hold
/// them as tensors. Errors: rows cannot be read.
Result<DiffReport> diff(RunView& a, RunView& b, const DiffOptions& options = {});

nlohmann::ordered_json to_json(const DiffReport& report);
std::string_view name(DifferenceKind kind);

}  // namespace nanscope
