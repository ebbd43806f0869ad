#pragma once
#include <string>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

/// What tests ask of a diagnosis.
namespace nanscope::testing {

/// Of a run made row by row; an error fails the test.
Diagnosis diagnosis_of(RunBuilder& builder);
/// Of all faults, in their order.
std::vector<std::string> classes(const Diagnosis& diagnosis);
/// A fault's evidence as text, "-" where there is none of that name.
std::string number(const Fault& fault, const std::string& name);

}  // namespace nanscope::testing
