#include "instrument/engine/compare_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "instrument/engine/calibrate.h"
#include "instrument/engine/run_checkpoint.h"

namespace nanscope {
namespace {

/// Keeps the rows of the logits.
class LogitsProbe final : public Probe {
 public:
  LogitsProbe(kernels::Device& device, std::vector<float>& logits) : device_(device), logits_(logits) {}

  Status on_op(const ProbeOp& op) override {
    for (const ProbeTensor& one : op.outputs) {
      if (one.role != "logits") continue;
      const auto values = floats_of(device_, one.view);
      if (!values) return tl::unexpected(values.error());
      logits_.insert(logits_.end(), values->begin(), values->end());
    }
    return {};
  }

 private:
  kernels::Device& device_;
  std::vector<float>& logits_;
};

/// log of the sum of the exponentials, and the mean.
struct RowSums {
  double log_sum = 0;
  double mean = 0;

  explicit RowSums(std::span<const float> row) {
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float value : row) {
      sum += std::exp(value - largest);
      mean += value;
    }
    log_sum = largest + std::log(sum);
    mean /= static_cast<double>(row.size());
  }
};

bool all_finite(std::span<const float> row) {
  return std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

Result<std::vector<float>> logits_of_checkpoint(const std::filesystem::path& folder,
                                                const std::vector<std::int32_t>& ids, std::stop_token stop) {
  std::vector<float> logits;
  const Status ran = run_checkpoint(folder, ids, std::move(stop), [&](kernels::Device& device, const LoadedModel&) {
    return std::make_unique<LogitsProbe>(device, logits);
  });
  if (!ran) return tl::unexpected(ran.error());
  return logits;
}

LogitsChange compare_logits(const std::vector<float>& first, const std::vector<float>& second, std::size_t columns) {
  LogitsChange change;
  double off = 0;
  double size = 0;
  for (std::size_t at = 0; at + columns <= std::min(first.size(), second.size()); at += columns) {
    const std::span<const float> a = std::span(first).subspan(at, columns);
    const std::span<const float> b = std::span(second).subspan(at, columns);
    ++change.positions;
    if (!all_finite(a) || !all_finite(b)) {
      ++change.not_finite;
      continue;
    }
    const RowSums sums_a(a);
    const RowSums sums_b(b);
    double divergence = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      const double difference = double{b[i]} - a[i];
      off += difference * difference;
      size += (a[i] - sums_a.mean) * (a[i] - sums_a.mean);
      const double log_a = a[i] - sums_a.log_sum;
      divergence += std::exp(log_a) * (log_a - (b[i] - sums_b.log_sum));
    }
    change.divergence += divergence;
    if (divergence > change.worst_divergence) {
      change.worst_divergence = divergence;
      change.worst_position = change.positions - 1;
    }
    const auto choice = [](std::span<const float> row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    change.same_choice += choice(a) == choice(b) ? 1 : 0;
  }
  const auto compared = static_cast<double>(change.positions - change.not_finite);
  if (compared > 0) change.divergence /= compared;
  if (size > 0) change.error = std::sqrt(off / size);
  return change;
}

Result<LogitsChange> compare_models(const std::filesystem::path& first, const std::filesystem::path& second,
                                    const std::string& text, std::size_t most, std::stop_token stop) {
  const auto ids = tokens_of_text(first, text, most);
  if (!ids) return tl::unexpected(ids.error());
  const auto a = logits_of_checkpoint(first, *ids, stop);
  if (!a) return tl::unexpected(a.error());
  const auto b = logits_of_checkpoint(second, *ids, std::move(stop));
  if (!b) return tl::unexpected(b.error());
  if (a->size() != b->size() || a->size() % ids->size() != 0 || a->empty()) {
    return fail(
        fmt::format("{} logits of {} tokens, and {}: they cannot be compared", a->size(), ids->size(), b->size()));
  }
  return compare_logits(*a, *b, a->size() / ids->size());
}

}  // namespace nanscope
