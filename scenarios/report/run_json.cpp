#include "scenarios/report/run_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "instrument/diagnosis/cascade.h"
#include "instrument/diagnosis/diagnosis.h"

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

/// A cell of a Markdown table: no pipe may end it, no markup may start in it.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : printable(text, {})) {
    if (c == '|' || c == '<' || c == '`' || c == '*' || c == '_') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string dump_json(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'; }

Json run_json(const scenarios::Analysis& analysis, const RunContext& context) {
  Json json;
  json["schema"] = "nanscope.run-report/1";
  json["scenario"] = analysis.info.scenario;
  json["recording"] = context.recording;
  json["verdict"] = analysis.diagnosis.clean() ? "clean" : "fault";
  if (context.judged) {
    json["as_expected"] = context.missed.empty();
    json["missed"] = Json::array();
    for (const scenarios::Missed& missed : context.missed) {
      json["missed"].push_back({{"what", missed.what}, {"expected", missed.expected}, {"found", missed.found}});
    }
  }
  json["hash"] = fmt::format("{:016x}", analysis.digest);
  json["requests"] = requests_json(analysis.requests);
  json["cascade"] = to_json(analysis.cascade);
  json["diagnosis"] = to_json(analysis.diagnosis);
  json["hypotheses"] = to_json(analysis.diagnosis.hypotheses);
  return json;
}

std::string run_markdown(const scenarios::Analysis& analysis, const RunContext& context) {
  const Terminal plain;
  const Diagnosis& diagnosis = analysis.diagnosis;
  std::string text = fmt::format("### nanscope: {}\n\n",
                                 cell(analysis.info.scenario.empty() ? analysis.target : analysis.info.scenario));
  if (diagnosis.clean()) {
    text += "**Clean.**\n\n";
  } else if (diagnosis.root_cause) {
    const Fault& cause = diagnosis.faults.at(*diagnosis.root_cause);
    text += fmt::format("**{}** at `{}`: {}\n\n**Fix:** {}\n\n", cause.fault_class, place_text(cause.where),
                        cell(cause.summary), cell(cause.fix));
  }
  if (context.judged && !context.missed.empty()) {
    text += "| expectation | expected | found |\n|---|---|---|\n";
    for (const scenarios::Missed& missed : context.missed) {
      text += fmt::format("| {} | {} | {} |\n", cell(missed.what), cell(missed.expected), cell(missed.found));
    }
    text += '\n';
  }
  text += "| request | tokens | logits | output |\n|---|--:|---|---|\n";
  for (const scenarios::RequestOutcome& request : analysis.requests) {
    text += fmt::format("| {} {} | {} | {} | {} |\n", request.row.id, cell(request.row.name), request.prompt_tokens,
                        request.nan_logits ? "NaN" : "ok", cell(request.row.output_text));
  }
  if (analysis.front) text += fmt::format("\n```\n{}```\n", front_text(*analysis.front, plain));
  if (analysis.cascade.found() > 0) {
    text += "\n| link | | where | |\n|--:|---|---|---|\n";
    for (const Link& link : analysis.cascade.links) {
      text += fmt::format("| {} | {} {} | {} | {} |\n", link.number, link.state == LinkState::found ? "●" : "○",
                          cell(link.title), cell(place_text(link.where)), cell(link.summary));
    }
  }
  return text;
}

}  // namespace nanscope::report
