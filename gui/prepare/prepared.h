#pragma once
#include <memory>

namespace nanscope::gui {

/// What the store's thread makes for the window: immutable once made, so that both may hold it.
struct Prepared {
  Prepared() = default;
  Prepared(const Prepared&) = default;
  Prepared& operator=(const Prepared&) = default;
  virtual ~Prepared() = default;
};

using PreparedPtr = std::shared_ptr<const Prepared>;

}  // namespace nanscope::gui
