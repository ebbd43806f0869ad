#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "instrument/diagnosis/warnings/watched_casts.h"

namespace nanscope::early {
namespace {

constexpr std::size_t kLeastSteps = 3;
constexpr double kFarHeadroom = 8;  ///< beyond this headroom a trend says nothing yet
constexpr double kLeastFall = 2;    ///< from the first to the last of the steps that fall
constexpr double kEachStep = 1.05;  ///< a step that falls

/// The last steps of a row of headrooms that fall one after the other.
std::size_t falling_steps(const std::vector<double>& headrooms) {
  std::size_t first = headrooms.size() - 1;
  while (first > 0 && headrooms[first - 1] >= kEachStep * headrooms[first]) --first;
  return headrooms.size() - first;
}

/// A trend that ends at 1 within as many steps as were seen, were it to go on.
std::optional<Watched> trend_of(Survey& survey, const Tensor& tensor, const std::vector<double>& headrooms,
                                double largest) {
  if (headrooms.size() < kLeastSteps) return std::nullopt;
  const std::size_t steps = falling_steps(headrooms);
  const double first = headrooms[headrooms.size() - steps];
  const double last = headrooms.back();
  if (steps < kLeastSteps || last > kFarHeadroom || !(last > 1) || first < kLeastFall * last) return std::nullopt;
  const double factor = std::pow(last / first, 1.0 / static_cast<double>(steps - 1));
  const double left = std::log(last) / -std::log(factor);
  if (left > static_cast<double>(steps)) return std::nullopt;
  Watched out;
  out.tensor = tensor.id;
  out.severity = 1 / last;
  out.evidence = {{"headroom_first", first}, {"headroom", last},          {"steps", static_cast<std::int64_t>(steps)},
                  {"factor_a_step", factor}, {"steps_to_clipping", left}, {"largest", largest}};
  out.summary = fmt::format(
      "the headroom of {} fell from {:.3g} to {:.3g} in {} steps, {:.3g} times a step: were it to go on, {:.6g} is "
      "passed in {:.1f} more (limits: {} steps, {:.3g} times in all, {:.3g} times each)",
      survey.facts.name_of(tensor), first, last, steps, factor, largest, left, kLeastSteps, kLeastFall, kEachStep);
  out.advice = "watch this tensor; compute its scale anew or widen its format before it clips";
  return out;
}

/// What f16 leaves above a tensor, step by step: of the same place, rank and request.
void follow_halves(Survey& survey, const IsWatched& watched, std::vector<Watched>& found) {
  using Place = std::tuple<std::string, std::int64_t, std::int64_t, std::string, std::string, std::int64_t>;
  const double largest = double{info(Format::f16).max_finite};
  std::map<Place, std::vector<double>> seen;
  for (const Step& step : survey.run().steps()) {
    for (const Tensor& tensor : survey.run().content(step.id).tensors) {
      const Op* op = survey.run().maker(tensor);
      const bool activation = tensor.axis == Axis::rows || tensor.axis == Axis::live || tensor.axis == Axis::ends;
      if (tensor.format != Format::f16 || !tensor.known || !activation || op == nullptr || !watched(tensor)) continue;
      if (tensor.health.bad() > 0 || !(tensor.health.absmax > 0)) continue;
      std::vector<double>& headrooms =
          seen[{step.run, step.rank, op->layer.value_or(-1), op->name, tensor.role, step.request()}];
      headrooms.push_back(largest / double{tensor.health.absmax});
      if (auto trend = trend_of(survey, tensor, headrooms, largest)) found.push_back(std::move(*trend));
    }
  }
}

}  // namespace

/// Scales that stay while the values grow, and tensors of f16.
std::vector<Watched> find_headroom_falling(Survey& survey, const IsWatched& watched) {
  std::vector<Watched> found;
  const std::vector<const Cast*> casts = watched_casts(survey, watched);
  for (const Cast* cast : casts) {
    std::vector<double> headrooms;
    for (const Cast* one : under_same_scale(survey, casts, *cast)) {
      if (survey.run().step(one->step)->request() == survey.run().step(cast->step)->request())
        headrooms.push_back(one->headroom());
    }
    const double largest = double{info(cast->format).max_finite} * cast->grid->first();
    if (auto trend = trend_of(survey, *survey.run().tensor(cast->codes), headrooms, largest))
      found.push_back(std::move(*trend));
  }
  follow_halves(survey, watched, found);
  return found;
}

}  // namespace nanscope::early
