#include "gui/platform/renderer.h"

#include <GL/gl.h>
#include <backends/imgui_impl_opengl3.h>
#include <imgui.h>

#include <algorithm>

namespace nanscope::gui {

Result<std::unique_ptr<Renderer>> Renderer::make() {
  std::unique_ptr<Renderer> made(new Renderer);
  made->context_ = ImGui::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  made->backend_ = ImGui_ImplOpenGL3_Init("#version 130");
  if (!made->backend_) return fail("OpenGL 3.3 cannot be loaded (is libgl1 installed?)");
  return made;
}

Renderer::~Renderer() {
  if (backend_) ImGui_ImplOpenGL3_Shutdown();
  ImGui::DestroyContext(context_);
}

void Renderer::begin() { ImGui_ImplOpenGL3_NewFrame(); }

void Renderer::end(Extent size, Color ground) {
  ImGui::Render();
  draw(size, ground);
}

void Renderer::draw(Extent size, Color ground) {
  const auto part = [](std::uint8_t channel) { return static_cast<float>(channel) / 255; };
  glViewport(0, 0, size.width, size.height);
  glClearColor(part(ground.r), part(ground.g), part(ground.b), 1);
  glClear(GL_COLOR_BUFFER_BIT);
  if (ImDrawData* drawn = ImGui::GetDrawData()) ImGui_ImplOpenGL3_RenderDrawData(drawn);
}

Picture read_framebuffer(Extent size) {
  Picture picture{size, {}};
  const std::size_t row = static_cast<std::size_t>(size.width) * 4;
  picture.rgba.resize(row * static_cast<std::size_t>(size.height));
  glPixelStorei(GL_PACK_ALIGNMENT, 1);
  glReadPixels(0, 0, size.width, size.height, GL_RGBA, GL_UNSIGNED_BYTE, picture.rgba.data());
  const auto line = [&](int y) { return picture.rgba.begin() + static_cast<std::ptrdiff_t>(row) * y; };
  for (int y = 0; y < size.height / 2; ++y) std::swap_ranges(line(y), line(y + 1), line(size.height - 1 - y));
  return picture;
}

void renew_letters() {
  ImGui_ImplOpenGL3_DestroyFontsTexture();
  ImGui_ImplOpenGL3_CreateFontsTexture();
}

}  // namespace nanscope::gui
