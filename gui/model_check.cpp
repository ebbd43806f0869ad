#include "gui/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "core/system_reason.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/recompute/kernel_arithmetic.h"

namespace nanscope::gui {
namespace {

/// What is kept of references that nobody looks at any more.
constexpr std::size_t kMostKept = 4;
constexpr std::size_t kMostKeptBytes = std::size_t{192} << 20;
constexpr std::int64_t kMostElements = std::int64_t{48} << 20;  ///< as many as are shown one by one
constexpr std::int64_t kAtOnce = std::int64_t{1} << 18;  ///< elements that are made between two looks at what is wanted

bool same(const OutputName& a, const OutputName& b) { return a.name == b.name && a.op == b.op && a.role == b.role; }

}  // namespace

bool looks_like_checkpoint(const std::filesystem::path& folder) {
  std::error_code ignored;
  const auto holds = [&](const char* name) { return std::filesystem::is_regular_file(folder / name, ignored); };
  if (gguf_of(folder).value_or(std::nullopt)) return true;
  return holds("config.json") && (holds("model.safetensors") || holds("model.safetensors.index.json"));
}

ModelCheck::ModelCheck(ModelCheckOptions options) : options_(std::move(options)) {
  found_.model = options_.model.string();
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

ModelCheck::~ModelCheck() {
  check_stop_.request_stop();
  thread_.request_stop();
  thread_.join();
}

ModelCheck::Phase ModelCheck::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

JobProgress ModelCheck::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

void ModelCheck::run_freely() {
  if (freely_ || phase() == Phase::opening || phase() == Phase::checking || phase() == Phase::failed) return;
  freely_ = true;
  free_.start([this](const std::stop_token& stop, const Background<FreeRun>::Report&) -> Result<FreeRun> {
    if (!options_.adapter.empty()) {
      FreeRun none;
      none.why = "the engine runs no adapter";
      return none;
    }
    const auto model = ReferenceModel::load(options_.model, stop);
    if (!model) return tl::unexpected(model.error());
    const auto run = opened_->another_run(stop);  // the check's is for its thread
    return (*model)->run(*run, served_format(*run), stop);
  });
}

std::shared_ptr<const FreeRun> ModelCheck::free_run() {
  if (auto made = free_.take()) {
    FreeRun none;
    if (!*made) none.why = made->error().message;
    free_run_ = std::make_shared<const FreeRun>(*made ? std::move(**made) : std::move(none));
  }
  return free_run_;
}

bool ModelCheck::busy() const {
  if (free_.running()) return true;
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::opening || phase_ == Phase::checking || wanted_;
}

std::shared_ptr<const Findings> ModelCheck::findings(std::size_t known) const {
  const std::lock_guard lock(mutex_);
  return found_.count() > known ? std::make_shared<const Findings>(found_) : nullptr;
}

std::uint64_t ModelCheck::references() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

AskedReference ModelCheck::reference(const OutputName& output, const Tensor& served) {
  {
    const std::lock_guard lock(mutex_);
    const auto kept =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) { return same(one.output, output); });
    if (kept != kept_.end()) return kept->answer;
    if (phase_ == Phase::failed) return {nullptr, found_.problem};
    if (wanted_ && same(wanted_->output, output)) return {};
    wanted_ = Wanted{output, served.format, served.tokens, served.channels, ++tickets_};
  }
  wake_.notify_one();
  return {};
}

void ModelCheck::serve(const std::stop_token& stop) {
  try {
    check(stop);
    while (!stop.stop_requested()) {
      make_wanted(stop);
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [this] { return wanted_.has_value(); });
    }
  } catch (const std::exception& error) {
    end(Phase::failed, reason_of(error));
  }
}

void ModelCheck::check(const std::stop_token& stop) {
  const auto scanned = [this](std::uint64_t done, std::uint64_t total) {
    const std::lock_guard lock(mutex_);
    progress_ = {static_cast<std::int64_t>(done >> 20U), static_cast<std::int64_t>(total >> 20U), "opening"};
  };
  // Only the window's end stops reading: outputs are looked at when the check has been cancelled.
  auto opened = VerifiedDump::open({.dump = options_.dump,
                                    .model = options_.model,
                                    .adapter = options_.adapter,
                                    .follow_links = options_.follow_links,
                                    .stop = stop,
                                    .progress = scanned});
  if (!opened) return end(Phase::failed, opened.error().message);
  opened_ = std::move(*opened);
  arithmetic_ = std::make_unique<KernelArithmetic>();
  VerifyOptions options;
  options.layers = options_.layers;
  options.ops = options_.ops;
  options.stop = stop;
  options.distances = true;
  options.go_on = [this, stop] {
    make_wanted(stop);
    return !check_stop_.stop_requested();
  };
  options.progress = [this](std::size_t done, std::size_t total) {
    const std::lock_guard lock(mutex_);
    progress_ = {static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "checking"};
  };
  options.found = [this](const VerifiedOutput& one) {
    const std::lock_guard lock(mutex_);
    found_.checked.push_back(std::make_shared<const VerifiedOutput>(one));
  };
  options.skipped = [this](const NotChecked& one) {
    const std::lock_guard lock(mutex_);
    found_.not_checked.push_back(std::make_shared<const NotChecked>(one));
  };
  verifier_ =
      std::make_unique<Verifier>(*opened_->dump, *opened_->run, opened_->spec, *arithmetic_, std::move(options));
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::checking;
    progress_ = {0, 0, "checking"};
    found_.family = opened_->spec.model.family;
  }
  Result<Verification> made = verifier_->check();
  if (!made) return end(Phase::failed, made.error().message);
  {
    const std::lock_guard lock(mutex_);
    found_.notes = made->notes;
  }
  end(made->complete ? Phase::done : Phase::stopped);
}

void ModelCheck::end(Phase phase, std::string problem) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  found_.ended = true;
  found_.complete = phase == Phase::done;
  found_.problem = std::move(problem);
  if (phase != Phase::failed || !wanted_) return;
  kept_.push_back({wanted_->output, {nullptr, found_.problem}});
  wanted_.reset();
  ++made_;
}

void ModelCheck::make_wanted(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::optional<Wanted> wanted;
    {
      const std::lock_guard lock(mutex_);
      wanted = wanted_;
    }
    if (!wanted) return;
    auto made = make(*wanted, stop);
    if (!superseded(wanted->ticket, stop)) keep(*wanted, std::move(made));
  }
}

bool ModelCheck::superseded(std::uint64_t ticket, const std::stop_token& stop) const {
  const std::lock_guard lock(mutex_);
  return stop.stop_requested() || !wanted_ || wanted_->ticket != ticket;
}

Result<std::shared_ptr<const Reference>> ModelCheck::make(const Wanted& wanted, const std::stop_token& stop) {
  if (!verifier_) return fail(found_.problem);
  if (wanted.channels < 1 || wanted.tokens > kMostElements / wanted.channels)
    return fail("it has too many elements to do each again");
  const auto rows = verifier_->rows(wanted.output, wanted.tokens, wanted.channels);
  if (!rows) return tl::unexpected(rows.error());
  auto out = std::make_shared<Reference>();
  out->format = wanted.format;
  out->hides = may_hide(wanted.output.role);
  out->tokens = wanted.tokens;
  out->channels = wanted.channels;
  const auto count = static_cast<std::size_t>(wanted.tokens * wanted.channels);
  out->expected.resize(count);
  out->bound.assign(count, -1.0F);
  out->made.resize(static_cast<std::size_t>(wanted.tokens));
  const std::int64_t most = std::max<std::int64_t>(1, kAtOnce / wanted.channels);
  for (std::size_t i = 0; i < rows->size() && !superseded(wanted.ticket, stop);) {
    std::size_t end = i + 1;
    while (end < rows->size() && (*rows)[end] == (*rows)[end - 1] + 1 && static_cast<std::int64_t>(end - i) < most)
      ++end;
    const auto made = verifier_->predict(wanted.output, (*rows)[i], static_cast<std::int64_t>(end - i));
    if (!made) return tl::unexpected(made.error());
    const auto to = static_cast<std::ptrdiff_t>(out->index((*rows)[i], 0));
    std::copy(made->value.begin(), made->value.end(), out->expected.begin() + to);
    std::copy(made->bound.begin(), made->bound.end(), out->bound.begin() + to);
    for (; i < end; ++i) out->made[static_cast<std::size_t>((*rows)[i])] = true;
  }
  if (rows->empty()) return fail("none of its rows is of this step");
  return out;
}

void ModelCheck::keep(const Wanted& wanted, Result<std::shared_ptr<const Reference>> made) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({wanted.output, made ? AskedReference{*made, {}} : AskedReference{nullptr, made.error().message}});
  const auto bytes = [this] {
    std::size_t sum = 0;
    for (const Kept& one : kept_) sum += one.answer.made ? one.answer.made->bytes() : 0;
    return sum;
  };
  while (kept_.size() > 1 && (kept_.size() > kMostKept || bytes() > kMostKeptBytes)) kept_.pop_front();
  wanted_.reset();
  ++made_;
}

}  // namespace nanscope::gui
