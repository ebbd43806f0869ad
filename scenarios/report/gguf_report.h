#pragma once
#include <string>

#include "instrument/inspect/gguf_census.h"
#include "scenarios/report/text.h"

/// What `nanscope inspect` says of a GGUF file.
namespace nanscope::report {

/// The verdict, then a line for each type; `all` adds a line for each tensor.
std::string gguf_text(const GgufCensus& made, bool all, const Terminal& terminal);
/// `nanscope.gguf-inspection/1`, see docs/gguf.md.
std::string gguf_json(const GgufCensus& made);

}  // namespace nanscope::report
