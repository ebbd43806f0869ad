#pragma once
#include <string>

#include "instrument/diagnosis/why.h"
#include "scenarios/report/run_report.h"
#include "scenarios/report/text.h"

/// What a person asked for, before anything else: the verdict, the place, the cause and the fix. Five lines of 100
/// columns; narrower terminals fold them. A sentence that is too long for its share loses its last clauses.
namespace nanscope::report {

struct Answer {
  std::string text;
  bool whole = true;  ///< false: clauses of the cause are left out
};

/// Of a run or a dump. Of a healthy one: what the verdict rests on.
Answer answer(const scenarios::Analysis& analysis, const RunContext& context, const Terminal& terminal);

/// Of one element. `fault`: that on the way back which its fix is of, or null.
Answer answer(const WhyPath& path, const Fault* fault, const Terminal& terminal);

/// The fault of the setting, or else of the op, that a path leads back to; null where none of them is on it.
const Fault* fault_behind(const WhyPath& path, const Diagnosis& diagnosis);

}  // namespace nanscope::report
