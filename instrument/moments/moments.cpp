#include "instrument/moments/moments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/numbers/rounding.h"
#include "kernels/device.h"
#include "kernels/ops/layer_norm.h"

namespace nanscope {
namespace {

using kernels::SumOrder;
using kernels::TensorView;
using kernels::VarianceForm;

constexpr std::size_t kMostValues = std::size_t{1} << 20;
constexpr std::array<std::string_view, 4> kForms = {"one-pass", "one-pass-fused", "two-pass", "welford"};
constexpr std::array<std::string_view, 3> kOrders = {"sequential", "warp", "pairwise"};

template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status check_name(std::string_view what, const std::string& typed, std::span<const std::string_view> known) {
  if (typed.empty() || std::ranges::find(known, typed) != known.end()) return {};
  return fail(fmt::format("unknown {} '{}'; known: {}", what, typed, fmt::join(known, ", ")));
}

MomentsForm form_of(std::string_view form, SumOrder order) {
  const VarianceForm variance = form == "two-pass"  ? VarianceForm::two_pass
                                : form == "welford" ? VarianceForm::welford
                                                    : VarianceForm::one_pass;
  return {.variance = variance, .order = order, .contract = form == "one-pass-fused"};
}

ExactMoments exact_moments(std::span<const float> values, double eps) {
  const double n = static_cast<double>(values.size());
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  ExactMoments exact;
  exact.mean = sum / n;
  for (const float value : values) exact.variance += std::pow(static_cast<double>(value) - exact.mean, 2) / n;
  exact.inverse = 1 / std::sqrt(exact.variance + eps);
  return exact;
}

TensorView row_of(std::vector<float>& values) {
  const auto count = std::ssize(values);
  return {.data = values.data(), .format = Format::f32, .rows = 1, .columns = count, .stride = count};
}

}  // namespace

std::span<const std::string_view> moments_forms() { return kForms; }
std::span<const std::string_view> sum_orders() { return kOrders; }

std::string_view form_name(const MomentsForm& form) {
  if (form.variance == VarianceForm::one_pass) return form.contract ? kForms[1] : kForms[0];
  return form.variance == VarianceForm::two_pass ? kForms[2] : kForms[3];
}

std::string_view order_name(SumOrder order) { return kOrders[static_cast<std::size_t>(order)]; }

Result<std::vector<double>> parse_moments_values(std::span<const std::string> words) {
  std::vector<double> values;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    if (!word.starts_with('x')) {
      const std::optional<double> value = whole_number<double>(word);
      if (!value) return fail(fmt::format("'{}' is no number; expected values, each with ' x COUNT' or without", word));
      values.push_back(*value);
    } else {
      word.remove_prefix(1);
      if (word.empty() && i + 1 < words.size()) word = words[++i];
      const std::optional<std::size_t> count = whole_number<std::size_t>(word);
      if (!count || *count == 0 || values.empty())
        return fail(fmt::format("'{}' is no count; expected VALUE x COUNT, as in 11.2 x 8", word));
      if (*count > kMostValues) return fail(fmt::format("{} values are more than {}", *count, kMostValues));
      values.insert(values.end(), *count - 1, values.back());
    }
    if (values.size() > kMostValues) return fail(fmt::format("there are more than {} values", kMostValues));
  }
  if (values.empty()) return fail("no value given; expected values, as in 11.2 x 8");
  return values;
}

Result<MomentsReport> compute_moments(std::span<const double> values, const MomentsOptions& options) {
  if (!(options.eps >= 0) || !std::isfinite(options.eps))
    return fail(fmt::format("eps {} is not a number from 0 on", options.eps));
  if (Status status = check_name("form", options.form, kForms); !status) return tl::unexpected(status.error());
  if (Status status = check_name("order", options.order, kOrders); !status) return tl::unexpected(status.error());
  MomentsReport report;
  report.format = options.format;
  report.eps = options.eps;
  for (const double value : values) {
    const Rounding stored = round_value(options.format, value, Overflow::overflow);
    report.values.push_back(f32_of(stored.stored));
  }
  report.exact = exact_moments(report.values, static_cast<double>(options.eps));
  auto device = kernels::make_cpu_device(kernels::Isa::best, 1);
  if (!device) return tl::unexpected(device.error());
  std::vector<float> out(values.size());
  for (const std::string_view form : kForms) {
    for (std::size_t order = 0; order < kOrders.size(); ++order) {
      if ((!options.form.empty() && form != options.form) ||
          (!options.order.empty() && kOrders[order] != options.order))
        continue;
      std::vector<float> stats(3);
      Moments moments;
      moments.form = form_of(form, static_cast<SumOrder>(order));
      kernels::LayerNormArgs args;
      args.x = row_of(report.values);
      args.out = row_of(out);
      args.stats = row_of(stats);
      args.variance = moments.form.variance;
      args.order = moments.form.order;
      args.contract = moments.form.contract;
      args.eps = options.eps;
      if (Status status = (*device)->launch(args); !status) return tl::unexpected(status.error());
      moments.mean = stats[0];
      moments.variance = stats[1];
      moments.inverse = stats[2];
      report.forms.push_back(moments);
    }
  }
  return report;
}

}  // namespace nanscope
