#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <unordered_set>

#include "instrument/diagnosis/warnings/warning.h"

namespace nanscope::early {
namespace {

// Of 8 codes, as e4m3 has between two powers of 2, 32 elements use no more than 4 by chance in 70 * 2^-32 = 1.6e-8.
constexpr std::size_t kLeastChannels = 32;                     ///< that are not zero, in a row that is judged
constexpr std::size_t kFewCodes = 4;                           ///< of an 8-bit format; a row of any spread has dozens
constexpr std::size_t kRepeats = 16;                           ///< channels a value, of wider formats
constexpr std::int64_t kMostElements = std::int64_t{1} << 22;  ///< looked at, of all tensors

struct Poorest {
  std::int64_t row = -1;
  std::int64_t rows = 0;  ///< that have too few values
  std::size_t distinct = 0;
  std::size_t nonzero = 0;
};

/// How many values there are; nothing where they are more than `most`, as in nearly every row.
std::optional<std::size_t> distinct_of(std::span<const float> values, std::size_t most) {
  std::unordered_set<float> distinct;
  for (const float one : values) {
    if (one == 0 || !std::isfinite(one)) continue;
    distinct.insert(one);
    if (distinct.size() > most) return std::nullopt;
  }
  return distinct.size();
}

/// The row of somebody with the fewest values, of those that have too few; and how many have.
Poorest poorest_row(Survey& survey, const Tensor& tensor, const std::vector<float>& values, bool codes) {
  Poorest poorest;
  const auto width = static_cast<std::size_t>(tensor.channels);
  for (std::size_t begin = 0; begin + width <= values.size(); begin += width) {
    const auto row = static_cast<std::int64_t>(begin / width);
    if (!survey.facts.live(tensor, row)) continue;
    const auto channels = std::span(values).subspan(begin, width);
    const auto nonzero = static_cast<std::size_t>(
        std::count_if(channels.begin(), channels.end(), [](float one) { return one != 0 && std::isfinite(one); }));
    if (nonzero < kLeastChannels) continue;
    const auto distinct = distinct_of(channels, codes ? kFewCodes : nonzero / kRepeats);
    if (!distinct) continue;
    ++poorest.rows;
    if (poorest.row < 0 || *distinct < poorest.distinct) {
      poorest.row = row;
      poorest.distinct = *distinct;
      poorest.nonzero = nonzero;
    }
  }
  return poorest;
}

/// Codes of casts, and what goes into norms: where values that became one do harm.
std::set<std::pair<TensorId, bool>> looked_at(Survey& survey) {
  std::set<std::pair<TensorId, bool>> tensors;
  for (const Cast& cast : survey.casts) tensors.emplace(cast.codes, info(cast.format).bits <= 8);
  for (const Op* op : survey.ops(OpKind::layer_norm)) {
    if (const Tensor* x = survey.run().input(*op, "x"); x != nullptr) tensors.emplace(x->id, false);
  }
  return tensors;
}

}  // namespace

/// Distinct values go before a variance does: 256 channels of one number have none.
std::vector<Watched> find_few_values(Survey& survey, const IsWatched& watched) {
  std::vector<Watched> found;
  std::int64_t elements = 0;
  for (const auto& [id, codes] : looked_at(survey)) {
    const Tensor& tensor = *survey.run().tensor(id);
    const bool judged = tensor.known && !tensor.stated && tensor.health.bad() == 0 && tensor.role != "probs" &&
                        tensor.channels >= static_cast<std::int64_t>(kLeastChannels);
    if (!judged || !watched(tensor) || elements >= kMostElements) continue;
    const auto values = survey.run().values(tensor);
    if (!values) continue;
    elements += tensor.count();
    const Poorest poorest = poorest_row(survey, tensor, *values, codes);
    if (poorest.rows == 0) continue;
    Watched out;
    out.tensor = id;
    out.severity = static_cast<double>(poorest.nonzero) / static_cast<double>(poorest.distinct);
    out.evidence = {{"row", poorest.row},
                    {"distinct_values", static_cast<std::int64_t>(poorest.distinct)},
                    {"nonzero", static_cast<std::int64_t>(poorest.nonzero)},
                    {"rows", poorest.rows},
                    {"of_rows", tensor.tokens}};
    out.summary = fmt::format(
        "row {} of {} has {} distinct values in {} channels that are not zero, and {} of {} rows are like it (limit: "
        "{})",
        poorest.row, survey.facts.name_of(tensor), poorest.distinct, poorest.nonzero, poorest.rows, tensor.tokens,
        codes ? fmt::format("{} codes", kFewCodes) : fmt::format("one value in {} channels", kRepeats));
    out.advice = "look for a cast before this tensor that clips or whose scale is far too large";
    found.push_back(std::move(out));
  }
  return found;
}

}  // namespace nanscope::early
