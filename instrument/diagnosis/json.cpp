#include <cmath>
#include <nlohmann/json.hpp>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/diff.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/why.h"

/// The reports as JSON. Numbers that JSON cannot hold are text: "nan", "inf", "-inf".
namespace nanscope {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json range_json(const std::optional<Range>& range) {
  return range ? Json::array({range->first, range->last}) : Json(nullptr);
}

Json value_json(const EvidenceValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* number = std::get_if<double>(&value); number != nullptr && std::isfinite(*number)) return *number;
  return to_string(value);
}

Json evidence_json(const std::vector<Evidence>& evidence) {
  Json object = Json::object();
  for (const Evidence& item : evidence) object[item.name] = value_json(item.value);
  return object;
}

void add_place(Json& object, const Where& where) {
  object["layer"] = or_null(where.layer);
  object["op"] = text_or_null(where.op);
  object["request"] = or_null(where.request);
  object["step"] = or_null(where.step);
  object["tokens"] = range_json(where.tokens);
  object["channels"] = range_json(where.channels);
}

Json fault_json(const Fault& fault) {
  Json object;
  object["class"] = fault.fault_class;
  object["tensor"] = fault.tensor;
  add_place(object, fault.where);
  object["evidence"] = evidence_json(fault.evidence);
  object["summary"] = fault.summary;
  object["fix"] = fault.fix;
  return object;
}

Json element_json(const ElementDifference& element, Format format) {
  return Json{{"index", element.index},
              {"code_a", code_text(format, element.code_a)},
              {"code_b", code_text(format, element.code_b)},
              {"a", value_json(EvidenceValue{double{element.value_a}})},
              {"b", value_json(EvidenceValue{double{element.value_b}})},
              {"ulps", or_null(element.ulps)}};
}

}  // namespace

Json to_json(const Diagnosis& diagnosis) {
  Json object;
  object["schema"] = "nanscope.diagnosis/1";
  object["target"] = diagnosis.target;
  object["verdict"] = diagnosis.clean() ? "clean" : "fault";
  object["root_cause"] = diagnosis.root_cause ? fault_json(diagnosis.faults[*diagnosis.root_cause]) : Json(nullptr);
  object["faults"] = Json::array();
  object["chain"] = Json::array();
  for (const Fault& fault : diagnosis.faults) {
    object["faults"].push_back(fault_json(fault));
    object["chain"].push_back(
        Json{{"class", fault.fault_class}, {"tensor", fault.tensor}, {"because", or_null(fault.because)}});
  }
  object["spread"] = Json{{"first_bad_tensor", text_or_null(diagnosis.spread.first_bad_tensor)},
                          {"bad_tokens", diagnosis.spread.bad_tokens},
                          {"tokens", diagnosis.spread.tokens}};
  if (diagnosis.spread.at_least) object["spread"]["at_least"] = true;
  // Beside the schema: there only where there is something to say.
  for (const Warning& warning : diagnosis.warnings) {
    object["warnings"].push_back(Json{{"kind", warning.kind},
                                      {"tensor", warning.tensor},
                                      {"layer", or_null(warning.where.layer)},
                                      {"step", or_null(warning.where.step)},
                                      {"more", warning.more},
                                      {"evidence", evidence_json(warning.evidence)},
                                      {"summary", warning.summary},
                                      {"advice", warning.advice}});
  }
  const Completeness& whole = diagnosis.completeness;
  object["completeness"] =
      Json{{"read", whole.read}, {"expected", whole.expected > 0 ? Json(whole.expected) : Json(nullptr)}};
  return object;
}

Json to_json(const std::vector<Hypothesis>& hypotheses) {
  Json list = Json::array();
  for (const Hypothesis& one : hypotheses) {
    list.push_back(Json{{"class", one.fault_class}, {"supported", one.supported}, {"figure", one.figure}});
  }
  return list;
}

Json to_json(const Cascade& cascade) {
  Json links = Json::array();
  for (const Link& link : cascade.links) {
    Json object{{"number", link.number}, {"id", link.id}, {"title", link.title}, {"state", name(link.state)}};
    object["tensor"] = text_or_null(place_text(link.where));
    add_place(object, link.where);
    object["evidence"] = evidence_json(link.evidence);
    object["summary"] = link.summary;
    links.push_back(std::move(object));
  }
  return Json{{"schema", "nanscope.cascade/1"},
              {"found", cascade.found()},
              {"breaks_at", cascade.breaks_at() > 0 ? Json(cascade.breaks_at()) : Json(nullptr)},
              {"links", std::move(links)}};
}

Json to_json(const WhyPath& path) {
  Json hops = Json::array();
  for (const Hop& hop : path.hops) {
    Json object{{"kind", name(hop.kind)}, {"place", text_or_null(place_text(hop.where))}};
    add_place(object, hop.where);
    object["op_kind"] = text_or_null(hop.op_kind);
    object["format"] = name(hop.format);
    object["code"] = hop.code ? Json(code_text(hop.format, *hop.code)) : Json(nullptr);
    object["value"] = hop.value ? value_json(EvidenceValue{double{*hop.value}}) : Json(nullptr);
    object["bad"] = hop.bad;
    object["numbers"] = evidence_json(hop.numbers);
    object["text"] = hop.text;
    hops.push_back(std::move(object));
  }
  return Json{{"schema", "nanscope.why/1"},
              {"hops", std::move(hops)},
              {"origin", or_null(path.origin)},
              {"conclusion", path.conclusion},
              {"stopped", path.stopped}};
}

Json to_json(const DiffReport& report) {
  Json list = Json::array();
  for (const Difference& difference : report.differences) {
    Json object{{"kind", name(difference.kind)}, {"tensor", text_or_null(place_text(difference.where))}};
    add_place(object, difference.where);
    object["first"] = nullptr;
    object["differing"] = nullptr;
    if (difference.elements) {
      object["differing"] = difference.elements->differing;
      if (difference.elements->first) object["first"] = element_json(*difference.elements->first, difference.a->format);
    }
    object["summary"] = difference.summary;
    list.push_back(std::move(object));
  }
  return Json{{"schema", "nanscope.diff/1"},   {"same", report.same()},         {"compared", report.compared},
              {"differing", report.differing}, {"unmatched", report.unmatched}, {"differences", std::move(list)}};
}

std::string_view name(HopKind kind) {
  switch (kind) {
    case HopKind::element:
      return "element";
    case HopKind::weight:
      return "weight";
    case HopKind::slot:
      return "slot";
    case HopKind::scale:
      return "scale";
  }
  return {};
}

}  // namespace nanscope
