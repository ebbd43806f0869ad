#pragma once
#include <string>

#include "cli/command_spec.h"

namespace nanscope::cli {

/// "nanscope" of the program itself, "nanscope-run" of one of its commands: what man(1) is asked for.
std::string manual_name(const CommandSpec& program, const CommandSpec& command);

/// The page of section 1, in the language of man(7), of the program (`command` is `program`) or of one of its commands.
std::string manual_page(const CommandSpec& program, const CommandSpec& command, const std::string& version);

}  // namespace nanscope::cli
