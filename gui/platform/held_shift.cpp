#include "gui/platform/held_shift.h"

#ifdef NANSCOPE_X11
#include <X11/Xlib.h>
#include <dlfcn.h>
#endif

namespace nanscope::gui {

#ifdef NANSCOPE_X11
bool shift_is_held() {
  // Looked up, because a GLFW made for Wayland has no such function.
  using GetDisplay = Display* (*)();
  const auto get_display = reinterpret_cast<GetDisplay>(dlsym(RTLD_DEFAULT, "glfwGetX11Display"));
  Display* display = get_display != nullptr ? get_display() : nullptr;
  if (display == nullptr) return false;
  Window root = 0;
  Window child = 0;
  int x = 0;
  int y = 0;
  unsigned mask = 0;
  XQueryPointer(display, DefaultRootWindow(display), &root, &child, &x, &y, &x, &y, &mask);
  return (mask & ShiftMask) != 0;
}
#else
bool shift_is_held() { return false; }
#endif

}  // namespace nanscope::gui
