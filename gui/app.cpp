#include "gui/app.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <imgui.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <thread>

#include "gui/recent_files.h"
#include "gui/start_screen.h"
#include "gui/views/registry.h"
#include "gui/window.h"

namespace nanscope::gui {
namespace {

constexpr int kLeastSide = 200;
constexpr int kMostSide = 8192;
constexpr int kSettlingFrames = 4;  ///< layout depends on what the frame before measured
constexpr int kLivelyFrames = 30;   ///< after input: tooltips and hovering come with a delay
constexpr double kFrameSeconds = 1.0 / 120.0;
constexpr double kIdleSeconds = 0.5;
/// Between two looks at whether a picture is ready: drawing takes time from what is waited for.
constexpr auto kShortestPause = std::chrono::milliseconds(1);
constexpr auto kLongestPause = std::chrono::milliseconds(60);
constexpr auto kPictureDeadline = std::chrono::minutes(5);

/// What everything is drawn with, and a window for it; the start screen while there is no recording.
/// Both go before what they are drawn with.
struct Session {
  std::unique_ptr<Platform> platform;
  WindowSetup setup;
  std::unique_ptr<Window> window;
  std::unique_ptr<StartScreen> start;

  bool settled() const { return !window || window->settled(); }
  bool busy() const { return window ? window->busy() : start->busy(); }
};

void show(Session& session, Recording recording) {
  // A picture leaves no trace of what was looked at.
  if (!session.setup.unattended) remember(recent_files_path(), recording.path());
  session.window = std::make_unique<Window>(std::move(recording), session.setup);
  session.start.reset();
}

Result<Session> open_session(const AppOptions& options, std::optional<Recording> recording, Selection start) {
  Session session;
  const std::string title = recording ? "nanscope \u2013 " + options.file.filename().string() : "nanscope";
  Result<std::unique_ptr<Platform>> platform =
      options.screenshot ? open_egl_platform(options.size) : open_window_platform(options.size, title);
  if (!platform) return tl::unexpected(platform.error());
  session.platform = std::move(*platform);
  session.setup.scale = session.platform->scale();
  session.setup.theme = *find_theme(options.theme);
  session.setup.fonts = load_fonts(session.setup.scale);
  session.setup.view = options.view;
  session.setup.tab = options.tab;
  session.setup.start = std::move(start);
  session.setup.unattended = options.screenshot.has_value();
  apply_style(session.setup.theme, session.setup.scale);
  if (recording) {
    show(session, std::move(*recording));
  } else {
    session.start = std::make_unique<StartScreen>(session.setup.theme, session.setup.fonts, session.setup.scale);
  }
  return session;
}

void draw_frame(Session& session) {
  session.platform->begin_frame();
  if (session.window) {
    session.window->frame(*session.platform);
  } else {
    session.start->frame(*session.platform);
  }
  session.platform->end_frame();
}

Status take_picture(Session& session, const std::filesystem::path& path) {
  const auto deadline = std::chrono::steady_clock::now() + kPictureDeadline;
  auto pause = kShortestPause;
  for (int settled = 0; settled < kSettlingFrames;) {
    draw_frame(session);
    settled = session.settled() ? settled + 1 : 0;
    if (settled == 0) std::this_thread::sleep_for(pause);
    pause = std::min(pause + kShortestPause, kLongestPause);
    if (std::chrono::steady_clock::now() > deadline) return fail("the recording takes too long to read for a picture");
  }
  return write_png(path, session.platform->read_pixels());
}

/// Shows another recording, the last one that was dropped or chosen.
void open_next(Session& session, const std::vector<std::filesystem::path>& dropped) {
  std::optional<std::filesystem::path> next;
  if (session.start) next = session.start->take_choice();
  if (!dropped.empty()) next = dropped.back();
  if (!next) return;
  Result<Recording> recording = Recording::open(*next);
  if (recording) {
    session.setup.start = {};
    show(session, std::move(*recording));
  } else if (session.window) {
    session.window->say_error(recording.error().message);
  } else {
    session.start->say_error(recording.error().message);
  }
}

/// Draws while something moves; else sleeps until there is input, so that an idle window costs nothing.
void run_until_closed(Session& session) {
  int lively = kLivelyFrames;
  for (;;) {
    const bool moving = lively > 0 || session.busy();
    const PlatformEvents events = session.platform->poll(moving ? kFrameSeconds : kIdleSeconds);
    if (events.close) return;
    open_next(session, events.dropped);
    lively = events.input || !events.dropped.empty() ? kLivelyFrames : std::max(0, lively - 1);
    draw_frame(session);
  }
}

}  // namespace

std::vector<std::string> all_views() { return view_names(); }

Result<Extent> parse_size(const std::string& text) {
  Extent size;
  const char* end = text.data() + text.size();
  const auto width = std::from_chars(text.data(), end, size.width);
  if (width.ec == std::errc{} && width.ptr != end && *width.ptr == 'x') {
    const auto height = std::from_chars(width.ptr + 1, end, size.height);
    const auto sensible = [](int side) { return side >= kLeastSide && side <= kMostSide; };
    if (height.ec == std::errc{} && height.ptr == end && sensible(size.width) && sensible(size.height)) return size;
  }
  return fail(fmt::format("'{}' is no size: expected WIDTHxHEIGHT, each from {} to {}", text, kLeastSide, kMostSide));
}

Status run_app(const AppOptions& options) {
  const std::vector<std::string> views = view_names();
  for (const std::string& view : {options.view, options.tab}) {
    if (view.empty() || std::find(views.begin(), views.end(), view) != views.end()) continue;
    return fail(fmt::format("there is no view '{}': expected one of {}", view, fmt::join(views, ", ")));
  }
  if (!find_theme(options.theme)) {
    return fail(fmt::format("there is no theme '{}': expected dark or light", options.theme));
  }
  std::optional<Recording> recording;
  if (!options.file.empty()) {
    Result<Recording> opened = Recording::open(options.file);
    if (!opened) return tl::unexpected(opened.error());
    recording = std::move(*opened);
  }
  Selection start;
  if (!options.place.empty()) {
    if (!recording) return fail("a place needs a recording that it is in");
    Result<Selection> found = select(*recording, options.place);
    if (!found) return tl::unexpected(found.error());
    start = std::move(*found);
  }
  Result<Session> session = open_session(options, std::move(recording), std::move(start));
  if (!session) return tl::unexpected(session.error());
  if (options.screenshot) return take_picture(*session, *options.screenshot);
  run_until_closed(*session);
  return {};
}

}  // namespace nanscope::gui
