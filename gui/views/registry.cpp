#include "gui/views/registry.h"

namespace nanscope::gui {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<View> (*make)();
};

constexpr Entry kEntries[] = {
    {"front", make_front_view},       {"cascade", make_cascade_view},   {"tensor", make_tensor_view},
    {"bits", make_bits_view},         {"scales", make_scales_view},     {"why", make_why_view},
    {"what-if", make_what_if_view},   {"requests", make_requests_view}, {"kernels", make_kernels_view},
    {"tensors", make_tensors_view},   {"headroom", make_headroom_view}, {"pins", make_pins_view},
    {"verify", make_verify_view},     {"policies", make_policies_view}, {"causality", make_causality_view},
    {"training", make_training_view}, {"steps", make_steps_view},
};

}  // namespace

std::unique_ptr<View> make_view(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.make();
  }
  return nullptr;
}

std::vector<std::string> view_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace nanscope::gui
