#include "cli/known_values.h"

#include <fmt/format.h>

#include <sstream>
#include <string_view>
#include <utility>

#include "core/numbers/format.h"
#include "instrument/diagnosis/detectors/detector.h"
#include "instrument/engine/knobs.h"
#include "instrument/kv_schemes/kv_scheme.h"
#include "scenarios/library.h"
#include "scenarios/scenario.h"
#ifdef NANSCOPE_GUI
#include "gui/app.h"
#endif

namespace nanscope::cli {

namespace {

std::vector<Candidate> scenario_names() {
  std::vector<Candidate> names;
  const auto files = scenarios::scenario_files(scenarios::library_folder());
  if (!files) return names;
  for (const auto& file : *files) names.push_back({file.stem().string(), {}});
  return names;
}

/// Completes a setting's name to "kv.format=", then its values if they are a list.
std::vector<Candidate> settings(const std::string& typed) {
  std::vector<Candidate> candidates;
  const std::size_t equals = typed.find('=');
  if (equals == std::string::npos) {
    for (const Knob& knob : knobs()) candidates.push_back({knob.name + "=", knob.doc});
    return candidates;
  }
  const Knob* knob = find_knob(typed.substr(0, equals));
  if (knob == nullptr) return candidates;
  std::istringstream allowed(knob->allowed);
  if (knob->allowed.find('|') == std::string::npos) return candidates;
  for (std::string value; std::getline(allowed, value, '|');) {
    if (!value.empty()) candidates.push_back({fmt::format("{}={}", knob->name, value), {}});
  }
  return candidates;
}

std::vector<Candidate> number_formats() {
  std::vector<Candidate> names;
  for (const FormatInfo& format : formats()) names.push_back({std::string(format.name), std::string(format.spec)});
  return names;
}

std::vector<Candidate> fault_classes() {
  std::vector<Candidate> names;
  for (const Detector& detector : detectors()) {
    names.push_back({std::string(detector.fault_class), std::string(detector.looks_for)});
  }
  return names;
}

std::vector<Candidate> kv_policy_names() {
  std::vector<Candidate> names;
  for (const KvPolicy& policy : kv_policies()) names.push_back({std::string(policy.name), std::string(policy.doc)});
  return names;
}

std::vector<Candidate> plain(std::initializer_list<std::string_view> words) {
  std::vector<Candidate> candidates;
  for (const std::string_view word : words) candidates.push_back({std::string(word), {}});
  return candidates;
}

std::vector<Candidate> views() {
  std::vector<Candidate> names;
#ifdef NANSCOPE_GUI
  for (std::string& view : gui::all_views()) names.push_back({std::move(view), {}});
#endif
  return names;
}

}  // namespace

std::vector<Candidate> known_values(const std::string& kind, const std::string& typed) {
  if (kind == "SCENARIO") return scenario_names();
  if (kind == "SETTING=VALUE") return settings(typed);
  if (kind == "FORMAT") return number_formats();
  if (kind == "CLASS") return fault_classes();
  if (kind == "POLICY") return kv_policy_names();
  if (kind == "VIEW") return views();
  if (kind == "THEME") return plain({"dark", "light"});
  if (kind == "CAPTURE") return plain({"none", "all", "ring:", "named:"});
  if (kind == "DEVICE") return plain({"cpu", "cpu:baseline", "cpu:avx2", "cpu:avx512", "cuda", "cuda:nograph"});
  return {};
}

}  // namespace nanscope::cli
