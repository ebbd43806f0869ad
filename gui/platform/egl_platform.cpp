#define GL_GLEXT_PROTOTYPES
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>
#include <fmt/format.h>
#include <imgui.h>

#include "gui/platform/keys.h"
#include "gui/platform/renderer.h"

namespace nanscope::gui {
namespace {

constexpr float kFrameSeconds = 1.0F / 60.0F;

/// A current OpenGL context without a surface.
class EglContext {
 public:
  EglContext() = default;
  EglContext(const EglContext&) = delete;
  EglContext& operator=(const EglContext&) = delete;
  ~EglContext() {
    if (display_ == EGL_NO_DISPLAY) return;
    eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
    if (context_ != EGL_NO_CONTEXT) eglDestroyContext(display_, context_);
    eglTerminate(display_);
  }

  Status open() {
    const auto get_display =
        reinterpret_cast<PFNEGLGETPLATFORMDISPLAYEXTPROC>(eglGetProcAddress("eglGetPlatformDisplayEXT"));
    if (get_display == nullptr) return failed("has no platform displays");
    display_ = get_display(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
    if (display_ == EGL_NO_DISPLAY || !eglInitialize(display_, nullptr, nullptr)) {
      return failed("has no surfaceless display");
    }
    const EGLint wanted[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_NONE};
    EGLConfig config = nullptr;
    EGLint configs = 0;
    if (!eglBindAPI(EGL_OPENGL_API) || !eglChooseConfig(display_, wanted, &config, 1, &configs) || configs == 0) {
      return failed("offers no OpenGL");
    }
    const EGLint version[] = {
        EGL_CONTEXT_MAJOR_VERSION,           3,       EGL_CONTEXT_MINOR_VERSION, 3, EGL_CONTEXT_OPENGL_PROFILE_MASK,
        EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT, EGL_NONE};
    context_ = eglCreateContext(display_, config, EGL_NO_CONTEXT, version);
    if (context_ == EGL_NO_CONTEXT || !eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, context_)) {
      return failed("offers no OpenGL 3.3");
    }
    return {};
  }

 private:
  static Status failed(const char* what) {
    return fail(fmt::format("no picture without a screen: EGL {} (0x{:x}; are libegl-mesa0 and libgl1-mesa-dri there?)",
                            what, eglGetError()));
  }

  EGLDisplay display_ = EGL_NO_DISPLAY;
  EGLContext context_ = EGL_NO_CONTEXT;
};

/// A framebuffer object of one colour buffer, bound while it lives.
class Framebuffer {
 public:
  explicit Framebuffer(Extent size) {
    glGenFramebuffers(1, &buffer_);
    glGenRenderbuffers(1, &color_);
    glBindRenderbuffer(GL_RENDERBUFFER, color_);
    glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, size.width, size.height);
    glBindFramebuffer(GL_FRAMEBUFFER, buffer_);
    glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, color_);
  }
  Framebuffer(const Framebuffer&) = delete;
  Framebuffer& operator=(const Framebuffer&) = delete;
  ~Framebuffer() {
    glDeleteFramebuffers(1, &buffer_);
    glDeleteRenderbuffers(1, &color_);
  }
  bool complete() const { return glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE; }

 private:
  GLuint buffer_ = 0;
  GLuint color_ = 0;
};

class EglPlatform final : public Platform {
 public:
  EglPlatform(Extent size, Drawing drawing) : size_(size), drawing_(drawing) {}

  Status open() {
    if (Status opened = context_.open(); !opened) return opened;
    framebuffer_ = std::make_unique<Framebuffer>(size_);
    if (!framebuffer_->complete()) {
      return fail(fmt::format("OpenGL gives no picture of {}x{} pixels", size_.width, size_.height));
    }
    Result<std::unique_ptr<Renderer>> renderer = Renderer::make();
    if (!renderer) return tl::unexpected(renderer.error());
    renderer_ = std::move(*renderer);
    name_keys();
    return {};
  }

  Extent size() const override { return size_; }
  float scale() const override { return 1; }
  PlatformEvents poll(double) override { return {synthetic_.closing(), false, synthetic_.take_dropped()}; }

  void begin_frame() override {
    renderer_->begin();
    ImGuiIO& io = ImGui::GetIO();
    io.DisplaySize = ImVec2(static_cast<float>(size_.width), static_cast<float>(size_.height));
    io.DeltaTime = kFrameSeconds;
    synthetic_.apply();
    ImGui::NewFrame();
  }
  void end_frame() override {
    if (drawing_ == Drawing::each_frame) {
      renderer_->end(size_, ground_);
    } else {
      ImGui::Render();
    }
  }
  Picture read_pixels() override {
    if (drawing_ == Drawing::when_read) Renderer::draw(size_, ground_);
    return read_framebuffer(size_);
  }
  std::string clipboard() override { return clipboard_; }
  void set_title(const std::string&) override {}
  void set_clipboard(const std::string& text) override { clipboard_ = text; }
  void resize(Extent size) override {
    size_ = size;
    framebuffer_.reset();
    framebuffer_ = std::make_unique<Framebuffer>(size);
  }

 private:
  Extent size_;
  Drawing drawing_;
  std::string clipboard_;
  EglContext context_;
  std::unique_ptr<Framebuffer> framebuffer_;
  std::unique_ptr<Renderer> renderer_;
};

}  // namespace

Result<std::unique_ptr<Platform>> open_egl_platform(Extent size, Drawing drawing) {
  auto platform = std::make_unique<EglPlatform>(size, drawing);
  if (Status opened = platform->open(); !opened) return tl::unexpected(opened.error());
  return platform;
}

}  // namespace nanscope::gui
