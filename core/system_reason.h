#pragma once
#include <exception>
#include <string>

namespace nanscope {

/// What the system's error number means; of a limit that was reached, which one and how it is raised.
std::string system_reason(int code);

/// Why work was given up: of memory or threads that ran out, what can be done; of what the system refused, its reason;
/// any other exception is an internal error.
std::string reason_of(const std::exception& error);

/// In one line: there was no memory, and which limits to look at.
std::string out_of_memory();

}  // namespace nanscope
