#pragma once
#include <string>

#include "cli/command_spec.h"

namespace nanscope::cli {

/// The page's name for man(1): "nanscope" for the program, "nanscope-run" for its command run.
std::string manual_name(const CommandSpec& program, const CommandSpec& command);

/// The manual page (section 1, in man(7) syntax) of the program (`command` is `program`) or of one of its commands.
std::string manual_page(const CommandSpec& program, const CommandSpec& command, const std::string& version);

}  // namespace nanscope::cli
