#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/numbers/anatomy.h"
#include "instrument/moments/moments.h"

namespace nanscope {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::array<std::string, 6>;

std::string_view name_of(const MomentsForm& form) {
  switch (form.variance) {
    case kernels::VarianceForm::one_pass:
      return form.contract ? "one-pass-fused" : "one-pass";
    case kernels::VarianceForm::two_pass:
      return "two-pass";
    case kernels::VarianceForm::welford:
      break;
  }
  return "welford";
}

std::string_view name_of(kernels::SumOrder order) { return sum_orders()[static_cast<std::size_t>(order)]; }

std::string text_of(float value) { return std::isnan(value) ? "NaN" : fmt::format("{}", value); }

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json number(float value) { return number(static_cast<double>(value)); }

}  // namespace

std::string moments_text(const MomentsReport& report) {
  std::vector<Cells> rows = {{"form", "order", "mean", "variance", "variance + eps", "1 / sqrt"}};
  bool negative = false;
  for (const Moments& one : report.forms) {
    negative = negative || std::isnan(one.inverse);
    rows.push_back({std::string(name_of(one.form)), std::string(name_of(one.form.order)), text_of(one.mean),
                    text_of(one.variance), text_of(one.variance + report.eps), text_of(one.inverse)});
  }
  const ExactMoments& exact = report.exact;
  rows.push_back({"exact", "", short_decimal(exact.mean), short_decimal(exact.variance),
                  short_decimal(exact.variance + static_cast<double>(report.eps)), short_decimal(exact.inverse)});
  std::string text = fmt::format("Moments of {} value{} in {}, summed in f32, eps {}\n\n", report.values.size(),
                                 report.values.size() == 1 ? "" : "s", name(report.format), report.eps);
  for (const Cells& row : rows) {
    std::string line = " ";
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const Cells& other : rows) width = std::max(width, other[column].size());
      line += column + 1 < row.size() ? fmt::format(" {:<{}} ", row[column], width) : " " + row[column];
    }
    text += line + "\n";
  }
  if (negative) text += "\nNaN: variance + eps is negative or not a number\n";
  return text;
}

std::string moments_json(const MomentsReport& report) {
  Json json = {{"schema", "nanscope.moments/1"},
               {"format", name(report.format)},
               {"eps", number(report.eps)},
               {"values", report.values.size()},
               {"exact",
                {{"mean", number(report.exact.mean)},
                 {"variance", number(report.exact.variance)},
                 {"inverse", number(report.exact.inverse)}}},
               {"forms", Json::array()}};
  for (const Moments& one : report.forms) {
    json["forms"].push_back({{"form", name_of(one.form)},
                             {"order", name_of(one.form.order)},
                             {"mean", number(one.mean)},
                             {"variance", number(one.variance)},
                             {"variance_plus_eps", number(one.variance + report.eps)},
                             {"inverse", number(one.inverse)}});
  }
  return json.dump(1) + "\n";
}

}  // namespace nanscope
