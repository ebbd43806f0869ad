#pragma once
#include <span>
#include <string>

namespace nanscope::live {

/// The command line for people, with blanks between its arguments, and "***" for what is told to be secret by its name
/// (`--api-key X`, `--hf-token=X`, `DB_PASSWORD=X`, an Authorization header, a password within a URL) or by the look
/// that some services give their keys. What a secret is called otherwise is not known: it stays.
std::string masked_command(std::span<const std::string> arguments);

}  // namespace nanscope::live
