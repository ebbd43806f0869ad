#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/json_parts.h"

/// The diagnosis as JSON. Numbers that JSON cannot hold are text: "nan", "inf", "-inf".
namespace nanscope {
namespace {

using json::Json;
using json::or_null;
using json::text_or_null;

Json fault_json(const Fault& fault) {
  Json object;
  object["class"] = fault.fault_class;
  object["tensor"] = fault.tensor;
  json::add_place(object, fault.where);
  object["because"] = or_null(fault.because);
  object["evidence"] = json::of(fault.evidence);
  object["summary"] = fault.summary;
  object["certainty"] = name(fault.certainty);
  object["fix"] = fault.fix;
  object["server_settings"] = Json::array();
  for (const ServerSetting& one : fault.settings)
    object["server_settings"].push_back(Json{{"server", one.server}, {"setting", one.setting}});
  return object;
}

Json recomputation_json(const Recomputation& made) {
  Json left = Json::array();
  for (const Recomputation::Left& one : made.not_recomputed)
    left.push_back(Json{{"tensor", one.tensor}, {"reason", one.reason}});
  return Json{{"ops", made.ops},
              {"ops_with_inputs", made.ops_with_inputs},
              {"elements", made.elements},
              {"explained", made.explained},
              {"not_recomputed", std::move(left)}};
}

}  // namespace

Json to_json(const Diagnosis& diagnosis) {
  Json object;
  object["schema"] = "nanscope.diagnosis/3";
  object["target"] = diagnosis.target;
  object["verdict"] = name(diagnosis.verdict());
  object["root_cause"] = diagnosis.root_cause ? fault_json(diagnosis.faults[*diagnosis.root_cause]) : Json(nullptr);
  object["faults"] = Json::array();
  for (const Fault& fault : diagnosis.faults) object["faults"].push_back(fault_json(fault));
  object["chain"] = Json::array();
  for (const Event& event : diagnosis.chain) {
    Json link{{"kind", event.kind}, {"tensor", text_or_null(event.tensor)}};
    json::add_place(link, event.where);
    link["because"] = or_null(event.because);
    link["fault"] = or_null(event.fault);
    link["evidence"] = json::of(event.evidence);
    link["text"] = event.text;
    object["chain"].push_back(std::move(link));
  }
  object["checks"] = Json::array();
  for (const Check& check : diagnosis.checks)
    object["checks"].push_back(Json{{"class", check.fault_class}, {"state", name(check.state)}, {"text", check.text}});
  const Spread& spread = diagnosis.spread;
  object["spread"] = Json{{"first_bad_tensor", text_or_null(spread.first_bad_tensor)},
                          {"bad_tokens", spread.bad_tokens},
                          {"tokens", spread.tokens},
                          {"at_least", spread.at_least}};
  object["warnings"] = Json::array();
  for (const Warning& warning : diagnosis.warnings) {
    object["warnings"].push_back(Json{{"kind", warning.kind},
                                      {"tensor", warning.tensor},
                                      {"layer", or_null(warning.where.layer)},
                                      {"step", or_null(warning.where.step)},
                                      {"more", warning.more},
                                      {"evidence", json::of(warning.evidence)},
                                      {"summary", warning.summary},
                                      {"advice", warning.advice}});
  }
  const Completeness& whole = diagnosis.completeness;
  object["completeness"] = Json{{"read", whole.read},
                                {"expected", whole.expected > 0 ? Json(whole.expected) : Json(nullptr)},
                                {"interrupted", whole.interrupted},
                                {"reached", text_or_null(whole.reached)}};
  object["recomputation"] = recomputation_json(diagnosis.recomputation);
  const Coverage& coverage = diagnosis.coverage;
  Json gaps = Json::array();
  for (const Coverage::Gap& gap : coverage.gaps)
    gaps.push_back(Json{{"reason", gap.reason}, {"outputs", gap.outputs}, {"example", gap.example}});
  object["coverage"] = Json{{"outputs", coverage.outputs},
                            {"judged", coverage.judged},
                            {"judged_in_part", coverage.in_part},
                            {"unknown_names", coverage.unknown_names},
                            {"absent", coverage.absent},
                            {"not_looked_at", coverage.not_looked_at},
                            {"first_absent", text_or_null(coverage.first_absent)},
                            {"gaps", std::move(gaps)},
                            {"next_step", text_or_null(coverage.next_step)}};
  object["unread"] = Json::array();
  for (const UnreadPart& part : diagnosis.unread)
    object["unread"].push_back(Json{{"name", part.name}, {"text", part.text}});
  object["notes"] = Json::array();
  for (const RunNote& note : diagnosis.notes)
    object["notes"].push_back(Json{{"tensor", text_or_null(note.tensor)}, {"text", note.text}});
  return object;
}

}  // namespace nanscope
