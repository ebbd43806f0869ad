#define GLFW_INCLUDE_NONE
#include <GL/gl.h>
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "gui/app.h"
#include "gui/opened_run.h"
#include "gui/platform/keys.h"
#include "gui/platform/platform.h"
#include "gui/theme.h"
#include "gui/window.h"
#include "tests/bench/bench.h"

/// bench_gui RECORDING [VIEW...]: the window's limits (docs/measurements.md) on one recording, at 1600x1000, drawn
/// without a screen by whatever OpenGL there is; with views, only theirs. Exit 1 when a limit is missed.
///
/// A frame is all that the window's thread does from one look at its input to the next, drawing included: a stall is
/// the longest one. The first frames of a program begin with fonts and shaders, before there is a window to wait for;
/// they are a row of their own and count as opening, not as stalls. Memory is what the process holds itself (RssAnon
/// and RssShmem), so without the pages of the recording that the system keeps.
namespace nanscope::gui {
namespace {

constexpr Extent kSize{1600, 1000};
constexpr int kFrames = 300;
constexpr double kFrameLimit = 33;
constexpr double kUiLimit = 4;
constexpr double kStallLimit = 50;
constexpr double kMemoryLimit = 300;
constexpr double kOpenLimit = 500;
constexpr double kLargeOpenLimit = 1000;
constexpr std::uintmax_t kLarge = 5'000'000'000;  ///< bytes: from here on it may take longer to open
constexpr std::int64_t kManyCells = 10'000'000;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

/// RssAnon and RssShmem in MB.
double own_memory() {
  std::ifstream status("/proc/self/status");
  double kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:")) {
      kilobytes += std::strtod(line.c_str() + line.find(':') + 1, nullptr);
    }
  }
  return kilobytes / 1000;
}

struct FrameTime {
  double ui = 0;
  double all = 0;
};

/// The window under measurement, and what was measured of it.
class Bench {
 public:
  Bench(std::filesystem::path file, std::vector<std::string> views)
      : file_(std::move(file)), views_(std::move(views)) {}

  int run() {
    const auto begin = Clock::now();
    platform_ = must(open_egl_platform(kSize));
    setup_.theme = *find_theme("dark");
    setup_.fonts = load_fonts(1);
    setup_.unattended = true;
    apply_style(setup_.theme, 1);
    print_head();
    if (views_.empty()) {
      measure_opening(begin);
      measure_scrubbing();
      measure_pan_and_zoom();
      measure_reopening();
      views_ = all_views();
    } else {
      open("");
      draw();  // what a program begins with is no view's
    }
    for (const std::string& view : views_) measure_view(view);
    row("memory of its own, at most", std::max(most_memory_, memory_), "MB", kMemoryLimit);
    return missed_ ? 1 : 0;
  }

 private:
  void print_head() const {
    fmt::print("{}, {:.2f} GB, at {}x{}\n\n", file_.filename().string(),
               static_cast<double>(std::filesystem::file_size(file_)) / 1e9, kSize.width, kSize.height);
    fmt::print("| {:<46} | {:>10} | {:>10} | {:<3} |\n", "measure", "value", "limit", "met");
    fmt::print("|{:-<48}|{:->12}|{:->12}|{:-<5}|\n", "", "", "", "");
  }

  void row(const std::string& what, double value, const char* unit, double limit) {
    const bool met = value <= limit;
    missed_ = missed_ || !met;
    const std::string shown = std::isinf(limit) ? "none" : fmt::format("{:g} {}", limit, unit);
    fmt::print("| {:<46} | {:>10} | {:>10} | {:<3} |\n", what, fmt::format("{:.2f} {}", value, unit), shown,
               std::isinf(limit) ? ""
               : met             ? "yes"
                                 : "NO");
    std::fflush(stdout);
  }

  FrameTime draw() {
    const auto begin = Clock::now();
    platform_->begin_frame();
    window_->frame(*platform_);
    const double ui = milliseconds_since(begin);
    platform_->end_frame();
    glFinish();  // so that the drawing is done, not queued
    const FrameTime time{ui, milliseconds_since(begin)};
    stall_ = std::max(stall_, time.all);
    memory_ = std::max(memory_, own_memory());
    return time;
  }

  void open(const std::string& view) {
    setup_.view = view;
    OpenedRun run = must(open_run(file_));  // which a session does on a thread of its own
    stall_ = 0;
    const auto begin = Clock::now();
    window_.reset();
    window_ = std::make_unique<Window>(std::move(run), setup_);
    stall_ = milliseconds_since(begin);
  }

  void settle() {
    while (!window_->settled()) {
      draw();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  static void press(int key, bool down) { give_key(key, down); }

  void measure_opening(Clock::time_point begin) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    open("");
    draw();
    row("start to the first frame: fonts, shaders, file", milliseconds_since(begin), "ms", kNone);
    stall_ = 0;
    while (!window_->has_content()) {
      draw();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const bool large = std::filesystem::file_size(file_) >= kLarge;
    row("start to the front on screen", milliseconds_since(begin), "ms", large ? kLargeOpenLimit : kOpenLimit);
    settle();
    row("start to the diagnosis and the last shade", milliseconds_since(begin), "ms", kNone);
    row("stall while opening", stall_, "ms", kStallLimit);
  }

  /// Op by op, event by event, and playing.
  void measure_scrubbing() {
    stall_ = 0;
    for (int i = 0; i < 2 * kFrames; ++i) {
      press(i % 8 == 5 ? GLFW_KEY_N : GLFW_KEY_RIGHT, i % 2 == 1);
      draw();
      press(GLFW_KEY_N, false);
      press(GLFW_KEY_RIGHT, false);
    }
    press(GLFW_KEY_SPACE, true);
    draw();
    press(GLFW_KEY_SPACE, false);
    for (int i = 0; i < kFrames; ++i) draw();
    row("stall while scrubbing and playing", stall_, "ms", kStallLimit);
  }

  /// In to single cells, along, and out again, at several places.
  void measure_pan_and_zoom() {
    open("front");
    settle();
    stall_ = 0;
    ImGuiIO& io = ImGui::GetIO();
    for (int i = 0; i < 3 * kFrames; ++i) {
      const int phase = i % 150;
      const float turn = static_cast<float>(i) * 0.02F;
      io.MousePos = ImVec2(static_cast<float>(kSize.width) * (0.55F + 0.3F * std::sin(turn)),
                           static_cast<float>(kSize.height) * (0.5F + 0.3F * std::sin(1.7F * turn)));
      io.MouseWheel = phase < 50 ? 1.0F : phase >= 100 ? -1.0F : 0.0F;
      io.MouseDown[0] = phase >= 55 && phase < 95;
      draw();
    }
    io.MouseWheel = 0;
    io.MouseDown[0] = false;
    row(fmt::format("front of {} cells, zoom and pan, worst frame", window_->cells()), stall_, "ms",
        window_->cells() >= kManyCells ? kFrameLimit : kStallLimit);
  }

  /// Another file is opened while this one is still being read: after one frame more each time, until all is done.
  void measure_reopening() {
    constexpr int kMoments = 30;
    double longest = 0;
    for (int frames = 0; frames < kMoments; ++frames) {
      open("");
      longest = std::max(longest, stall_);
      for (int i = 0; i < frames; ++i) draw();
      longest = std::max(longest, stall_);
    }
    row("stall while opening another file", longest, "ms", kStallLimit);
    settle();
  }

  void measure_view(const std::string& view) {
    most_memory_ = std::max(most_memory_, std::exchange(memory_, 0));
    open(view);
    settle();
    row(fmt::format("{}: stall until it is complete", view), stall_, "ms", kStallLimit);
    std::vector<double> ui;
    std::vector<double> all;
    for (int i = 0; i < kFrames; ++i) {
      move_mouse(i);
      const FrameTime time = draw();
      ui.push_back(time.ui);
      all.push_back(time.all);
    }
    row(fmt::format("{}: p99 of a frame", view), percentile(all, 0.99), "ms", kFrameLimit);
    row(fmt::format("{}: p99 of its UI part", view), percentile(ui, 0.99), "ms", kUiLimit);
    row(fmt::format("{}: memory", view), memory_, "MB", kMemoryLimit);
  }

  /// The mouse of frame `i`: a path over the whole window, with the wheel now and then and a drag in between.
  static void move_mouse(int i) {
    ImGuiIO& io = ImGui::GetIO();
    const float turn = static_cast<float>(i) * 0.05F;
    io.MousePos = ImVec2(static_cast<float>(kSize.width) * (0.5F + 0.4F * std::sin(turn)),
                         static_cast<float>(kSize.height) * (0.5F + 0.35F * std::sin(1.7F * turn)));
    io.MouseWheel = i % 15 == 7 ? 1.0F : i % 15 == 14 ? -1.0F : 0.0F;
    io.MouseDown[0] = i % 60 > 40 && i % 60 < 55;
  }

  std::filesystem::path file_;
  std::vector<std::string> views_;
  std::unique_ptr<Platform> platform_;
  WindowSetup setup_;
  std::unique_ptr<Window> window_;
  double stall_ = 0;
  double memory_ = 0;       ///< since the view was opened
  double most_memory_ = 0;  ///< before
  bool missed_ = false;
};

}  // namespace
}  // namespace nanscope::gui

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_gui RECORDING [VIEW...]\n");
    return 2;
  }
  std::error_code error;
  static_cast<void>(std::filesystem::file_size(argv[1], error));
  if (error) {
    fmt::print(stderr, "bench_gui: {}: {}\n", argv[1], error.message());
    return 2;
  }
  return nanscope::gui::Bench(argv[1], {argv + 2, argv + argc}).run();
}
