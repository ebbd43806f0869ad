#include "scenarios/report/run_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "instrument/diagnosis/diagnosis.h"
#include "scenarios/report/diagnosis_report.h"

namespace nanscope::report {

namespace {

using Json = nlohmann::ordered_json;

Json requests_json(const std::vector<scenarios::RequestOutcome>& requests) {
  Json list = Json::array();
  for (const scenarios::RequestOutcome& request : requests) {
    list.push_back({{"request", request.row.id},
                    {"name", request.row.name},
                    {"prompt_tokens", request.prompt_tokens},
                    {"image_tokens", request.image_tokens},
                    {"cached_tokens", request.row.cached_tokens},
                    {"output_tokens", request.row.output_tokens},
                    {"output", request.row.output_text},
                    {"nan_logits", request.nan_logits}});
  }
  return list;
}

}  // namespace

nlohmann::ordered_json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::string dump_json(const Json& json) {
  return visible_json(json.dump(2, ' ', false, Json::error_handler_t::replace)) + '\n';
}

Json run_json(const scenarios::Analysis& analysis, const RunContext& context) {
  Json json;
  json["schema"] = "nanscope.run-report/1";
  json["scenario"] = analysis.info.scenario;
  json["recording"] = context.recording;
  json["verdict"] = name(analysis.diagnosis.verdict());
  if (context.judged) {
    json["as_expected"] = context.missed.empty();
    json["missed"] = Json::array();
    for (const scenarios::Missed& missed : context.missed) {
      json["missed"].push_back({{"what", missed.what}, {"expected", missed.expected}, {"found", missed.found}});
    }
  }
  json["hash"] = analysis.digest ? Json(fmt::format("{:016x}", *analysis.digest)) : Json(nullptr);
  json["requests"] = requests_json(analysis.requests);
  json["diagnosis"] = to_json(analysis.diagnosis);
  return json;
}

std::string run_markdown(const scenarios::Analysis& analysis, const RunContext& context) {
  std::string text = fmt::format(
      "### nanscope: {}\n\n", markdown_cell(analysis.info.scenario.empty() ? analysis.target : analysis.info.scenario));
  if (context.judged && !context.missed.empty()) {
    text += "| expectation | expected | found |\n|---|---|---|\n";
    for (const scenarios::Missed& missed : context.missed) {
      text += fmt::format("| {} | {} | {} |\n", markdown_cell(missed.what), markdown_cell(missed.expected),
                          markdown_cell(missed.found));
    }
    text += '\n';
  }
  if (!analysis.dumped()) {
    text += "| request | tokens | logits | output |\n|---|--:|---|---|\n";
    for (const scenarios::RequestOutcome& request : analysis.requests) {
      text +=
          fmt::format("| {} {} | {} | {} | {} |\n", request.row.id, markdown_cell(request.row.name),
                      request.prompt_tokens, request.nan_logits ? "NaN" : "ok", markdown_cell(request.row.output_text));
    }
    text += '\n';
  }
  if (analysis.front) text += fmt::format("```\n{}```\n\n", markdown_code(front_text(*analysis.front, {})));
  return text + diagnosis_markdown(analysis.diagnosis);
}

}  // namespace nanscope::report
