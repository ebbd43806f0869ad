#include "scenarios/report/moments_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

std::string value_text(float value) { return std::isnan(value) ? "NaN" : fmt::format("{}", value); }

/// Nine digits tell two f32 apart.
std::string exact_text(double value) { return fmt::format("{:.9g}", value); }

Json of_float(float value) { return json_number(static_cast<double>(value)); }

}  // namespace

std::string moments_text(const MomentsReport& made, const Terminal& terminal) {
  Table table({Align::left, Align::left, Align::left, Align::left, Align::left, Align::left});
  table.row({"form", "order", "mean", "variance", "variance + eps", "1 / sqrt"});
  bool no_root = false;
  for (const Moments& one : made.forms) {
    no_root = no_root || std::isnan(one.inverse);
    table.row({std::string(form_name(one.form)), std::string(order_name(one.form.order)), value_text(one.mean),
               value_text(one.variance), value_text(one.variance + made.eps), value_text(one.inverse)});
  }
  const ExactMoments& exact = made.exact;
  table.row({"exact", "", exact_text(exact.mean), exact_text(exact.variance),
             exact_text(exact.variance + static_cast<double>(made.eps)), exact_text(exact.inverse)});
  std::string text = fmt::format("Moments of {} in {}, summed in f32, eps {}\n\n", counted(made.values.size(), "value"),
                                 name(made.format), made.eps);
  text += table.text("  ", terminal.width);
  if (no_root) text += "\nNaN: variance + eps is negative or not a number\n";
  return text;
}

std::string moments_json(const MomentsReport& made) {
  Json json = {{"schema", "nanscope.moments/1"},
               {"format", name(made.format)},
               {"eps", of_float(made.eps)},
               {"values", made.values.size()},
               {"exact",
                {{"mean", json_number(made.exact.mean)},
                 {"variance", json_number(made.exact.variance)},
                 {"inverse", json_number(made.exact.inverse)}}},
               {"forms", Json::array()}};
  for (const Moments& one : made.forms) {
    json["forms"].push_back({{"form", form_name(one.form)},
                             {"order", order_name(one.form.order)},
                             {"mean", of_float(one.mean)},
                             {"variance", of_float(one.variance)},
                             {"variance_plus_eps", of_float(one.variance + made.eps)},
                             {"inverse", of_float(one.inverse)}});
  }
  return dump_json(json) + "\n";
}

}  // namespace nanscope::report
