#include "gui/beside.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <imgui.h>

#include <algorithm>
#include <utility>

#include "core/counted.h"
#include "core/run/recording_view.h"
#include "gui/controls.h"
#include "gui/drawn.h"

namespace nanscope::gui {
namespace {

constexpr float kHeight = 36;
constexpr float kBesideButton = 24;
constexpr const char* kOpened = "beside";
constexpr const char* kParting = "divergence";
constexpr const char* kCompared = "difference";
constexpr const char* kSaved = "saving the other run";
constexpr const char* kErrors = "errors";
constexpr auto kMapEvery = std::chrono::milliseconds(250);

/// Where a run was copied to.
struct SavedFile final : Prepared {
  std::filesystem::path path;
};

Result<PreparedPtr> put(RunFacts& facts, const BesideRunPtr& run) {
  if (Status put = facts.put_beside(run); !put) return tl::unexpected(put.error());
  return PreparedPtr{};
}

Result<PreparedPtr> answer(Result<Divergence> found) {
  if (!found) return tl::unexpected(found.error());
  return std::make_shared<const Divergence>(std::move(*found));
}

Result<PreparedPtr> part(RunFacts& facts) {
  if (facts.beside() == nullptr) return std::make_shared<const Divergence>();
  if (facts.recording() == nullptr || facts.beside()->recording() == nullptr) {
    return answer(find_divergence(facts.view(), facts.beside()->view()));
  }
  // Recordings have hashes: no elements are made again only to say where the first one lies.
  NoTensors none;
  RecordingView here(facts.rows(), none);
  RecordingView there(facts.beside()->rows(), none);
  return answer(find_divergence(here, there));
}

Result<PreparedPtr> compare(RunFacts& facts) { return facts.difference(); }
/// A cross in a square; true when it was pressed.
bool close_button(const Look& look, Area box) {
  ImGui::SetCursorScreenPos(box.min());
  const bool pressed = ImGui::InvisibleButton("take away", {box.width, box.height});
  tell_item(box, "take away");
  const bool hovered = ImGui::IsItemHovered();
  if (hovered) fill(box, look.theme.hovered, look.px(5));
  const Area cross = box.inset(look.px(8));
  const Color ink = hovered ? look.theme.text : look.theme.muted;
  line(cross.min(), cross.max(), ink, look.px(1.6F));
  line({cross.right(), cross.y}, {cross.x, cross.bottom()}, ink, look.px(1.6F));
  return pressed;
}

}  // namespace

void Beside::open(Store& store, const std::filesystem::path& path) {
  if (looks_like_checkpoint(path)) {
    ModelCheckOptions options;
    options.model = tidy_path(path);
    return check(store, std::move(options));
  }
  auto run = std::make_shared<BesideRun>();
  run->path = tidy_path(path);
  run->label = run->path.filename().string();
  coming_ = std::move(run);
  store.ask(kOpened, [opened = coming_](RunFacts& facts) { return put(facts, opened); });
}

void Beside::check(Store& store, ModelCheckOptions options) {
  if (scenarios::looks_like_recording(recording_.string())) {
    words_ = {"a recording is not checked against a checkpoint: a dump is", true};
    return;
  }
  auto run = std::make_shared<BesideRun>();
  run->path = tidy_path(options.model);
  run->label = "the model";
  options.dump = recording_;
  run->check = std::make_shared<ModelCheck>(std::move(options));
  coming_ = std::move(run);
  store.ask(kOpened, [opened = coming_](RunFacts& facts) { return put(facts, opened); });
}

bool Beside::checking() const {
  if (!run_ || !run_->check) return coming_ && coming_->check;
  return run_->check->busy() || mapping_ || run_->check->findings(findings_);
}

void Beside::follow_check(Store& store) {
  if (!run_ || !run_->check || mapping_) return;
  const auto now = std::chrono::steady_clock::now();
  if (run_->check->busy() && now < mapped_at_ + kMapEvery) return;
  const auto findings = run_->check->findings(findings_);
  if (!findings) return;
  findings_ = findings->count();
  mapping_ = true;
  mapped_at_ = now;
  store.ask(
      kErrors, [findings](RunFacts& facts) -> Result<PreparedPtr> { return facts.errors(findings); }, Urgency::later);
}

void Beside::try_settings(std::vector<std::string> settings) {
  if (job_.running()) {  // starting another would wait for its end
    job_.cancel();
    next_ = std::move(settings);
    return;
  }
  job_.start([recording = recording_, settings = std::move(settings)](const std::stop_token& stop,
                                                                      const Background<BesideRunPtr>::Report& report) {
    report({0, 0, fmt::format("{}", fmt::join(settings, " "))});
    return run_changed(recording, settings, stop, report);
  });
}

void Beside::remove(Store& store) {
  run_.reset();
  coming_.reset();
  divergence_.reset();
  difference_.reset();
  errors_.reset();
  store.ask(kOpened, [](RunFacts& facts) { return put(facts, nullptr); });
}

void Beside::save(Store& store) {
  if (!run_ || !run_->scratch || saved_) return;
  saved_ = true;
  store.ask(kSaved, [run = run_, recording = recording_](RunFacts&) -> Result<PreparedPtr> {
    const Result<std::filesystem::path> kept = keep_beside(*run, recording);
    if (!kept) return tl::unexpected(kept.error());
    auto answer = std::make_shared<SavedFile>();
    answer->path = *kept;
    return answer;
  });
}

void Beside::update(Store& store) {
  follow_check(store);
  const std::optional<Result<BesideRunPtr>> result = job_.take();
  if (!result) return;
  if (next_) return try_settings(*std::exchange(next_, std::nullopt));
  if (*result) {
    coming_ = **result;
    store.ask(kOpened, [run = coming_](RunFacts& facts) { return put(facts, run); });
  } else if (!job_.cancelled()) {
    words_ = {result->error().message, true};
  }
}

bool Beside::take(Store& store, const Answer& answer) {
  if (answer.kind == kOpened) {
    if (!answer.result) {
      words_ = {answer.result.error().message, true};
    } else if (coming_) {
      run_ = std::move(coming_);
      divergence_.reset();
      difference_.reset();
      errors_.reset();
      findings_ = 0;
      mapping_ = false;
      saved_ = false;
      if (!run_->check) {
        store.ask(kParting, part, Urgency::later);
        store.ask(kCompared, compare, Urgency::later);
      }
    }
    coming_.reset();
    return true;
  }
  if (answer.kind == kErrors) {
    take_errors(answer);
    return true;
  }
  if (answer.kind == kParting) {
    if (answer.result && run_) divergence_ = std::static_pointer_cast<const Divergence>(*answer.result);
    if (!answer.result) words_ = {answer.result.error().message, true};
    return true;
  }
  if (answer.kind == kCompared) {
    if (!answer.result) {
      words_ = {answer.result.error().message, true};
    } else if (*answer.result && run_) {
      difference_ = std::static_pointer_cast<const RunDifference>(*answer.result);
    } else if (run_) {
      store.ask(kCompared, compare, Urgency::later);
    }
    return true;
  }
  if (answer.kind != kSaved) return false;
  if (answer.result) {
    words_ = {"the other run is kept in " + static_cast<const SavedFile&>(**answer.result).path.string(), false};
  } else {
    saved_ = false;
    words_ = {answer.result.error().message, true};
  }
  return true;
}

void Beside::take_errors(const Answer& answer) {
  mapping_ = false;
  if (!run_ || !run_->check) return;
  if (!answer.result) {
    words_ = {answer.result.error().message, true};
  } else if (*answer.result) {
    errors_ = std::static_pointer_cast<const ErrorMap>(*answer.result);
    auto divergence = std::make_shared<Divergence>();
    divergence->words = errors_->words();
    divergence->first = errors_->first();
    divergence_ = std::move(divergence);
    if (!problem().empty()) words_ = {problem(), true};
  } else {
    findings_ = 0;  // the map is not exact yet
  }
}

std::optional<StatusText> Beside::take_words() { return std::exchange(words_, std::nullopt); }

float Beside::height(float scale) { return kHeight * scale; }

BesideClicks Beside::draw(const Look& look, Store& store, Area area) {
  BesideClicks clicks;
  fill(area, look.theme.panel);
  fill({area.x, area.y, area.width, 1}, look.theme.line);
  const Area row = area.inset(look.px(18), 0);
  if (job_.running()) {
    const JobProgress progress = job_.progress();
    const float cancel = button_width(look, "Cancel");
    const Area box{row.right() - cancel, row.y + look.px(6), cancel, look.px(kBesideButton)};
    const std::string share = progress.total > 0 ? fmt::format("{:.0f} %", 100 * progress.share()) : "starting";
    const Area words{row.x, row.y, row.width - cancel - look.px(16), row.height};
    label(look.fonts.small, words, look.theme.text,
          printable(fmt::format("Running {} \u00B7 {}", progress.what, job_.cancelled() ? "stopping" : share)));
    fill({area.x, area.bottom() - look.px(2), area.width * std::clamp(progress.share(), 0.0F, 1.0F), look.px(2)},
         look.theme.accent);
    if (button(look, "cancel the other run", "Cancel", box)) {
      next_.reset();
      job_.cancel();
    }
  } else if (run_) {
    draw_run(look, store, row, clicks);
  }
  return clicks;
}

std::string Beside::words() const {
  std::string said = divergence_ ? divergence_->words : std::string();
  if (!run_->check) return divergence_ ? said : std::string("comparing\u2026");
  const JobProgress progress = run_->check->progress();
  switch (run_->check->phase()) {
    case ModelCheck::Phase::opening:
      return progress.total > 0 ? fmt::format("opening: {} of {} MiB", progress.done, progress.total)
                                : std::string("opening\u2026");
    case ModelCheck::Phase::checking:
      return fmt::format("{} of {} \u00B7 {}", progress.done, counted(progress.total, "op"), said);
    default:
      return said;
  }
}

void Beside::draw_run(const Look& look, Store& store, Area row, BesideClicks& clicks) {
  const float height = look.px(kBesideButton);
  const float y = row.y + (row.height - height) / 2;
  float x = row.x;
  const auto take = [&](const ImFont* font, std::string_view words, Color ink) {
    const float width = text_size(font, words).x + 1;
    label(font, {x, row.y, std::min(width, row.right() - x), row.height}, ink, words);
    x += width;
  };
  take(look.fonts.small, run_->check ? "checked against" : "beside", look.theme.muted);
  x += look.px(8);
  const std::string name = printable(run_->check ? run_->path.filename().string() : run_->label);
  const float wanted = text_size(look.fonts.mono_small, name).x + look.px(20) + height;
  const Area chip{x, y, std::min(wanted, row.width * 0.4F), height};
  fill(chip, look.theme.raised, look.px(5));
  label(look.fonts.mono_small, {chip.x + look.px(10), y, chip.width - look.px(18) - height, height}, look.theme.accent,
        name);
  const bool away = close_button(look, {chip.right() - height, y, height, height});
  x = chip.right() + look.px(16);
  float right = row.right();
  const auto press = [&](const char* id, std::string_view words) {
    const float width = button_width(look, words);
    right -= width;
    const bool pressed = button(look, id, words, {right, y, width, height});
    right -= look.px(8);
    return pressed;
  };
  if (run_->scratch && !saved_ && press("save the other run", "Save")) save(store);
  const bool checks = run_->check && run_->check->busy() && !run_->check->stopping();
  if (checks && press("cancel the check", "Cancel")) run_->check->stop();
  const char* go = run_->check ? "First that is off" : "First difference";
  if (divergence_ && divergence_->first && press("first difference", go)) clicks.go = divergence_->first;
  label(look.fonts.small, {x, row.y, right - x, row.height}, look.theme.muted, printable(words()));
  if (checks) {
    const float share = std::clamp(run_->check->progress().share(), 0.0F, 1.0F);
    fill({row.x - look.px(18), row.bottom() - look.px(2), (row.width + look.px(36)) * share, look.px(2)},
         look.theme.accent);
  }
  if (away) remove(store);
}

}  // namespace nanscope::gui
