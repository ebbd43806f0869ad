#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gui/views/view.h"

namespace nanscope::gui {

std::unique_ptr<View> make_front_view();
std::unique_ptr<View> make_cascade_view();
std::unique_ptr<View> make_tensor_view();
std::unique_ptr<View> make_bits_view();
std::unique_ptr<View> make_requests_view();
std::unique_ptr<View> make_scales_view();
std::unique_ptr<View> make_why_view();
std::unique_ptr<View> make_what_if_view();
std::unique_ptr<View> make_kernels_view();
std::unique_ptr<View> make_tensors_view();
std::unique_ptr<View> make_headroom_view();
std::unique_ptr<View> make_pins_view();
std::unique_ptr<View> make_verify_view();
std::unique_ptr<View> make_policies_view();
std::unique_ptr<View> make_causality_view();
std::unique_ptr<View> make_training_view();
std::unique_ptr<View> make_steps_view();

/// Null when no view has that name.
std::unique_ptr<View> make_view(std::string_view name);
std::vector<std::string> view_names();

}  // namespace nanscope::gui
