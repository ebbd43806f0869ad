#include "gui/store.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

namespace nanscope::gui {
namespace {

/// No exception leaves the thread: what the standard library throws becomes an answer.
Result<PreparedPtr> guarded(const Preparation& work, RunFacts& facts) {
  try {
    return work(facts);
  } catch (const std::exception& error) {
    return fail(reason_of(error));
  }
}

/// What a run took is free now, but the C library would keep most of it for this thread, which ends.
void give_back_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

Store::Store(OpenedRun run)
    : stop_(run.stop), thread_([this, held = std::make_unique<OpenedRun>(std::move(run))](const std::stop_token& stop) {
        serve(std::move(*held), stop);
        give_back_memory();
      }) {}

Store::~Store() {
  stop_.request_stop();
  thread_.request_stop();
  thread_.join();
}

std::uint64_t Store::ask(const std::string& kind, Preparation work, Urgency urgency) {
  std::uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = ++last_ticket_;
    const auto same =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const Request& request) { return request.kind == kind; });
    if (same != waiting_.end()) {
      *same = Request{kind, ticket, std::move(work), urgency};
    } else {
      waiting_.push_back({kind, ticket, std::move(work), urgency});
    }
  }
  wake_.notify_one();
  return ticket;
}

std::vector<Answer> Store::poll() {
  const std::lock_guard lock(mutex_);
  caught_up_ = answers_.empty();
  if (caught_up_ && !waiting_.empty()) wake_.notify_one();
  return std::exchange(answers_, {});
}

std::optional<Activity> Store::activity() const {
  const std::lock_guard lock(mutex_);
  if (running_) {
    const std::chrono::duration<double> age = std::chrono::steady_clock::now() - running_->since;
    return Activity{running_->kind, age.count()};
  }
  if (!waiting_.empty()) return Activity{waiting_.front().kind, 0};
  return std::nullopt;
}

std::deque<Store::Request>::iterator Store::due() {
  const auto urgent = std::find_if(waiting_.begin(), waiting_.end(),
                                   [](const Request& request) { return request.urgency == Urgency::now; });
  return urgent == waiting_.end() && caught_up_ ? waiting_.begin() : urgent;
}

std::optional<Store::Request> Store::next(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  running_.reset();
  wake_.wait(lock, stop, [this] { return due() != waiting_.end(); });
  if (stop.stop_requested()) return std::nullopt;
  const auto at = due();
  Request request = std::move(*at);
  waiting_.erase(at);
  running_ = Running{request.kind, std::chrono::steady_clock::now()};
  return request;
}

void Store::serve(OpenedRun run, const std::stop_token& stop) {
  RunFacts facts(std::move(run));
  while (std::optional<Request> request = next(stop)) {
    Result<PreparedPtr> result = guarded(request->work, facts);
    const std::lock_guard lock(mutex_);
    answers_.push_back({std::move(request->kind), request->ticket, std::move(result)});
    caught_up_ = false;
    running_.reset();
  }
}

}  // namespace nanscope::gui
