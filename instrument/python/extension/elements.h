#pragma once
#include <pybind11/pybind11.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/run/tensor_source.h"

namespace nanscope::python {

/// Bytes of ours that Python reads where they are, through the buffer protocol.
struct Elements {
  ElementBytes held;
};

inline Elements elements_of(std::vector<std::byte> bytes) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {{*owner, owner}};
}

/// Bytes of Python's that are read here where they are. The buffer is released with the interpreter's lock, from
/// whatever thread lets go of it last.
inline ElementBytes bytes_of(const pybind11::buffer& buffer) {
  auto request = std::make_unique<pybind11::buffer_info>(buffer.request());
  if (request->ndim > 1 || request->itemsize != 1 || (request->ndim == 1 && request->strides[0] != 1)) {
    throw pybind11::value_error("expected bytes without gaps");
  }
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(request->ptr),
                                         static_cast<std::size_t>(request->size));
  const std::shared_ptr<pybind11::buffer_info> owner(request.release(), [](const pybind11::buffer_info* held) {
    const pybind11::gil_scoped_acquire lock;
    delete held;
  });
  return {bytes, owner};
}

}  // namespace nanscope::python
