#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "core/result.h"
#include "core/system_reason.h"

namespace nanscope::gui {

/// How far a piece of work is.
struct JobProgress {
  std::int64_t done = 0;
  std::int64_t total = 0;  ///< 0 while it is not known
  std::string what;

  float share() const { return total > 0 ? static_cast<float>(done) / static_cast<float>(total) : 0; }
};

/// One piece of work at a time on a thread of its own, beside the store's: for runs that take
/// seconds, so that the store goes on answering. Nothing here makes the caller wait but start() and
/// the destructor, which stop what still runs and wait for its end.
template <class T>
class Background {
 public:
  using Report = std::function<void(JobProgress)>;
  using Work = std::function<Result<T>(const std::stop_token&, const Report&)>;

  void start(Work work) {
    thread_ = {};
    {
      const std::lock_guard lock(mutex_);
      running_ = true;
      progress_ = {};
      result_.reset();
    }
    thread_ = std::jthread([this, work = std::move(work)](const std::stop_token& stop) {
      Result<T> result = guarded(work, stop);
      const std::lock_guard lock(mutex_);
      result_ = std::move(result);
      running_ = false;
    });
  }
  /// The work ends soon, with whatever it answers.
  void cancel() { thread_.request_stop(); }
  bool cancelled() const { return thread_.get_stop_token().stop_requested(); }
  bool running() const {
    const std::lock_guard lock(mutex_);
    return running_;
  }
  JobProgress progress() const {
    const std::lock_guard lock(mutex_);
    return progress_;
  }
  /// The result, once.
  std::optional<Result<T>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(result_, std::nullopt);
  }

 private:
  /// No exception leaves the thread.
  Result<T> guarded(const Work& work, const std::stop_token& stop) {
    try {
      return work(stop, [this](JobProgress progress) {
        const std::lock_guard lock(mutex_);
        progress_ = std::move(progress);
      });
    } catch (const std::exception& error) {
      return fail(reason_of(error));
    }
  }

  mutable std::mutex mutex_;
  bool running_ = false;
  JobProgress progress_;
  std::optional<Result<T>> result_;
  std::jthread thread_;  ///< last: it uses all of the above
};

}  // namespace nanscope::gui
