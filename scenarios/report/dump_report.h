#pragma once
#include <string>

#include "instrument/diagnosis/diagnosis.h"
#include "core/dump/diff_dumps.h"
#include "core/dump/dump.h"
#include "scenarios/report/text.h"

/// What was found in a dump, as a person reads it: what it holds, where it went wrong, why, and what to do.
namespace nanscope::report {

std::string dump_text(const Dump& dump, const Diagnosis& diagnosis, const Terminal& terminal);
std::string dump_markdown(const Dump& dump, const Diagnosis& diagnosis);
std::string dump_diff_text(const DumpDiff& diff, const std::string& a, const std::string& b, const Terminal& terminal);

}  // namespace nanscope::report
