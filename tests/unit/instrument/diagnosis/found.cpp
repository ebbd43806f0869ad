#include "tests/unit/instrument/diagnosis/found.h"

#include <gtest/gtest.h>

namespace nanscope::testing {

Diagnosis diagnosis_of(RunBuilder& builder) {
  Result<Diagnosis> found = diagnose(builder.run, builder.tensors, "here");
  EXPECT_TRUE(found.has_value());
  return found.value_or(Diagnosis{});
}

std::vector<std::string> classes(const Diagnosis& diagnosis) {
  std::vector<std::string> found;
  for (const Fault& fault : diagnosis.faults) found.push_back(fault.fault_class);
  return found;
}

std::string number(const Fault& fault, const std::string& name) {
  const EvidenceValue* value = find(fault.evidence, name);
  return value == nullptr ? "-" : to_string(*value);
}

}  // namespace nanscope::testing
