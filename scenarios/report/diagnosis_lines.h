#pragma once
#include <span>
#include <string>

#include "instrument/diagnosis/baseline.h"
#include "scenarios/report/diagnoses.h"
#include "scenarios/report/text.h"

namespace nanscope::report {

/// The fault that is told first: the root, or where that is accepted, the first that is not. There must be one.
std::size_t told_fault(const Diagnosis& diagnosis, std::span<const std::size_t> accepted);
/// What a verdict rests on: "18 of 21 classes excluded, 3 cannot be told from what is there".
std::string checks_summary(const Diagnosis& diagnosis);

/// One line for a target: its verdict, and of a fault the root's class, tensor and summary.
std::string verdict_line(const Diagnosed& one, const Terminal& terminal);

/// The faults of a target that are accepted, a line each; empty when none is.
std::string accepted_text(const Diagnosed& one, const Terminal& terminal);
std::string accepted_markdown(const Diagnosed& one);

/// Those of a baseline that were found no more, a line each; empty when there are none.
std::string gone_text(std::span<const KnownFault> gone, const std::string& baseline, const Terminal& terminal);

}  // namespace nanscope::report
