#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "core/result.h"

namespace nanscope {

enum class DumpDifferenceKind : std::uint8_t {
  only_in_a,
  only_in_b,
  shape,       ///< other extents
  rounding,    ///< other bits, no further apart than what the formats round explains
  content,     ///< further apart
  not_finite,  ///< a NaN or an Inf in one alone
};

/// Two tensors of the same name that are not the same.
struct DumpDifference {
  DumpDifferenceKind kind = DumpDifferenceKind::content;
  std::string name;   ///< in A, or in B when it is only there
  std::string other;  ///< in B
  std::int64_t elements = 0;
  std::int64_t differing = 0;
  std::int64_t first = -1;  ///< row-major index of the first element that decides the kind
  std::int64_t token = -1;  ///< of that element
  double a = 0;             ///< its values
  double b = 0;
  double relative = 0;  ///< largest |a - b| over the root mean square of A's elements
  double expected = 0;  ///< the rounding error that the coarser of the two formats explains, likewise
  std::string summary;  ///< one sentence
};

struct DumpDiff {
  std::uint64_t compared = 0;
  std::uint64_t equal = 0;     ///< bit for bit as numbers
  std::uint64_t rounding = 0;  ///< differ by rounding alone
  std::uint64_t beyond = 0;    ///< differ by more
  std::uint64_t unmatched = 0;
  std::vector<DumpDifference>
      differences;  ///< beyond rounding, unmatched or misshapen, in A's order; `limit` of each sort
  /// Nothing but rounding lies between the two.
  bool same() const { return beyond == 0 && unmatched == 0; }
};

struct DumpDiffOptions {
  std::size_t limit = 8;
  std::function<void(std::size_t done, std::size_t total)> progress;
};

/// Aligns two dumps by name; where the names differ by folders that say no step, rank or request, by what is left of
/// them. Compares numbers, so that a tensor may be stored in another format. Errors: elements cannot be read.
Result<DumpDiff> diff_dumps(const Dump& a, DumpElements& a_elements, const Dump& b, DumpElements& b_elements,
                            const DumpDiffOptions& options = {});

nlohmann::ordered_json to_json(const DumpDiff& diff);
std::string_view name(DumpDifferenceKind kind);

}  // namespace nanscope
