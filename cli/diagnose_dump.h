#pragma once
#include <string>

#include "cli/interrupt.h"

namespace nanscope::cli {

/// Whether a path is meant as a recording: by its name, or by its first bytes.
bool looks_like_recording(const std::string& path);

/// Scans and diagnoses a dump, prints what was found as text, json, junit or markdown; gives the exit code.
int diagnose_dump_target(const std::string& path, const std::string& format, bool progress, const Interrupt& interrupt);

}  // namespace nanscope::cli
