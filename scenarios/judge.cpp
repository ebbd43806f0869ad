#include "scenarios/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/place.h"
#include "scenarios/report/text.h"

namespace nanscope::scenarios {

namespace {

std::string in_quotes(std::string_view text) { return fmt::format("\"{}\"", report::printable(text, {})); }

std::string names(const Scenario& scenario, const std::vector<std::size_t>& requests) {
  if (requests.empty()) return "none";
  std::vector<std::string> list;
  for (const std::size_t i : requests) {
    list.push_back(i < scenario.requests.size() ? scenario.requests[i].name : std::to_string(i));
  }
  return fmt::format("{}", fmt::join(list, ", "));
}

std::string found_class(const Diagnosis& diagnosis) {
  if (diagnosis.root_cause) return diagnosis.faults.at(*diagnosis.root_cause).fault_class;
  return diagnosis.faults.empty() ? std::string(name(diagnosis.verdict())) : "a fault without a root cause";
}

void judge_verdict(const Expectation& expect, const Diagnosis& diagnosis, std::vector<Missed>& missed) {
  const Verdict found = diagnosis.verdict();
  // A run is expected to be healthy or to have a fault; how much of it could be judged is no expectation.
  const bool interrupted = diagnosis.healthy() && diagnosis.completeness.interrupted;
  const bool as_expected =
      expect.verdict == Verdict::fault ? found == Verdict::fault : diagnosis.healthy() && !interrupted;
  if (!as_expected) {
    const std::string word(interrupted ? "interrupted" : name(found));
    missed.push_back({"verdict", std::string(name(expect.verdict)),
                      found == Verdict::fault ? fmt::format("{} ({})", word, found_class(diagnosis)) : word});
  } else if (!expect.fault_class.empty() && expect.fault_class != found_class(diagnosis)) {
    missed.push_back({"root cause", expect.fault_class, found_class(diagnosis)});
  }
}

void judge_event(const Diagnosis& diagnosis, const std::string& kind, bool wanted, std::vector<Missed>& missed) {
  const auto event =
      std::find_if(diagnosis.chain.begin(), diagnosis.chain.end(), [&](const Event& one) { return one.kind == kind; });
  const bool found = event != diagnosis.chain.end();
  if (found == wanted) return;
  missed.push_back({fmt::format("event {}", kind), wanted ? "in the chain" : "not in the chain",
                    found ? fmt::format("at {}: {}", event->tensor, event->text) : "not in the chain"});
}

/// By id: a warm-up request comes before those of the scenario, with id -1.
const RequestOutcome* find_request(const Analysis& analysis, std::size_t id) {
  for (const RequestOutcome& request : analysis.requests) {
    if (request.row.id == static_cast<std::int64_t>(id)) return &request;
  }
  return nullptr;
}

void judge_outputs(const Scenario& scenario, const Analysis& analysis, std::vector<Missed>& missed) {
  for (const ExpectedOutput& expected : scenario.expect.outputs) {
    const std::string what = fmt::format("output of {}", scenario.requests.at(expected.request).name);
    const std::string wanted = expected.all_bang ? "token 0 (\"!\") alone" : in_quotes(expected.text);
    const RequestOutcome* found = find_request(analysis, expected.request);
    if (!found) {
      missed.push_back({what, wanted, "the request was not run"});
      continue;
    }
    const bool met = expected.all_bang ? found->all_bang : found->row.output_text == expected.text;
    if (!met) missed.push_back({what, wanted, in_quotes(found->row.output_text)});
  }
}

/// Whether every part that `wanted` gives is so in `where`.
bool covers(const Place& wanted, const Where& where) {
  if (wanted.rank != 0 && wanted.rank != where.rank) return false;
  if (wanted.request && wanted.request != where.request) return false;
  if (wanted.step && wanted.step != where.step) return false;
  if (wanted.layer && *wanted.layer != where.layer.value_or(-1)) return false;
  if (!wanted.op.empty() && wanted.op != where.op) return false;
  if (!wanted.role.empty() && wanted.role != where.role) return false;
  if (wanted.token && where.tokens && (*wanted.token < where.tokens->first || *wanted.token > where.tokens->last)) {
    return false;
  }
  return true;
}

void judge_places(const Scenario& scenario, const Diagnosis& diagnosis, std::vector<Missed>& missed) {
  for (const ExpectedPlace& expected : scenario.expect.places) {
    const std::string what = fmt::format("fault at {}", expected.place);
    const auto place = parse_place(expected.place);
    if (!place) {
      missed.push_back({what, expected.fault_class, place.error().message});
      continue;
    }
    std::vector<std::string> there;
    bool found = false;
    for (const Fault& fault : diagnosis.faults) {
      found = found || (fault.fault_class == expected.fault_class && covers(*place, fault.where));
      if (fault.fault_class == expected.fault_class) there.push_back(place_text(fault.where));
    }
    if (found) continue;
    if (there.size() > 4) there.resize(4);
    missed.push_back({what, expected.fault_class,
                      there.empty() ? "no fault of that class" : fmt::format("it is at {}", fmt::join(there, ", "))});
  }
}

}  // namespace

std::vector<Missed> judge(const Scenario& scenario, const Analysis& analysis) {
  const Expectation& expect = scenario.expect;
  std::vector<Missed> missed;
  judge_verdict(expect, analysis.diagnosis, missed);
  for (const std::string& kind : expect.chain) judge_event(analysis.diagnosis, kind, true, missed);
  for (const std::string& kind : expect.not_reached) judge_event(analysis.diagnosis, kind, false, missed);
  judge_outputs(scenario, analysis, missed);
  judge_places(scenario, analysis.diagnosis, missed);
  if (expect.requests_nan) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < scenario.requests.size(); ++i) {
      const RequestOutcome* request = find_request(analysis, i);
      if (request && request->nan_logits) found.push_back(i);
    }
    if (found != *expect.requests_nan) {
      missed.push_back({"requests with NaN logits", names(scenario, *expect.requests_nan), names(scenario, found)});
    }
  }
  if (expect.hash && expect.hash != analysis.digest) {
    missed.push_back(
        {"hash of the run", fmt::format("{:016x}", *expect.hash), fmt::format("{:016x}", analysis.digest.value_or(0))});
  }
  return missed;
}

std::string to_string(const Missed& missed) {
  return fmt::format("{}: expected {}, found {}", missed.what, missed.expected, missed.found);
}

}  // namespace nanscope::scenarios
