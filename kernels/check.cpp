#include "kernels/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace nanscope::kernels {

ArgsCheck& ArgsCheck::given(std::string_view name, const TensorView& view) {
  if (failed()) return *this;
  if (!view.given()) {
    error_ = fmt::format("{}: tensor '{}' is not given", op_, name);
  } else if (view.rows < 0 || view.columns < 0) {
    error_ = fmt::format("{}: tensor '{}' has shape ({}, {})", op_, name, view.rows, view.columns);
  } else if (view.stride < view.columns) {
    error_ = fmt::format("{}: tensor '{}' has a row stride of {}, expected at least its {} columns", op_, name,
                         view.stride, view.columns);
  }
  return *this;
}

ArgsCheck& ArgsCheck::shape(std::string_view name, const TensorView& view, std::int64_t rows, std::int64_t columns) {
  given(name, view);
  if (failed() || (view.rows == rows && view.columns == columns)) return *this;
  error_ = fmt::format("{}: tensor '{}' has shape ({}, {}), expected ({}, {})", op_, name, view.rows, view.columns,
                       rows, columns);
  return *this;
}

ArgsCheck& ArgsCheck::format(std::string_view name, const TensorView& view, std::initializer_list<Format> allowed) {
  given(name, view);
  if (failed() || std::find(allowed.begin(), allowed.end(), view.format) != allowed.end()) return *this;
  std::string list;
  for (const Format format : allowed) list += fmt::format("{}{}", list.empty() ? "" : ", ", nanscope::name(format));
  error_ = fmt::format("{}: tensor '{}' is {}, expected {}", op_, name, nanscope::name(view.format), list);
  return *this;
}

ArgsCheck& ArgsCheck::floats(std::string_view name, const TensorView& view) {
  return format(name, view, {Format::f32, Format::f16, Format::bf16});
}

ArgsCheck& ArgsCheck::that(bool condition, std::string_view what) {
  if (!failed() && !condition) error_ = fmt::format("{} expects {}", op_, what);
  return *this;
}

}  // namespace nanscope::kernels
