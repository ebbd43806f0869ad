#pragma once
#include <string>

#include "instrument/verify/free_run.h"
#include "instrument/verify/verify.h"
#include "scenarios/report/text.h"

/// What `nanscope verify` says.
namespace nanscope::report {

/// Five lines: the verdict, the first output that is not the model's, what explains it, what else, what it rests on.
std::string verify_answer(const Verification& made, const Terminal& terminal);
/// The answer, then a line for each output that is off, the free run by layers, and what was not checked.
std::string verify_text(const Verification& made, const FreeRun& free, const Terminal& terminal);
/// `nanscope.verification/1`, see docs/verify.md.
std::string verify_json(const Verification& made, const FreeRun& free);
/// A case an output.
std::string verify_junit(const Verification& made);

}  // namespace nanscope::report
