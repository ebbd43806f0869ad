#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "scenarios/counterfactuals.h"

/// What was found in several targets, as one document for a machine.
namespace nanscope::report {

/// A target with what was found in it, or with why it could not be read.
struct Diagnosed {
  std::string target;
  std::optional<Diagnosis> diagnosis;  ///< nothing: it could not be read
  std::string error;                   ///< one line, of a target that could not be read
  /// Indices of faults that are known and accepted, or of a class that is not to fail: told, and no failure.
  std::vector<std::size_t> accepted = {};
  std::shared_ptr<const scenarios::Counterfactuals> changes = nullptr;  ///< of a recording that was run again
};

/// Whether something in it is to be acted on: it could not be read, was interrupted, or has a fault that is not
/// accepted.
bool failed(const Diagnosed& one);

/// JUnit XML: a case a target, each fault that is not accepted a failure, a target that could not be read an error.
std::string junit_of(std::span<const Diagnosed> all);
/// One target: its diagnosis, schema "nanscope.diagnosis/2". Several: "nanscope.diagnoses/1", whose `targets` are such
/// objects. A target that could not be read is {"schema", "target", "verdict": "error", "error"}.
std::string json_of(std::span<const Diagnosed> all);
/// SARIF 2.1.0 for code hosts: a rule a class of fault, a result a fault, at its target; what could not be read is a
/// notification of the invocation, accepted faults are suppressed.
std::string sarif_of(std::span<const Diagnosed> all);

}  // namespace nanscope::report
