#pragma once
#include <limits>

#include "core/run/recording_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui {

inline constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

/// Rows made by hand as a view of a run: one that has read nothing of them yet. They must outlive it.
class BuiltView {
 public:
  explicit BuiltView(nanscope::testing::RunBuilder& builder) : view_(builder.run, builder.tensors) {}
  explicit BuiltView(RunData& rows) : view_(rows, none_) {}
  operator RunView&() { return view_; }  // NOLINT: a test hands it on as what it is
  RunView* operator->() { return &view_; }

 private:
  NoTensors none_;
  RecordingView view_;
};

}  // namespace nanscope::gui
