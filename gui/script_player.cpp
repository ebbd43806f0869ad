#include "gui/script_player.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "core/files/output_file.h"
#include "gui/export/new_file.h"

namespace nanscope::gui {
namespace {

namespace fs = std::filesystem;

constexpr double kFrameSeconds = 1.0 / 120.0;
constexpr int kSettlingFrames = 4;  ///< layout depends on what the frame before measured
constexpr int kStillFrames = 30;    ///< so long nothing moves before an expectation has failed
constexpr int kDragFrames = 8;
constexpr float kPieceGap = 1.5F;                      ///< pixels; letters begin at whole ones
constexpr auto kPause = std::chrono::milliseconds(1);  ///< for the thread that is waited for
constexpr auto kPatience = std::chrono::seconds(20);   ///< on a screen, for whoever acts there
constexpr auto kLongest = std::chrono::minutes(5);

std::string shown_place(const Place& place) { return place.op.empty() ? "nothing" : to_string(place); }

}  // namespace

ScriptPlayer::ScriptPlayer(Session& session, bool on_screen, Say say, ScriptFiles files)
    : session_(session), on_screen_(on_screen), say_(std::move(say)), files_(std::move(files)) {
  listen_to_drawing(this);
}

/// Words are drawn in pieces where some of their letters have another colour.
void ScriptPlayer::on_text(Area where, std::string_view words) {
  if (!texts_.empty()) {
    Drawn& last = texts_.back();
    const bool goes_on = last.where.y == where.y && last.where.height == where.height &&
                         std::abs(last.where.right() - where.x) < kPieceGap;
    if (goes_on) {
      last.words += words;
      last.where.width = where.right() - last.where.x;
      return;
    }
  }
  texts_.push_back({where, std::string(words)});
}

Status ScriptPlayer::play(const Script& script) {
  Status done = frames(kSettlingFrames);
  for (const ScriptStep& step : script.steps) {
    if (done) done = run(step);
    if (done) {
      if (step.verb == Verb::close) return done;
      continue;
    }
    std::string message = fmt::format("{}:{}: {}", script.path.string(), step.line, done.error().message);
    if (files_.stop.stop_requested()) return done;
    const std::vector<fs::path> here{fs::path()};
    const auto seen = write_new_file(here, fmt::format("{}-{}", script.path.filename().string(), step.line), "png",
                                     [this](OutputFile& file) -> Status {
                                       const auto png = encode_png(session_.platform().read_pixels());
                                       return png ? file.write(*png) : tl::unexpected(png.error());
                                     });
    if (seen) message += fmt::format(" (see {})", seen->string());
    return fail(message);
  }
  return done;
}

Status ScriptPlayer::run(const ScriptStep& step) {
  SyntheticInput& input = session_.platform().synthetic();
  switch (step.verb) {
    case Verb::select:
      return select(step);
    case Verb::view: {
      const Result<Window*> shown = window();
      if (!shown) return tl::unexpected(shown.error());
      if (!(*shown)->show_view(step.words)) return fail(fmt::format("there is no view '{}' to show", step.words));
      return frames(2);
    }
    case Verb::key:
      return press(step.press);
    case Verb::type:
      input.type(step.words);
      return frames(2);
    case Verb::click:
      return click(step);
    case Verb::move:
    case Verb::wheel:
      return wheel(step);
    case Verb::drag_to:
    case Verb::drag_by:
      return drag(step);
    case Verb::drop:
      return drop(step);
    case Verb::resize:
      session_.platform().resize(step.size);
      return frames(kSettlingFrames);
    case Verb::clipboard:
      session_.platform().set_clipboard(step.words);
      return {};
    case Verb::wait_settled:
      return settle();
    case Verb::wait_seconds:
      return wait(step.amount);
    case Verb::picture:
      return picture(step.words);
    case Verb::where:
      return where(step);
    case Verb::close:
      input.close();
      return {};
    default:
      return expect(step);
  }
}

Status ScriptPlayer::expect(const ScriptStep& step) {
  const std::string& words = step.words;
  const auto drawn = [this, &words] {
    return std::any_of(texts_.begin(), texts_.end(),
                       [&](const Drawn& text) { return text.words.find(words) != std::string::npos; });
  };
  if (step.verb == Verb::expect_no_text) {
    if (Status settled = settle(); !settled) return settled;
  }
  return await([&]() -> Status {
    switch (step.verb) {
      case Verb::expect_place: {
        const Result<Window*> shown = window();
        if (!shown) return tl::unexpected(shown.error());
        const std::string place = shown_place((*shown)->selection().place);
        if (place != words) return fail(fmt::format("expected the place {}, found {}", words, place));
        return {};
      }
      case Verb::expect_view: {
        const Result<Window*> shown = window();
        if (!shown) return tl::unexpected(shown.error());
        if (!(*shown)->shows(words)) return fail(fmt::format("the view '{}' is not shown", words));
        return {};
      }
      case Verb::expect_text:
        if (!drawn()) return fail(fmt::format("no text \"{}\" is drawn", words));
        return {};
      case Verb::expect_no_text:
        if (drawn()) return fail(fmt::format("the text \"{}\" is drawn", words));
        return {};
      case Verb::expect_file:
        if (!fs::exists(words)) return fail(fmt::format("there is no file {}", words));
        return {};
      default: {
        const std::string held = session_.platform().clipboard();
        if (held != words) return fail(fmt::format("expected \"{}\" in the clipboard, found \"{}\"", words, held));
        return {};
      }
    }
  });
}

Status ScriptPlayer::frame() {
  if (files_.stop.stop_requested()) return fail("stopped");
  texts_.clear();
  items_.clear();
  if (!session_.frame(on_screen_ ? kFrameSeconds : 0)) return fail("the window is closed");
  if (!session_.settled()) std::this_thread::sleep_for(kPause);
  return {};
}

Status ScriptPlayer::frames(int count) {
  for (int i = 0; i < count; ++i) {
    if (Status drawn = frame(); !drawn) return drawn;
  }
  return {};
}

Status ScriptPlayer::await(const Condition& condition) {
  const auto start = std::chrono::steady_clock::now();
  for (int still = 0;;) {
    Status holds = condition();
    if (holds) return holds;
    const auto waited = std::chrono::steady_clock::now() - start;
    still = session_.busy() ? 0 : still + 1;
    const bool over = on_screen_ ? waited > kPatience : still > kStillFrames;
    if ((over && still > 0) || waited > kLongest) return holds;
    if (Status drawn = frame(); !drawn) return drawn;
  }
}

Status ScriptPlayer::settle() {
  const auto start = std::chrono::steady_clock::now();
  for (int settled = 0; settled < kSettlingFrames;) {
    if (Status drawn = frame(); !drawn) return drawn;
    settled = session_.settled() ? settled + 1 : 0;
    if (std::chrono::steady_clock::now() - start > kLongest) return fail("the window goes on working");
  }
  return {};
}

Status ScriptPlayer::wait(double seconds) {
  for (double waited = 0; waited < seconds; waited += static_cast<double>(ImGui::GetIO().DeltaTime)) {
    if (Status drawn = frame(); !drawn) return drawn;
  }
  return {};
}

bool ScriptPlayer::playing() const { return session_.busy() && session_.settled(); }

Status ScriptPlayer::picture(const fs::path& path) {
  if (!playing()) {
    if (Status settled = settle(); !settled) return settled;
  }
  const auto png = encode_png(session_.platform().read_pixels());
  if (!png) return tl::unexpected(png.error());
  return write_output(path, *png, files_.output);
}

Result<Window*> ScriptPlayer::window() const {
  if (session_.window() == nullptr) return fail("there is the start screen, no recording");
  return session_.window();
}

Result<ImVec2> ScriptPlayer::find(const Target& target) const {
  const auto middle = [](Area area) { return ImVec2(area.x + area.width / 2, area.y + area.height / 2); };
  const auto nth = [&](const std::vector<Drawn>& among, auto&& fits) -> const Drawn* {
    int left = target.nth;
    for (const Drawn& drawn : among) {
      if (fits(drawn) && --left == 0) return &drawn;
    }
    return nullptr;
  };
  const auto same = [&](const Drawn& drawn) { return drawn.words == target.words; };
  const auto holds = [&](const Drawn& drawn) { return drawn.words.find(target.words) != std::string::npos; };
  switch (target.kind) {
    case Target::Kind::point:
      return ImVec2(target.x, target.y);
    case Target::Kind::text: {
      const Drawn* drawn = nth(texts_, same);
      if (drawn == nullptr) drawn = nth(texts_, holds);
      if (drawn == nullptr) return fail(fmt::format("no text \"{}\" is drawn", target.words));
      return middle(drawn->where);
    }
    case Target::Kind::item: {
      const Drawn* drawn = nth(items_, same);
      if (drawn == nullptr) return fail(fmt::format("nothing called '{}' is drawn", target.words));
      return middle(drawn->where);
    }
    case Target::Kind::cell:
      break;
  }
  const Result<Window*> shown = window();
  if (!shown) return tl::unexpected(shown.error());
  const Result<Place> place = parse_place(target.words);
  if (!place) return tl::unexpected(place.error());
  const std::optional<Area> cell = (*shown)->where(target.view, *place);
  if (!cell) return fail(fmt::format("the view '{}' shows no cell of {}", target.view, target.words));
  return middle(*cell);
}

Result<ImVec2> ScriptPlayer::await(const Target& target) {
  Result<ImVec2> found = find(target);
  if (found) return found;
  const Status there = await([&]() -> Status {
    found = find(target);
    if (!found) return tl::unexpected(found.error());
    return {};
  });
  if (!there) return tl::unexpected(there.error());
  return found;
}

Status ScriptPlayer::select(const ScriptStep& step) {
  const Result<Window*> shown = window();
  if (!shown) return tl::unexpected(shown.error());
  (*shown)->say_error("");
  (*shown)->go(step.words);
  if (Status settled = settle(); !settled) return settled;
  if (const std::string wrong = (*shown)->error(); !wrong.empty()) return fail(wrong);
  return {};
}

Status ScriptPlayer::press(const KeyPress& press) {
  SyntheticInput& input = session_.platform().synthetic();
  input.hold(press.held);
  input.key(press.key, true);
  if (Status drawn = frame(); !drawn) return drawn;
  input.key(press.key, false);
  input.hold({});
  return frames(2);
}

Status ScriptPlayer::click(const ScriptStep& step) {
  const Result<ImVec2> at = await(step.target);
  if (!at) return tl::unexpected(at.error());
  SyntheticInput& input = session_.platform().synthetic();
  input.move(*at);
  input.hold(step.press.held);
  Status drawn = frame();
  for (int i = 0; i < step.clicks; ++i) {
    input.button(step.button, true);
    if (drawn) drawn = frame();
    input.button(step.button, false);
    if (drawn) drawn = frame();
  }
  input.hold({});
  if (drawn) drawn = frames(2);
  return drawn;
}

Status ScriptPlayer::drag(const ScriptStep& step) {
  const Result<ImVec2> from = await(step.target);
  if (!from) return tl::unexpected(from.error());
  ImVec2 to(from->x + step.to.x, from->y + step.to.y);
  if (step.verb == Verb::drag_to) {
    const Result<ImVec2> end = await(step.to);
    if (!end) return tl::unexpected(end.error());
    to = *end;
  }
  SyntheticInput& input = session_.platform().synthetic();
  input.move(*from);
  input.hold(step.press.held);
  Status drawn = frame();
  input.button(step.button, true);
  for (int i = 0; drawn && i <= kDragFrames; ++i) {
    const float part = static_cast<float>(i) / kDragFrames;
    input.move({from->x + (to.x - from->x) * part, from->y + (to.y - from->y) * part});
    drawn = frame();
  }
  input.button(step.button, false);
  input.hold({});
  if (drawn) drawn = frames(2);
  return drawn;
}

Status ScriptPlayer::wheel(const ScriptStep& step) {
  const Result<ImVec2> at = await(step.target);
  if (!at) return tl::unexpected(at.error());
  SyntheticInput& input = session_.platform().synthetic();
  input.move(*at);
  input.hold(step.press.held);
  if (Status drawn = frame(); !drawn) return drawn;
  input.wheel(static_cast<float>(step.amount));
  if (Status drawn = frame(); !drawn) return drawn;
  input.hold({});
  return frames(2);
}

Status ScriptPlayer::drop(const ScriptStep& step) {
  session_.platform().synthetic().drop(step.words);
  Status drawn = frames(2);
  while (drawn && session_.opening()) drawn = frame();
  return drawn;
}

Status ScriptPlayer::where(const ScriptStep& step) {
  const Result<ImVec2> at = await(step.target);
  if (!at) return tl::unexpected(at.error());
  say_(fmt::format("{:.0f} {:.0f}\n", at->x, at->y));
  return {};
}

}  // namespace nanscope::gui
