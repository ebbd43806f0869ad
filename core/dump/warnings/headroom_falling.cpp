#include <fmt/format.h>

#include <cmath>

#include "core/dump/warnings/casts.h"

namespace nanscope::dump_warnings {
namespace {

constexpr std::size_t kLeastSteps = 3;
constexpr double kNear = 8;         ///< beyond this headroom a trend says nothing yet
constexpr double kLeastFall = 2;    ///< from the first to the last of the steps that fall
constexpr double kEachStep = 1.05;  ///< a step that falls

/// The last steps of a row of headrooms that fall one after the other.
std::size_t falling_steps(const std::vector<double>& headrooms) {
  std::size_t first = headrooms.size() - 1;
  while (first > 0 && headrooms[first - 1] >= kEachStep * headrooms[first]) --first;
  return headrooms.size() - first;
}

/// A trend that ends at 1 within as many steps as were seen, were it to go on.
std::optional<Watched> trend_of(const DumpFacts& facts, TensorIndex tensor, const std::vector<double>& headrooms,
                                double largest) {
  if (headrooms.size() < kLeastSteps) return std::nullopt;
  const std::size_t steps = falling_steps(headrooms);
  const double first = headrooms[headrooms.size() - steps];
  const double last = headrooms.back();
  if (steps < kLeastSteps || last > kNear || !(last > 1) || first < kLeastFall * last) return std::nullopt;
  const double factor = std::pow(last / first, 1.0 / static_cast<double>(steps - 1));
  const double left = std::log(last) / -std::log(factor);
  if (left > static_cast<double>(steps)) return std::nullopt;
  Watched out{.tensor = tensor, .severity = 1 / last, .evidence = {}, .summary = {}, .advice = {}};
  out.evidence = {{"headroom_first", first}, {"headroom", last},          {"steps", static_cast<std::int64_t>(steps)},
                  {"factor_a_step", factor}, {"steps_to_clipping", left}, {"largest", largest}};
  out.summary = fmt::format(
      "the headroom of {} fell from {:.3g} to {:.3g} in {} steps, {:.3g} times a step: were it to go on, {:.6g} is "
      "passed in {:.1f} more",
      facts.tensor(tensor).name, first, last, steps, factor, largest, left);
  out.advice = "watch this tensor; compute its scale anew or widen its format before it clips";
  return out;
}

}  // namespace

/// Scales that stay while the values grow, and tensors of f16.
std::vector<Watched> find_headroom_falling(DumpFacts& facts, const IsWatched& watched) {
  std::vector<Watched> found;
  const std::vector<Cast> casts = casts_of(facts, watched);
  for (const Cast& cast : casts) {
    std::vector<double> headrooms;
    for (const Cast& before : casts_before(facts, casts, cast)) {
      if (std::abs(before.scale_value - cast.scale_value) <= 1e-6 * cast.scale_value)
        headrooms.push_back(before.headroom);
    }
    const double largest = double{info(*facts.tensor(cast.codes).format).max_finite} * cast.scale_value;
    if (auto trend = trend_of(facts, cast.codes, headrooms, largest)) found.push_back(std::move(*trend));
  }
  const double largest = double{info(Format::f16).max_finite};
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const DumpTensor& tensor = facts.tensor(i);
    if (tensor.format != Format::f16 || !is_activation(tensor) || !watched(i) || tensor.bad()) continue;
    std::vector<double> headrooms;
    for (const TensorIndex before : facts.history(i)) {
      const Health& health = facts.tensor(before).health;
      const bool same = facts.tensor(before).at.rank == tensor.at.rank && facts.tensor(before).at.run == tensor.at.run;
      if (before <= i && same && health.absmax > 0) headrooms.push_back(largest / double{health.absmax});
    }
    if (auto trend = headrooms.empty() ? std::nullopt : trend_of(facts, i, headrooms, largest)) {
      found.push_back(std::move(*trend));
    }
  }
  return found;
}

}  // namespace nanscope::dump_warnings
