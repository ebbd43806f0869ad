#include "gui/session.h"

#include <fmt/format.h>
#include <imgui.h>

#include <cmath>
#include <utility>

#include "gui/layout_file.h"
#include "gui/platform/renderer.h"
#include "gui/recent_files.h"

namespace nanscope::gui {

namespace {

std::string title_of(const std::filesystem::path& file) { return "nanscope \u2013 " + file.filename().string(); }

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const AppOptions& options, std::optional<OpenedRun> run,
                                               Selection start) {
  std::unique_ptr<Session> session(new Session);
  session->traceless_ = options.unattended() || options.script;
  session->follow_links_ = options.follow_links;
  const SavedLayout saved = session->traceless_ ? SavedLayout{} : read_layout(layout_path());
  const Extent size = options.size.width > 0 ? options.size : saved.size;
  const std::string title = "nanscope";
  Result<std::unique_ptr<Platform>> platform =
      options.needs_screen() ? open_window_platform(size, title) : open_egl_platform(size, Drawing::when_read);
  if (!platform) return tl::unexpected(platform.error());
  session->platform_ = std::move(*platform);
  WindowSetup& setup = session->setup_;
  session->scale_ = options.scale > 0 ? options.scale : session->platform_->scale();
  setup.zoom = saved.zoom;
  setup.numbers = saved.numbers;
  setup.scale = session->scale_ * static_cast<float>(setup.zoom) / 100;
  const Vision vision = options.palette.empty() ? saved.vision : *find_vision(options.palette);
  setup.theme = *find_theme(options.theme.empty() ? saved.theme : options.theme, vision);
  setup.fonts = load_fonts(setup.scale);
  setup.view = options.view;
  const std::string usual = options.check.model.empty() ? saved.tab : "verify";
  setup.tab = options.tab.empty() ? usual : options.tab;
  setup.shares = saved.shares;
  setup.start = std::move(start);
  setup.beside = options.beside;
  setup.check = options.check;
  setup.unattended = options.unattended();
  setup.printed = options.printed;
  apply_style(setup.theme, setup.scale);
  if (run) {
    if (!session->traceless_) remember(recent_files_path(), run->path);
    session->show(std::move(*run));
  } else {
    session->start_ = std::make_unique<StartScreen>(setup.theme, setup.fonts, setup.scale);
  }
  return session;
}

void Session::show(OpenedRun run) {
  remember_layout();
  if (window_) left_[file_] = {window_->selection(), window_->beside_file()};
  file_ = run.path;
  platform_->set_title(title_of(file_));
  window_.reset();  // before there is another one: both together take twice the memory
  window_ = std::make_unique<Window>(std::move(run), setup_);
  setup_.check = {};  // of the first one
  start_.reset();
}

void Session::want(const std::filesystem::path& path, std::string place) {
  wanted_ = path;
  wanted_place_ = std::move(place);
}

void Session::remember_layout() {
  if (window_) {
    setup_.shares = window_->shares();
    setup_.theme = window_->theme();
    setup_.numbers = window_->numbers();
    // Most files have no model: the check of one is no place to begin with.
    if (!window_->tab().empty() && window_->tab() != "verify") setup_.tab = window_->tab();
  }
  if (traceless_) return;
  const Extent size = platform_->size();
  const auto at_scale_1 = [this](int pixels) {
    return static_cast<int>(std::lround(static_cast<float>(pixels) / scale_));
  };
  SavedLayout left{setup_.shares, setup_.tab, std::string(setup_.theme.name)};
  left.size = {at_scale_1(size.width), at_scale_1(size.height)};
  left.vision = setup_.theme.vision;
  left.zoom = setup_.zoom;
  left.numbers = setup_.numbers;
  write_layout(layout_path(), left);
}

void Session::change_places() {
  if (!start_ && window_->take_leave()) {
    platform_->set_title("nanscope");
    start_ = std::make_unique<StartScreen>(window_->theme(), setup_.fonts, setup_.scale, file_.filename().string());
  } else if (start_ && start_->take_back()) {
    platform_->set_title(title_of(file_));
    start_.reset();
  }
}

/// Asks for another recording, the last one that was dropped or chosen; with Shift, or of several, shows it beside the
/// one that is open.
void Session::choose_next(const std::vector<std::filesystem::path>& dropped, bool shift) {
  std::optional<std::filesystem::path> next = start_ ? start_->take_choice() : window_->take_choice();
  if (!dropped.empty()) next = dropped.back();
  const bool beside = shift || ImGui::GetIO().KeyShift || dropped.size() > 1;
  if (window_ && beside && !dropped.empty()) {
    start_.reset();
    return window_->open_beside(dropped.back());
  }
  if (next) wanted_ = std::move(next);
}

/// On a thread of its own: a file may lie on a slow disk, or be locked for seconds by who writes it.
void Session::open_wanted() {
  if (std::optional<Result<OpenedRun>> opened = opening_.take()) {
    opens_ = false;
    if (!wanted_) take_opened(std::move(*opened));  // else something else was chosen since
  }
  if (!wanted_ || opens_) return;
  opens_ = true;
  opening_.start([path = *std::exchange(wanted_, std::nullopt), traceless = traceless_, follow_links = follow_links_](
                     const std::stop_token& stop, const Background<OpenedRun>::Report& report) {
    Result<OpenedRun> run = open_run(path, stop, report, follow_links);
    if (run && !traceless) remember(recent_files_path(), run->path);
    return run;
  });
}

/// Shows how far it is, and lets go of it.
void Session::tell_opening() {
  std::optional<JobProgress> progress;
  if (opens_) progress = opening_.progress();
  if (start_) {
    start_->show_opening(progress, opening_.cancelled());
    if (start_->take_cancel()) opening_.cancel();
  } else if (progress && progress->total > 0) {
    window_->say(fmt::format("opening {}: {} of {} MiB", progress->what, progress->done, progress->total));
  }
}

void Session::take_opened(Result<OpenedRun> run) {
  if (run) {
    const auto left = left_.find(run->path);
    setup_.start = left != left_.end() ? left->second.selection : Selection{};
    setup_.beside = left != left_.end() ? left->second.beside : std::filesystem::path();
    show(std::move(*run));
    if (!wanted_place_.empty()) window_->go(std::exchange(wanted_place_, {}));
  } else if (opening_.cancelled()) {
    return;  // whoever pressed the button knows
  } else if (!start_) {
    window_->say_error(run.error().message);
  } else {
    start_->say_error(run.error().message);
  }
}

/// The letters are drawn anew, so that they are as sharp as before.
void Session::change_zoom() {
  const std::optional<int> zoom = window_ && !start_ ? window_->take_zoom() : std::nullopt;
  if (!zoom) return;
  setup_.zoom = *zoom;
  setup_.scale = scale_ * static_cast<float>(*zoom) / 100;
  setup_.fonts = load_fonts(setup_.scale);
  renew_letters();
  apply_style(window_->theme(), setup_.scale);
  window_->use_zoom(*zoom, setup_.scale, setup_.fonts);
}

void Session::draw() {
  platform_->begin_frame();
  if (start_) {
    start_->frame(*platform_);
  } else {
    window_->frame(*platform_);
  }
  platform_->end_frame();
  if (!start_) window_->after_frame(*platform_);
}

bool Session::frame(double seconds) {
  const PlatformEvents events = platform_->poll(seconds);
  if (events.close) {
    remember_layout();
    return false;
  }
  had_input_ = events.input || !events.dropped.empty();
  change_zoom();
  change_places();
  choose_next(events.dropped, events.shift);
  open_wanted();
  tell_opening();
  draw();
  return true;
}

}  // namespace nanscope::gui
