#pragma once
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace nanscope {

/// What went wrong, in one line that a user can act on: what, where, expected, found, what to do.
/// Private parts (paths) come first only because they say where; nothing is printed by libraries.
struct Error {
  std::string message;
};

/// Result of an operation that can fail on bad input or a full disk. Libraries return it; only
/// the command-line and window programs print it and choose an exit code.
template <class T>
using Result = tl::expected<T, Error>;

using Status = Result<void>;

inline tl::unexpected<Error> fail(std::string message) { return tl::unexpected<Error>(Error{std::move(message)}); }

}  // namespace nanscope
