#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "scenarios/counterfactuals.h"

/// Diagnoses of several targets, as one document for a machine.
namespace nanscope::report {

/// A target with its diagnosis, or with the error of opening it.
struct Diagnosed {
  std::string target;
  std::optional<Diagnosis> diagnosis;  ///< nothing: it could not be opened
  std::string error;                   ///< one line, of a target that could not be opened
  /// Indices of faults that are known and accepted, or whose class is not to fail: reported, and no failure.
  std::vector<std::size_t> accepted = {};
  std::shared_ptr<const scenarios::Counterfactuals> changes = nullptr;  ///< of a recording that was run again
  double min_coverage = 0;  ///< the least share of outputs that has to be judged
};

/// What a target means for a build server.
enum class TargetOutcome : std::uint8_t {
  passed,
  not_judged,  ///< nothing to judge, interrupted, or less than the least coverage
  fault,       ///< a fault that is not accepted
  unreadable,  ///< it, or a part of it, could not be read
};
TargetOutcome outcome_of(const Diagnosed& one);

/// JUnit XML: a case for each target. A fault that is not accepted and a target that was not judged are failures, what
/// could not be read is an error.
std::string junit_of(std::span<const Diagnosed> all);
/// One target: its diagnosis, schema "nanscope.diagnosis/3". Several: "nanscope.diagnoses/1", whose `targets` are such
/// objects. A target that could not be opened is {"schema", "target", "verdict": "error", "error"}.
std::string json_of(std::span<const Diagnosed> all);
/// SARIF 2.1.0 for code hosts: a rule for each class of fault, a result for each fault, at its target. What could not
/// be read is a notification of the invocation, accepted faults are suppressed.
std::string sarif_of(std::span<const Diagnosed> all);

}  // namespace nanscope::report
