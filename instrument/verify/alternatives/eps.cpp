/// Another eps in a norm: the default of a framework instead of the model's, or the one that the numbers show.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/verify/alternative.h"

namespace nanscope {
namespace {

/// Of a row: how much smaller than without any eps its norm is tells the eps over its variance. The median over some
/// rows; nothing where a norm is not by row, or its weight and bias are not known.
std::optional<double> eps_shown(const TriedOp& subject) {
  constexpr std::int64_t kRows = 9;
  RunView& run = subject.run();
  OpForm bare = subject.form;
  bare.number = 0;
  std::vector<double> found;
  for (std::int64_t i = 0; i < std::min(kRows, subject.out.tokens); ++i) {
    const std::int64_t row = i * subject.out.tokens / std::min(kRows, subject.out.tokens);
    const auto without = subject.values.recomputer().predict(subject.op, subject.out, bare, row, 1);
    const auto with = subject.values.recomputer().predict(subject.op, subject.out, subject.form, row, 1);
    const auto actual = run.row_values(subject.out, row);
    if (!without || !with || !actual || actual->size() != without->value.size()) continue;
    // The output is offset + slope * root: of the form's own eps and of none, two points of the line are known.
    double along = 0;
    double size = 0;
    double own = 0;
    for (std::size_t c = 0; c < actual->size(); ++c) {
      const double none = double{without->value[c]};
      along += double{(*actual)[c]} * none;
      own += double{with->value[c]} * none;
      size += none * none;
    }
    const double shrunk = along / size;
    const double by_own = own / size;
    if (!(shrunk > 0) || !(by_own > 0) || by_own >= 1) continue;
    const double variance = subject.form.number / (1 / (by_own * by_own) - 1);
    found.push_back(variance * (1 / (shrunk * shrunk) - 1));
  }
  if (found.size() < 3) return std::nullopt;
  std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2), found.end());
  const double eps = found[found.size() / 2];
  return eps > 0 && std::isfinite(eps) ? std::optional(eps) : std::nullopt;
}

/// In two digits, as configurations have it.
double rounded(double eps) {
  const double unit = std::pow(10.0, std::floor(std::log10(eps)) - 1);
  return std::round(eps / unit) * unit;
}

}  // namespace

std::vector<OpForm> propose_eps(const TriedOp& subject);

std::vector<OpForm> propose_eps(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::layer_norm || subject.form.variant == kNotNormed) return {};
  const auto add = [&](double eps) {
    if (std::abs(eps - subject.form.number) > 1e-4 * subject.form.number)
      made.add(fmt::format("an eps of {:.3g} instead of {:.3g}", eps, subject.form.number),
               [&](OpForm& form) { form.number = eps; });
  };
  for (const double eps : {1e-5, 1e-6, 1e-8, 1e-12, 0.0, 1e-7, 1e-4, 1e-3, 1e-2}) add(eps);
  if (const auto shown = eps_shown(subject)) {
    add(rounded(*shown));
    add(*shown);
  }
  return made.take();
}

}  // namespace nanscope
