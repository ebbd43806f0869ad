#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"

/// What tests ask of a diagnosis.
namespace nanscope::testing {

class MemoryDump;
class RunBuilder;

/// An error fails the test. Without `recompute`, nothing is done again: for numbers that no arithmetic gives.
Diagnosis diagnosis_of(RunView& run, bool recompute = true);
/// Of a run made row by row, whose numbers no arithmetic gives.
Diagnosis diagnosis_of(RunBuilder& builder, bool recompute = false);
/// Of a dump in memory.
Diagnosis diagnosis_of(MemoryDump& dump);
/// Of all faults, in their order.
std::vector<std::string> classes(const Diagnosis& diagnosis);
/// Of the root cause, "clean" when there is none.
std::string root_of(const Diagnosis& diagnosis);
/// The first fault of a class; one of no class when there is none.
Fault fault(const Diagnosis& diagnosis, std::string_view fault_class);
/// What became of the search for a class.
Check check(const Diagnosis& diagnosis, std::string_view fault_class);
/// A fault's evidence as text, "-" where there is none of that name.
std::string number(const Fault& fault, const std::string& name);

}  // namespace nanscope::testing
