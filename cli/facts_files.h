#pragma once
#include <optional>
#include <string>

#include "core/result.h"
#include "instrument/facts/dump_facts.h"

namespace nanscope::cli {

/// This nanscope, as facts name who made them: another build may compute other numbers.
std::string facts_maker();

/// Facts of one file; nothing for an empty path. Errors: those of DumpFacts::read(); another nanscope made them.
Result<std::optional<DumpFacts>> read_facts(const std::string& path);

}  // namespace nanscope::cli
