#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dump/clipping.h"
#include "core/dump/warnings/warning.h"

namespace nanscope::dump_warnings {
namespace {

constexpr std::size_t kLeastChannels = 32;                     ///< that are not zero, in a row that is judged
constexpr std::size_t kFewCodes = 4;                           ///< of an 8-bit format; a row of any spread has dozens
constexpr std::size_t kRepeats = 16;                           ///< channels a value, of wider formats
constexpr std::int64_t kMostElements = std::int64_t{1} << 22;  ///< looked at, of all tensors

struct Row {
  std::int64_t row = -1;
  std::size_t distinct = 0;
  std::size_t nonzero = 0;
};

std::size_t distinct_of(std::vector<float>& values) {
  std::sort(values.begin(), values.end());
  return static_cast<std::size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

/// The row with the fewest values, of those that have too few; and how many have.
std::pair<Row, std::int64_t> poorest_row(const std::vector<float>& values, std::int64_t channels, bool codes) {
  Row poorest;
  std::int64_t rows = 0;
  const auto width = static_cast<std::size_t>(channels);
  for (std::size_t begin = 0; begin + width <= values.size(); begin += width) {
    std::vector<float> some;
    for (std::size_t i = begin; i < begin + width; ++i) {
      if (values[i] != 0 && std::isfinite(values[i])) some.push_back(values[i]);
    }
    if (some.size() < kLeastChannels) continue;
    const std::size_t nonzero = some.size();
    const std::size_t distinct = distinct_of(some);
    if (distinct > (codes ? kFewCodes : nonzero / kRepeats)) continue;
    ++rows;
    if (poorest.row < 0 || distinct < poorest.distinct) {
      poorest = {static_cast<std::int64_t>(begin / width), distinct, nonzero};
    }
  }
  return {poorest, rows};
}

/// Codes of casts, and what goes into norms: where values that became one do harm.
bool is_looked_at(const DumpTensor& tensor) {
  if (holds_codes(tensor)) return tensor.at.role != "probs";
  return tensor.at.kind == ModuleKind::norm && tensor.at.port == Port::input && is_activation(tensor) && tensor.format;
}

}  // namespace

/// Distinct values go before a variance does: 256 channels of one number have none.
std::vector<Watched> find_few_values(DumpFacts& facts, const IsWatched& watched) {
  std::vector<Watched> found;
  std::int64_t looked_at = 0;
  for (TensorIndex i = 0; i < facts.size() && looked_at < kMostElements; ++i) {
    const DumpTensor& tensor = facts.tensor(i);
    if (!watched(i) || tensor.stated || tensor.bad() || tensor.channels() < static_cast<std::int64_t>(kLeastChannels) ||
        !is_looked_at(tensor)) {
      continue;
    }
    const auto values = facts.values(i);
    if (!values) continue;
    looked_at += tensor.count();
    const auto [poorest, rows] = poorest_row(*values, tensor.channels(), holds_codes(tensor));
    if (rows == 0) continue;
    Watched out{.tensor = i,
                .severity = static_cast<double>(poorest.nonzero) / static_cast<double>(poorest.distinct),
                .evidence = {},
                .summary = {},
                .advice = {}};
    out.evidence = {{"row", poorest.row},
                    {"distinct_values", static_cast<std::int64_t>(poorest.distinct)},
                    {"not_zero", static_cast<std::int64_t>(poorest.nonzero)},
                    {"rows", rows},
                    {"of_rows", tensor.rows()}};
    out.summary = fmt::format(
        "row {} of {} has {} distinct values in {} channels that are not zero, and {} of {} rows are "
        "like it",
        poorest.row, tensor.name, poorest.distinct, poorest.nonzero, rows, tensor.rows());
    out.advice = "look for a cast before this tensor that clips or whose scale is far too large";
    found.push_back(std::move(out));
  }
  return found;
}

}  // namespace nanscope::dump_warnings
