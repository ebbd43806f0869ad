#include "instrument/verify/linear_change.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/verify/adapter_factor.h"

namespace nanscope {
namespace {

constexpr std::int64_t kMostRows = 96;
constexpr std::int64_t kMostColumns = 2048;
/// Of the sum of the bounds' squares: a weight that was changed before it was rounded is rounded otherwise, so that
/// what is left holds two roundings, each within the bound, and twice a bound is four times its square.
constexpr double kSlack = 4;

/// Eigenvalues of a symmetric matrix, falling.
std::vector<double> eigenvalues(std::vector<double> a, std::int64_t n) {
  constexpr int kSweeps = 30;
  const auto at = [&](std::int64_t i, std::int64_t j) -> double& { return a[static_cast<std::size_t>(i * n + j)]; };
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double beside = 0;
    double on = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      on += at(i, i) * at(i, i);
      for (std::int64_t j = i + 1; j < n; ++j) beside += at(i, j) * at(i, j);
    }
    if (beside <= 1e-30 * on) break;
    for (std::int64_t p = 0; p < n; ++p) {
      for (std::int64_t q = p + 1; q < n; ++q) {
        if (at(p, q) == 0) continue;
        const double theta = (at(q, q) - at(p, p)) / (2 * at(p, q));
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1);
        const double s = t * c;
        for (std::int64_t k = 0; k < n; ++k) {
          const double x = at(k, p);
          const double y = at(k, q);
          at(k, p) = c * x - s * y;
          at(k, q) = s * x + c * y;
        }
        for (std::int64_t k = 0; k < n; ++k) {
          const double x = at(p, k);
          const double y = at(q, k);
          at(p, k) = c * x - s * y;
          at(q, k) = s * x + c * y;
        }
      }
    }
  }
  std::vector<double> found;
  for (std::int64_t i = 0; i < n; ++i) found.push_back(std::max(0.0, at(i, i)));
  std::sort(found.rbegin(), found.rend());
  return found;
}

/// Dumped and expected rows, with bounds.
struct Sample {
  std::vector<std::int64_t> numbers;  ///< of the rows
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> actual, expected, bound;
};

std::optional<Sample> sample_of(Recomputer& recomputer, const Recomputed& result) {
  RunView& run = recomputer.facts().run;
  const Op& op = *run.op(result.op);
  const Tensor& out = *run.tensor(result.tensor);
  Sample made;
  made.columns = std::min(out.channels, kMostColumns);
  const std::int64_t wanted = std::min(out.tokens, kMostRows);
  for (std::int64_t i = 0; i < wanted; ++i) {
    const std::int64_t row = i * out.tokens / wanted;
    const auto prediction = recomputer.predict(op, out, result.form, row, 1);
    const auto actual = run.row_values(out, row);
    if (!prediction || !actual || prediction->columns != out.channels) return std::nullopt;
    for (std::int64_t c = 0; c < made.columns; ++c) {
      const auto at = static_cast<std::size_t>(c);
      if (prediction->bound[at] < 0 || !std::isfinite((*actual)[at]) || !std::isfinite(prediction->value[at]))
        return std::nullopt;
      made.actual.push_back(double{(*actual)[at]});
      made.expected.push_back(double{prediction->value[at]});
      made.bound.push_back(double{prediction->bound[at]});
    }
    made.numbers.push_back(row);
    ++made.rows;
  }
  return made;
}

std::optional<ExplainedBy> factor(const Sample& sample, const Op& op) {
  double above = 0;
  double below = 0;
  for (std::size_t i = 0; i < sample.actual.size(); ++i) {
    above += sample.actual[i] * sample.expected[i];
    below += sample.expected[i] * sample.expected[i];
  }
  if (below <= 0) return std::nullopt;
  const double by = above / below;
  std::size_t explained = 0;
  double squares = 0;
  Recomputed healthy;
  Recomputed scaled;
  for (std::size_t i = 0; i < sample.actual.size(); ++i) {
    const double bound = sample.bound[i] * (1 + std::abs(by));
    const double off = std::abs(sample.actual[i] - by * sample.expected[i]);
    healthy.distance += std::abs(sample.actual[i] - sample.expected[i]);
    scaled.distance += off;
    scaled.bounds += bound;
    explained += off <= bound ? 1 : 0;
    squares += bound > 0 ? std::pow(std::min(off / bound, kFarthest), 2) : 0;
  }
  const double count = static_cast<double>(sample.actual.size());
  const double share = static_cast<double>(explained) / count;
  if (share < kComesOut) return std::nullopt;
  healthy.elements = scaled.elements = std::ssize(sample.actual);
  scaled.explained = static_cast<std::int64_t>(explained);
  measure_chances(healthy, {&scaled, 1}, 1);
  if (scaled.log10_chance > kShownByChance) return std::nullopt;
  return ExplainedBy{
      "scaled",           fmt::format("what it should be times {:.6g}", by), op.name, share, std::sqrt(squares / count),
      scaled.log10_chance};
}

/// Sums of the input over each group of its columns, a row a row of the sample. Nothing: the weight has no zero points
/// of neighbours, or its input is not known as the product read it.
std::optional<Eigen::MatrixXd> sums_of_groups(Recomputer& recomputer, const Sample& sample, const Op& op,
                                              const Tensor& out) {
  RunView& run = recomputer.facts().run;
  const auto* product = op.get<GemmAttributes>();
  const Tensor* x = run.input(op, "x");
  if (product == nullptr || !product->weight_group || product->input_format || x == nullptr || !x->known ||
      x->tokens != out.tokens)
    return std::nullopt;
  const std::int64_t group = *product->weight_group;
  Eigen::MatrixXd sums = Eigen::MatrixXd::Zero(sample.rows, (x->channels + group - 1) / group);
  for (std::int64_t row = 0; row < sample.rows; ++row) {
    const auto values = run.row_values(*x, sample.numbers[static_cast<std::size_t>(row)]);
    if (!values) return std::nullopt;
    for (std::int64_t k = 0; k < x->channels; ++k)
      sums(row, k / group) += double{(*values)[static_cast<std::size_t>(k)]};
  }
  return sums;
}

/// A zero point that is off by z changes an output by -z x scale x the sum of its input over the group: what is off
/// must be a combination of these sums, the same for all rows.
std::optional<ExplainedBy> other_zero_points(const Sample& sample, const Eigen::MatrixXd& sums, const Op& op) {
  if (sample.rows < 2 * sums.cols()) return std::nullopt;
  Eigen::MatrixXd off(sample.rows, sample.columns);
  for (std::int64_t i = 0; i < sample.rows; ++i) {
    for (std::int64_t c = 0; c < sample.columns; ++c) {
      const auto at = static_cast<std::size_t>(i * sample.columns + c);
      off(i, c) = sample.actual[at] - sample.expected[at];
    }
  }
  const Eigen::MatrixXd left = off - sums * sums.colPivHouseholderQr().solve(off);
  double noise = 0;
  for (const double bound : sample.bound) noise += bound * bound;
  if (left.squaredNorm() > kSlack * noise) return std::nullopt;
  return ExplainedBy{"zero-points",
                     fmt::format("other zero points: each output is off by numbers times the sums of its input over {} "
                                 "of columns, the same in all rows",
                                 counted(static_cast<std::size_t>(sums.cols()), "group")),
                     op.name, 1, noise > 0 ? std::sqrt(left.squaredNorm() / noise) : 0};
}

std::optional<ExplainedBy> low_rank(const Sample& sample, const Op& op) {
  std::vector<double> off(sample.actual.size());
  double noise = 0;
  for (std::size_t i = 0; i < off.size(); ++i) {
    off[i] = sample.actual[i] - sample.expected[i];
    noise += sample.bound[i] * sample.bound[i];
  }
  const std::int64_t rank = rank_beyond(off, sample.rows, kSlack * noise);
  const std::int64_t most = std::min(sample.rows, sample.columns) / 2;
  if (rank < 1 || rank > most) return std::nullopt;
  return ExplainedBy{"low-rank",
                     fmt::format("a change of its weight of rank {}, as an adapter (LoRA) that the checkpoint does not "
                                 "have, or has in another version",
                                 rank),
                     op.name, 1, 0};
}

}  // namespace

std::int64_t rank_beyond(const std::vector<double>& matrix, std::int64_t rows, double noise) {
  if (rows <= 0 || matrix.empty()) return 0;
  const std::int64_t columns = static_cast<std::int64_t>(matrix.size()) / rows;
  std::vector<double> gram(static_cast<std::size_t>(rows * rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < columns; ++c)
        sum += matrix[static_cast<std::size_t>(i * columns + c)] * matrix[static_cast<std::size_t>(j * columns + c)];
      gram[static_cast<std::size_t>(i * rows + j)] = gram[static_cast<std::size_t>(j * rows + i)] = sum;
    }
  }
  const std::vector<double> values = eigenvalues(std::move(gram), rows);
  double left = 0;
  for (const double value : values) left += value;
  std::int64_t rank = 0;
  while (rank < rows && left > noise) left -= values[static_cast<std::size_t>(rank++)];
  return rank;
}

std::optional<ExplainedBy> linear_change(Recomputer& recomputer, const Recomputed& result) {
  const Op& op = *recomputer.facts().run.op(result.op);
  if (auto found = adapter_factor(recomputer, result)) return found;
  const auto sample = sample_of(recomputer, result);
  if (!sample || sample->actual.empty()) return std::nullopt;
  if (auto found = factor(*sample, op)) return found;
  // A tile that is wrong is of low rank, too; an adapter changes all outputs.
  const bool everywhere = 5 * (result.elements - result.explained) >= result.elements;
  if (op.kind != OpKind::gemm || !everywhere) return std::nullopt;
  const auto sums = sums_of_groups(recomputer, *sample, op, *recomputer.facts().run.tensor(result.tensor));
  // A change of zero points is of low rank, too: with too few rows the two cannot be told apart.
  if (!sums) return low_rank(*sample, op);
  if (auto found = other_zero_points(*sample, *sums, op)) return found;
  return sample->rows < 2 * sums->cols() ? std::nullopt : low_rank(*sample, op);
}

}  // namespace nanscope
