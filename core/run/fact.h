#pragma once
#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "core/result.h"

namespace nanscope {

/// Why a fact about a run is not known. Only a known fact shows health or a fault.
enum class Unknown : std::uint8_t {
  absent,          ///< the target does not hold it
  unreadable,      ///< the target holds it, and reading it failed: damaged, moved, over a limit
  not_understood,  ///< it was read, and nanscope does not know what it means
  not_applicable,  ///< the question does not arise for this target
};

/// A reason in one line: what is missing, or the error, or what was found instead.
struct NotKnown {
  Unknown why = Unknown::absent;
  std::string text;
};

/// A known value, or the reason why it is not known.
template <class T>
using Fact = tl::expected<T, NotKnown>;

inline tl::unexpected<NotKnown> absent(std::string text) {
  return tl::unexpected(NotKnown{Unknown::absent, std::move(text)});
}
inline tl::unexpected<NotKnown> unreadable(std::string text) {
  return tl::unexpected(NotKnown{Unknown::unreadable, std::move(text)});
}
inline tl::unexpected<NotKnown> not_understood(std::string text) {
  return tl::unexpected(NotKnown{Unknown::not_understood, std::move(text)});
}

/// The same as the error of an operation that cannot go on without it.
inline tl::unexpected<Error> fail(NotKnown reason) { return fail(std::move(reason.text)); }

/// Elements that the target holds and that could not be read.
struct UnreadElements {
  std::int64_t tensor = 0;  ///< its id
  std::string text;         ///< the error, in one line
};

}  // namespace nanscope
