#include <GL/gl.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/recording/reader.h"
#include "gui/app.h"
#include "gui/platform/platform.h"
#include "gui/theme.h"
#include "gui/window.h"

/// bench_gui RECORDING: how long the window takes to show a recording, and each view's frames while the mouse
/// moves over it, zooms and drags, drawn at 1600x1000 without a screen by whatever OpenGL there is
/// (docs/measurements.md names it). A frame is its UI part (ImGui, on the window's thread) and the drawing. Exit 1 when
/// a limit is missed.
namespace nanscope::gui {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Extent kSize{1600, 1000};
constexpr int kFrames = 300;
constexpr double kFrameLimit = 33;
constexpr double kUiLimit = 4;
constexpr double kOpenLimit = 500;

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(2);
}

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

struct FrameTime {
  double ui = 0;
  double all = 0;
};

FrameTime draw(Platform& platform, Window& window) {
  const auto begin = Clock::now();
  platform.begin_frame();
  window.frame(platform);
  const double ui = milliseconds_since(begin);
  platform.end_frame();
  glFinish();  // so that the drawing is done, not queued
  return {ui, milliseconds_since(begin)};
}

/// The mouse of frame `i`: a path over the whole window, with the wheel now and then and a drag in between.
void move_mouse(int i) {
  ImGuiIO& io = ImGui::GetIO();
  const float turn = static_cast<float>(i) * 0.05F;
  io.MousePos = ImVec2(static_cast<float>(kSize.width) * (0.5F + 0.4F * std::sin(turn)),
                       static_cast<float>(kSize.height) * (0.5F + 0.35F * std::sin(1.7F * turn)));
  io.MouseWheel = i % 15 == 7 ? 1.0F : i % 15 == 14 ? -1.0F : 0.0F;
  io.MouseDown[0] = i % 60 > 40 && i % 60 < 55;
}

bool bench_view(Platform& platform, const std::filesystem::path& file, WindowSetup setup, const std::string& view) {
  setup.view = view;
  setup.unattended = true;
  const auto begin = Clock::now();
  Window window(must(Recording::open(file)), setup);
  double first = 0;
  double longest = 0;
  while (!window.settled()) {
    longest = std::max(longest, draw(platform, window).all);
    if (first == 0) first = milliseconds_since(begin);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const double settled = milliseconds_since(begin);
  std::vector<double> ui;
  std::vector<double> all;
  for (int i = 0; i < kFrames; ++i) {
    move_mouse(i);
    const FrameTime time = draw(platform, window);
    ui.push_back(time.ui);
    all.push_back(time.all);
  }
  const double ui99 = percentile(ui, 0.99);
  const double all99 = percentile(all, 0.99);
  // What a view runs in the background by itself (counterfactuals) is not what opening takes.
  const bool opens = view == "what-if" || settled <= kOpenLimit;
  const bool ok = all99 <= kFrameLimit && ui99 <= kUiLimit && opens;
  fmt::print("| {:<12} | {:>9.1f} | {:>9.0f} | {:>9.1f} | {:>9.2f} | {:>9.1f} | {:>9.1f} | {:<3} |\n",
             view.empty() ? "whole window" : view, first, settled, longest, ui99, all99, percentile(all, 1.0),
             ok ? "ok" : "NO");
  return ok;
}

int bench(const std::filesystem::path& file) {
  const auto platform = must(open_egl_platform(kSize));
  WindowSetup setup;
  setup.theme = *find_theme("dark");
  setup.fonts = load_fonts(1);
  apply_style(setup.theme, 1);
  fmt::print(
      "{} at {}x{}, {} frames a view, milliseconds; limits: all content {}, p99 of a frame {}, of its UI part {}\n\n",
      file.filename().string(), kSize.width, kSize.height, kFrames, kOpenLimit, kFrameLimit, kUiLimit);
  fmt::print("| {:<12} | {:>9} | {:>9} | {:>9} | {:>9} | {:>9} | {:>9} | {:<3} |\n", "view", "1st frame", "content",
             "stall", "UI p99", "frame p99", "worst", "ok");
  bool ok = bench_view(*platform, file, setup, "");
  for (const std::string& view : all_views()) ok = bench_view(*platform, file, setup, view) && ok;
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace nanscope::gui

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_gui RECORDING\n");
    return 2;
  }
  return nanscope::gui::bench(argv[1]);
}
