#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <fmt/format.h>
#include <imgui.h>

#include <cstdlib>
#include <utility>

#include "gui/platform/held_shift.h"
#include "gui/platform/renderer.h"

namespace nanscope::gui {
namespace {

Status glfw_failure(const char* what) {
  const char* reason = nullptr;
  glfwGetError(&reason);
  return fail(fmt::format("{} ({}); --screenshot needs no screen", what, reason ? reason : "no reason given"));
}

/// The library and one window of it.
class GlfwWindow {
 public:
  GlfwWindow() = default;
  GlfwWindow(const GlfwWindow&) = delete;
  GlfwWindow& operator=(const GlfwWindow&) = delete;
  ~GlfwWindow() {
    if (window_ != nullptr) glfwDestroyWindow(window_);
    if (started_) glfwTerminate();
  }

  Status open(Extent size, const std::string& title) {
    // Without either, a library of Wayland's would complain on standard error.
    const bool display = std::getenv("DISPLAY") != nullptr || std::getenv("WAYLAND_DISPLAY") != nullptr;
    if (!display)
      return fail(
          "no window without a display: neither DISPLAY nor WAYLAND_DISPLAY is set; --screenshot "
          "needs no screen");
    started_ = glfwInit() == GLFW_TRUE;
    if (!started_) return glfw_failure("no window without a display");
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
    glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
    glfwWindowHint(GLFW_SCALE_TO_MONITOR, GLFW_TRUE);
    glfwWindowHint(GLFW_VISIBLE, GLFW_FALSE);
    // As which a desktop knows the window, whatever its title: gui/desktop/nanscope.desktop.
    glfwWindowHintString(GLFW_X11_CLASS_NAME, "nanscope");
    glfwWindowHintString(GLFW_X11_INSTANCE_NAME, "nanscope");
    window_ = glfwCreateWindow(size.width, size.height, title.c_str(), nullptr, nullptr);
    if (window_ == nullptr) return glfw_failure("no window with OpenGL 3.3");
    glfwMakeContextCurrent(window_);
    glfwSwapInterval(1);
    return {};
  }
  GLFWwindow* get() const { return window_; }

 private:
  bool started_ = false;
  GLFWwindow* window_ = nullptr;
};

class WindowPlatform final : public Platform {
 public:
  ~WindowPlatform() override {
    if (input_) ImGui_ImplGlfw_Shutdown();
  }

  Status open(Extent size, const std::string& title) {
    if (Status opened = window_.open(size, title); !opened) return opened;
    Result<std::unique_ptr<Renderer>> renderer = Renderer::make();
    if (!renderer) return tl::unexpected(renderer.error());
    renderer_ = std::move(*renderer);
    glfwSetWindowUserPointer(window_.get(), this);
    glfwSetDropCallback(window_.get(), [](GLFWwindow* window, int count, const char** paths) {
      auto& self = *static_cast<WindowPlatform*>(glfwGetWindowUserPointer(window));
      for (int i = 0; i < count; ++i) self.dropped_.emplace_back(paths[i]);
      self.dropped_with_shift_ = shift_is_held();
    });
    input_ = ImGui_ImplGlfw_InitForOpenGL(window_.get(), true);
    if (!input_) return fail("the window gives no input");
    glfwSetKeyCallback(window_.get(), [](GLFWwindow* window, int key, int code, int action, int modifiers) {
      static_cast<WindowPlatform*>(glfwGetWindowUserPointer(window))->take_key({key, code, action, modifiers});
    });
    return {};
  }

  Extent size() const override {
    Extent size;
    glfwGetFramebufferSize(window_.get(), &size.width, &size.height);
    return size;
  }
  float scale() const override {
    float x = 1;
    glfwGetWindowContentScale(window_.get(), &x, nullptr);
    return x;
  }
  PlatformEvents poll(double seconds) override {
    // With its first frame in it: fonts and shaders are ready, so nobody waits at an empty window.
    if (drawn_ && !shown_) {
      glfwShowWindow(window_.get());
      shown_ = true;
    }
    // Not in end_frame(): the pixels of a frame can be read until it is swapped.
    if (std::exchange(drawn_, false)) glfwSwapBuffers(window_.get());
    const double start = glfwGetTime();
    glfwWaitEventsTimeout(seconds);
    const bool input = glfwGetTime() - start < seconds;
    for (std::filesystem::path& file : synthetic_.take_dropped()) dropped_.push_back(std::move(file));
    const bool close = glfwWindowShouldClose(window_.get()) == GLFW_TRUE || synthetic_.closing();
    return {close, input, std::exchange(dropped_, {}), std::exchange(dropped_with_shift_, false)};
  }
  void begin_frame() override {
    renderer_->begin();
    ImGui_ImplGlfw_NewFrame();
    synthetic_.apply();
    ImGui::NewFrame();
  }
  void end_frame() override {
    renderer_->end(size(), ground_);
    drawn_ = true;
    pressed_ = false;
    for (const Key& key : std::exchange(released_, {})) pass_on(key);
  }
  Picture read_pixels() override { return read_framebuffer(size()); }
  std::string clipboard() override {
    const char* text = glfwGetClipboardString(window_.get());
    return text ? text : "";
  }
  void set_title(const std::string& title) override { glfwSetWindowTitle(window_.get(), title.c_str()); }
  void set_clipboard(const std::string& text) override { glfwSetClipboardString(window_.get(), text.c_str()); }
  void resize(Extent size) override { glfwSetWindowSize(window_.get(), size.width, size.height); }

 private:
  struct Key {
    int key;
    int code;
    int action;
    int modifiers;
  };

  void pass_on(const Key& key) {
    ImGui_ImplGlfw_KeyCallback(window_.get(), key.key, key.code, key.action, key.modifiers);
  }

  /// ImGui sees keys once a frame: what is released after a press that no frame has seen is released after the next
  /// one, modifiers too, which may have been pressed a frame earlier.
  void take_key(const Key& key) {
    if (key.action == GLFW_PRESS) pressed_ = true;
    if (key.action == GLFW_RELEASE && pressed_) {
      released_.push_back(key);
    } else {
      pass_on(key);
    }
  }

  GlfwWindow window_;
  std::unique_ptr<Renderer> renderer_;
  bool input_ = false;
  bool drawn_ = false;
  bool shown_ = false;
  bool pressed_ = false;       ///< a key, since the last frame
  std::vector<Key> released_;  ///< to be passed on after the next one
  std::vector<std::filesystem::path> dropped_;
  bool dropped_with_shift_ = false;
};

}  // namespace

Result<std::unique_ptr<Platform>> open_window_platform(Extent size, const std::string& title) {
  auto platform = std::make_unique<WindowPlatform>();
  if (Status opened = platform->open(size, title); !opened) return tl::unexpected(opened.error());
  return platform;
}

}  // namespace nanscope::gui
