#pragma once
#include <string>

#include "instrument/inspect/inspection.h"
#include "scenarios/report/text.h"

/// What `nanscope inspect` says.
namespace nanscope::report {

/// The verdict and what the checkpoint holds, then a paragraph for each finding; `all` adds a line for each module.
std::string inspect_text(const Inspection& made, bool all, const Terminal& terminal);
/// `nanscope.inspection/1`, see docs/inspect.md.
std::string inspect_json(const Inspection& made);

}  // namespace nanscope::report
