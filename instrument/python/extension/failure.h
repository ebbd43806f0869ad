#pragma once
#include <stdexcept>
#include <utility>

#include "core/result.h"
#include "core/text/safe_text.h"

namespace nanscope::python {

/// What Python sees as nanscope.Error: the line that the command would print.
struct Failure : std::runtime_error {
  explicit Failure(const Error& error) : std::runtime_error(error_line(error.message)) {}
  explicit Failure(const std::string& message) : Failure(Error{message}) {}
};

template <class T>
T value_of(Result<T> result) {
  if (!result) throw Failure(result.error());
  return std::move(*result);
}

inline void throw_if(const Status& status) {
  if (!status) throw Failure(status.error());
}

}  // namespace nanscope::python
