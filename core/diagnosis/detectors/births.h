#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/detectors/detector.h"

/// NaN and Inf by where they were born: each birth belongs to exactly one class.
namespace nanscope {

enum class BirthClass : std::uint8_t {
  variance_collapse,
  softmax_fully_masked,
  router_cancellation,
  f16_overflow,
  fp8_nonsaturating_overflow,
  scale_invalid,
  misread,  ///< healthy codes of the request's own: scale_misapplied and fp8_format_mismatch say how
  masked_tail_poison,
  prefix_cache_poison,
  weight_corruption,
  invalid_op,
};

BirthClass classify(Facts& facts, const SickOp& birth);
/// The births of one class in one request, in logical order.
struct BirthGroup {
  std::vector<const SickOp*> births;
  const SickOp& first() const { return *births.front(); }
};
std::vector<BirthGroup> births_of(Facts& facts, BirthClass wanted);

/// A fault at the first birth of a group: place, rows, the numbers of its provenance rule. The
/// summary is "<what>: <the rule's sentence>".
FoundFault fault_at_birth(Facts& facts, const BirthGroup& group, std::string_view what, std::string fix);
/// One fault a group, and the figure "n places in m requests" or `none`.
FaultReport report_births(Facts& facts, BirthClass wanted, std::string_view what, const std::string& fix,
                          const std::string& none);

/// A norm row's statistics.
struct NormRow {
  OpRow op;
  TensorRow stats;
  std::int64_t row = 0;
  std::int64_t group = 0;
  float mean = 0;
  float variance = 0;
  float root = 0;  ///< 1 / sqrt(variance + eps)
  double eps = 0;
  bool clamp = false;

  /// What the square root is taken of.
  float radicand() const;
};
/// The rows of a norm op, one a group; empty when its stats were not recorded or cannot be had.
std::vector<NormRow> norm_rows(Facts& facts, const OpRow& op);
/// The row with the smallest variance among the norms worth a look: those at which NaN was born,
/// else those of the steps in which values clipped, else of the first steps.
struct NormScan {
  std::int64_t rows = 0;          ///< looked at
  std::int64_t not_positive = 0;  ///< with variance <= 0
  std::int64_t no_root = 0;       ///< with a radicand <= 0 or NaN root from finite mean and variance
  std::vector<NormRow> lowest;    ///< one row or none
  bool available = true;          ///< false: norms were there, but no statistics
};
NormScan scan_norms(Facts& facts);

/// The first birth in a norm, null when there is none.
const SickOp* first_norm_birth(Facts& facts);

}  // namespace nanscope
