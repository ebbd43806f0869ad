#include "gui/app.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <system_error>
#include <thread>

#include "core/files/output_file.h"
#include "gui/script_player.h"
#include "gui/session.h"
#include "gui/views/registry.h"

namespace nanscope::gui {
namespace {

constexpr int kLeastSide = 200;
constexpr int kMostSide = 8192;
constexpr int kAppSettlingFrames = 4;  ///< layout depends on what the frame before measured
constexpr int kLivelyFrames = 30;      ///< after input: tooltips and hovering come with a delay
constexpr double kAppFrameSeconds = 1.0 / 120.0;
constexpr double kBusySeconds = 1.0 / 30.0;  ///< all that moves is a bar of progress
constexpr double kIdleSeconds = 0.5;
/// Between two looks at whether a picture is ready: drawing takes time from what is waited for.
constexpr auto kShortestPause = std::chrono::milliseconds(1);
constexpr auto kLongestPause = std::chrono::milliseconds(60);
constexpr auto kPictureDeadline = std::chrono::minutes(5);

/// Draws until all that was asked for is there.
Status settle(Session& session, const std::stop_token& stop) {
  const auto deadline = std::chrono::steady_clock::now() + kPictureDeadline;
  auto pause = kShortestPause;
  for (int settled = 0; settled < kAppSettlingFrames;) {
    session.frame(0);
    settled = session.settled() ? settled + 1 : 0;
    if (settled == 0) std::this_thread::sleep_for(pause);
    if (stop.stop_requested()) return fail("stopped");
    pause = std::min(pause + kShortestPause, kLongestPause);
    if (std::chrono::steady_clock::now() > deadline) return fail("the run takes too long to read for a picture");
  }
  return {};
}

/// What is read is never written.
OutputOptions output_of(const AppOptions& options) {
  OutputOptions output{.replace = options.force};
  for (const std::filesystem::path& read : {options.file, options.beside, options.check.model, options.check.adapter}) {
    if (!read.empty()) output.inputs.push_back(read);
  }
  if (options.script) output.inputs.push_back(*options.script);
  return output;
}

/// Before the work: neither file is one that may not be replaced, and they are two.
Status check_files(const AppOptions& options) {
  if (options.csv && options.screenshot && options.csv->lexically_normal() == options.screenshot->lexically_normal()) {
    return fail(options.csv->string() + ": named for the picture and for the table");
  }
  for (const auto& file : {options.csv, options.screenshot}) {
    if (!file) continue;
    if (Status allowed = check_output(*file, output_of(options)); !allowed) return allowed;
  }
  return {};
}

Status write_table(const Window& window, const AppOptions& options) {
  const std::string& view = options.view;
  const std::optional<TableMaker> maker = window.table(view);
  if (maker) return write_output(*options.csv, to_csv((*maker)()), output_of(options));
  const std::string why = window.error();
  return fail(fmt::format("{} has no table{}{}", view, why.empty() ? " for this run" : ": ", why));
}

/// What was asked for instead of a window.
Status leave_files(Session& session, const AppOptions& options) {
  if (Status settled = settle(session, options.stop); !settled) return settled;
  if (const std::string problem = session.window() ? session.window()->check_problem() : ""; !problem.empty())
    return fail(problem);
  if (options.csv) {
    if (Status written = write_table(*session.window(), options); !written) return written;
  }
  if (!options.screenshot) return {};
  const auto png = encode_png(session.platform().read_pixels());
  if (!png) return tl::unexpected(png.error());
  return write_output(*options.screenshot, *png, output_of(options));
}

/// Draws while something moves; else sleeps until there is input, so that an idle window costs nothing.
void run_until_closed(Session& session, const std::stop_token& stop) {
  int lively = kLivelyFrames;
  const auto pause = [&] {
    if (lively > 0 || session.animates()) return kAppFrameSeconds;
    return session.busy() ? kBusySeconds : kIdleSeconds;
  };
  while (!stop.stop_requested() && session.frame(pause())) {
    lively = session.had_input() ? kLivelyFrames : std::max(0, lively - 1);
  }
}

/// A dump may take a while to scan: with a window there is something to see meanwhile.
bool opens_in_window(const AppOptions& options) {
  std::error_code ignored;
  return options.needs_screen() && !options.script && !options.file.empty() && options.beside.empty() &&
         !scenarios::looks_like_recording(options.file.string()) && std::filesystem::exists(options.file, ignored);
}

/// A session as the options want it.
Result<std::unique_ptr<Session>> open_session(const AppOptions& options) {
  const std::vector<std::string> views = view_names();
  for (const std::string& view : {options.view, options.tab}) {
    if (view.empty() || std::find(views.begin(), views.end(), view) != views.end()) continue;
    return fail(fmt::format("there is no view '{}': expected one of {}", view, fmt::join(views, ", ")));
  }
  if (options.csv && options.view.empty()) {
    return fail(fmt::format("a table is of one view: name it by --view, one of {}", fmt::join(views, ", ")));
  }
  if (options.csv && options.file.empty()) return fail("a table needs a recording or a dump that it is of");
  if (!options.theme.empty() && !find_theme(options.theme)) {
    return fail(fmt::format("there is no theme '{}': expected dark or light", options.theme));
  }
  if (!options.palette.empty() && !find_vision(options.palette)) {
    return fail(fmt::format("there is no palette '{}': expected usual, protan, deutan or tritan", options.palette));
  }
  if (!options.check.model.empty()) {
    if (options.file.empty()) return fail("a model needs a dump that is checked against it: name that first");
    if (const auto spec = read_model_spec(options.check.model); !spec) return tl::unexpected(spec.error());
  }
  std::optional<OpenedRun> run;
  if (opens_in_window(options)) {
    Result<std::unique_ptr<Session>> session = Session::open(options, std::nullopt, {});
    if (session) (*session)->want(options.file, options.place);
    return session;
  }
  if (!options.file.empty()) {
    Result<OpenedRun> opened = open_run(options.file, {}, {}, options.follow_links);
    if (!opened) return tl::unexpected(opened.error());
    run = std::move(*opened);
  }
  if (!options.beside.empty()) {
    if (!run) return fail("a run stands beside another one: name that one first");
    // The store's thread opens it again: a dump is scanned twice only where nobody could read an error on screen.
    if (options.unattended() || scenarios::looks_like_recording(options.beside.string())) {
      if (const Result<OpenedRun> opened = open_run(options.beside); !opened) return tl::unexpected(opened.error());
    }
  }
  Selection start;
  if (!options.place.empty()) {
    if (!run) return fail("a place needs a recording or a dump that it is in");
    Result<Selection> found = select(run->run->view(), options.place);
    if (!found) return tl::unexpected(found.error());
    start = std::move(*found);
  }
  return Session::open(options, std::move(run), std::move(start));
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
  if (Status allowed = check_files(options); !allowed) return allowed;
  const Result<std::unique_ptr<Session>> session = open_session(options);
  if (!session) return tl::unexpected(session.error());
  if (options.unattended()) return leave_files(**session, options);
  run_until_closed(**session, options.stop);
  return {};
}

Result<std::vector<std::byte>> take_picture(AppOptions options) {
  options.unseen = true;
  const Result<std::unique_ptr<Session>> session = open_session(options);
  if (!session) return tl::unexpected(session.error());
  if (Status settled = settle(**session, options.stop); !settled) return tl::unexpected(settled.error());
  return encode_png((*session)->platform().read_pixels());
}

Result<ScriptEnd> run_script(const AppOptions& options, const std::function<void(std::string_view)>& say) {
  const Result<Script> script = read_script(*options.script);
  if (!script) return tl::unexpected(script.error());
  const Result<std::unique_ptr<Session>> session = open_session(options);
  if (!session) return tl::unexpected(session.error());
  const Status played =
      ScriptPlayer(**session, options.on_screen, say, {output_of(options), options.stop}).play(*script);
  return ScriptEnd{played ? std::string() : played.error().message};
}

}  // namespace nanscope::gui
