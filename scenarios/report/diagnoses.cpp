#include "scenarios/report/diagnoses.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "instrument/diagnosis/detectors/detector.h"
#include "scenarios/report/counterfactual_report.h"
#include "scenarios/report/diagnosis_report.h"
#include "scenarios/report/junit.h"
#include "scenarios/report/run_json.h"
#include "scenarios/version.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSarifSchema = "https://json.schemastore.org/sarif-2.1.0.json";
constexpr std::string_view kUnread = "target-not-read";
constexpr std::string_view kNotJudged = "not-judged";

bool accepted(const Diagnosed& one, std::size_t fault) {
  return std::find(one.accepted.begin(), one.accepted.end(), fault) != one.accepted.end();
}

/// "f16-overflow in layers.3.mlp.down_proj: what is wrong".
std::string fault_text(const Fault& fault) {
  return fmt::format("{} {}: {}", fault.fault_class, place_of(fault), fault.summary);
}

/// Why a target without a new fault fails all the same; empty: it does not.
std::string not_judged_text(const Diagnosed& one) {
  const Diagnosis& diagnosis = *one.diagnosis;
  if (diagnosis.verdict() == Verdict::nothing_to_judge) return verdict_words(diagnosis);
  if (diagnosis.completeness.interrupted)
    return "the recording ended before the run did: " + progress_text(diagnosis.completeness);
  if (diagnosis.coverage.share() >= one.min_coverage) return {};
  return fmt::format("{}, {:.4g} of them where {:.4g} is the least", coverage_text(diagnosis),
                     diagnosis.coverage.share(), one.min_coverage);
}

JUnitCase case_of(const Diagnosed& one) {
  JUnitCase test{.name = one.target, .class_name = "nanscope.diagnose", .failures = {}, .error = {}, .output = {}};
  if (!one.diagnosis) {
    test.error = one.error;
    return test;
  }
  for (std::size_t i = 0; i < one.diagnosis->faults.size(); ++i) {
    const std::string text = fault_text(one.diagnosis->faults[i]);
    if (accepted(one, i)) {
      test.output += "accepted: " + printable(text, {}) + '\n';
    } else {
      test.failures.push_back(text);
    }
  }
  if (!one.diagnosis->unread.empty()) test.error = unread_text(*one.diagnosis);
  if (const std::string why = not_judged_text(one); !why.empty()) test.failures.push_back(why);
  return test;
}

Json json_of_one(const Diagnosed& one) {
  if (!one.diagnosis)
    return Json{{"schema", "nanscope.diagnosis/3"}, {"target", one.target}, {"verdict", "error"}, {"error", one.error}};
  Json json = to_json(*one.diagnosis);
  if (!one.accepted.empty()) json["accepted"] = one.accepted;
  if (one.changes) json["counterfactuals"] = to_json(*one.changes);
  return json;
}

/// A path as a URI reference: RFC 3986 leaves letters, digits and a few marks as they are.
std::string uri_of(std::string_view path) {
  constexpr std::string_view kPlain = "-._~/";
  std::string uri;
  for (const char c : path) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    uri += letter || kPlain.find(c) != std::string_view::npos
               ? std::string(1, c)
               : fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return uri;
}

Json location_of(const Diagnosed& one) {
  return Json{{"physicalLocation", Json{{"artifactLocation", Json{{"uri", uri_of(one.target)}}}}}};
}

Json rule(std::string_view id, std::string_view text) {
  return Json{{"id", id}, {"shortDescription", Json{{"text", text}}}};
}

/// The rules that results speak of, in the order of the registry.
Json rules_of(std::span<const Diagnosed> all) {
  std::set<std::string, std::less<>> spoken;
  bool not_judged = false;
  for (const Diagnosed& one : all) {
    if (!one.diagnosis) continue;
    for (const Fault& fault : one.diagnosis->faults) spoken.insert(fault.fault_class);
    not_judged = not_judged || !not_judged_text(one).empty();
  }
  Json rules = Json::array();
  for (const Detector& detector : detectors()) {
    if (spoken.contains(detector.fault_class)) rules.push_back(rule(detector.fault_class, detector.looks_for));
  }
  if (not_judged) rules.push_back(rule(kNotJudged, "a target that could not be judged, or not as a whole"));
  return rules;
}

Json result_of(const Diagnosed& one, std::size_t index) {
  const Diagnosis& diagnosis = *one.diagnosis;
  const Fault& fault = diagnosis.faults[index];
  Json location = location_of(one);
  location["logicalLocations"] = Json::array({Json{{"fullyQualifiedName", fault.tensor}, {"kind", "member"}}});
  Json result{{"ruleId", fault.fault_class},
              // A consequence goes when its cause goes.
              {"level", fault.because ? "warning" : "error"},
              {"message", Json{{"text", fmt::format("{} {} ({}). {}", fault_text(fault), reason_text(diagnosis, index),
                                                    name(fault.certainty), fault.fix)}}},
              {"locations", Json::array({std::move(location)})},
              {"partialFingerprints", Json{{"nanscope/1", fmt::format("{}:{}", fault.fault_class, fault.tensor)}}}};
  if (accepted(one, index)) result["suppressions"] = Json::array({Json{{"kind", "external"}, {"status", "accepted"}}});
  return result;
}

Json invocation_of(std::span<const Diagnosed> all) {
  Json notifications = Json::array();
  for (const Diagnosed& one : all) {
    if (one.diagnosis && one.diagnosis->unread.empty()) continue;
    notifications.push_back(Json{{"descriptor", Json{{"id", kUnread}}},
                                 {"level", "error"},
                                 {"message", Json{{"text", one.diagnosis ? unread_text(*one.diagnosis) : one.error}}},
                                 {"locations", Json::array({location_of(one)})}});
  }
  const bool whole = notifications.empty();
  Json invocation{{"executionSuccessful", whole}};
  if (!whole) invocation["toolExecutionNotifications"] = std::move(notifications);
  return invocation;
}

}  // namespace

TargetOutcome outcome_of(const Diagnosed& one) {
  if (!one.diagnosis || !one.diagnosis->unread.empty()) return TargetOutcome::unreadable;
  for (std::size_t i = 0; i < one.diagnosis->faults.size(); ++i) {
    if (!accepted(one, i)) return TargetOutcome::fault;
  }
  return not_judged_text(one).empty() ? TargetOutcome::passed : TargetOutcome::not_judged;
}

std::string junit_of(std::span<const Diagnosed> all) {
  std::vector<JUnitCase> cases;
  for (const Diagnosed& one : all) cases.push_back(case_of(one));
  return junit_xml("nanscope", cases);
}

std::string json_of(std::span<const Diagnosed> all) {
  if (all.size() == 1) return dump_json(json_of_one(all.front()));
  Json targets = Json::array();
  for (const Diagnosed& one : all) targets.push_back(json_of_one(one));
  return dump_json(Json{{"schema", "nanscope.diagnoses/1"}, {"targets", std::move(targets)}});
}

std::string sarif_of(std::span<const Diagnosed> all) {
  Json results = Json::array();
  for (const Diagnosed& one : all) {
    if (!one.diagnosis) continue;
    for (std::size_t i = 0; i < one.diagnosis->faults.size(); ++i) results.push_back(result_of(one, i));
    if (const std::string why = not_judged_text(one); !why.empty()) {
      results.push_back(Json{{"ruleId", kNotJudged},
                             {"level", "warning"},
                             {"message", Json{{"text", why}}},
                             {"locations", Json::array({location_of(one)})}});
    }
  }
  Json driver{{"name", "nanscope"}, {"version", scenarios::kVersion}, {"rules", rules_of(all)}};
  Json run{{"tool", Json{{"driver", std::move(driver)}}},
           {"invocations", Json::array({invocation_of(all)})},
           {"results", std::move(results)}};
  return dump_json(Json{{"$schema", kSarifSchema}, {"version", "2.1.0"}, {"runs", Json::array({std::move(run)})}});
}

}  // namespace nanscope::report
