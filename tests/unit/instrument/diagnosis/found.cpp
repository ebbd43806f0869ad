#include "tests/unit/instrument/diagnosis/found.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/run/recording_view.h"
#include "instrument/recompute/arithmetic.h"
#include "tests/unit/core/dump/memory_dump.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::testing {

Diagnosis diagnosis_of(RunView& run, bool recompute) {
  PlainArithmetic arithmetic;
  DiagnoseOptions options;
  options.target = "here";
  options.recompute = recompute;
  Result<Diagnosis> found = diagnose(run, arithmetic, options);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
  return found.value_or(Diagnosis{});
}

Diagnosis diagnosis_of(RunBuilder& builder, bool recompute) {
  RecordingView run(builder.run, builder.tensors);
  return diagnosis_of(run, recompute);
}

Diagnosis diagnosis_of(MemoryDump& dump) {
  const auto run = dump.run();
  return diagnosis_of(*run);
}

std::vector<std::string> classes(const Diagnosis& diagnosis) {
  std::vector<std::string> found;
  for (const Fault& fault : diagnosis.faults) found.push_back(fault.fault_class);
  return found;
}

std::string root_of(const Diagnosis& diagnosis) {
  return diagnosis.root_cause ? diagnosis.faults[*diagnosis.root_cause].fault_class : std::string("clean");
}

Fault fault(const Diagnosis& diagnosis, std::string_view fault_class) {
  const auto found = std::find_if(diagnosis.faults.begin(), diagnosis.faults.end(),
                                  [&](const Fault& one) { return one.fault_class == fault_class; });
  return found == diagnosis.faults.end() ? Fault{} : *found;
}

Check check(const Diagnosis& diagnosis, std::string_view fault_class) {
  const auto found = std::find_if(diagnosis.checks.begin(), diagnosis.checks.end(),
                                  [&](const Check& one) { return one.fault_class == fault_class; });
  return found == diagnosis.checks.end() ? Check{} : *found;
}

std::string number(const Fault& fault, const std::string& name) {
  const EvidenceValue* value = find(fault.evidence, name);
  return value == nullptr ? "-" : to_string(*value);
}

}  // namespace nanscope::testing
