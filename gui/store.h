#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "gui/facts.h"
#include "gui/prepare/prepared.h"

namespace nanscope::gui {

/// Work for the thread that owns the run.
using Preparation = std::function<Result<PreparedPtr>(RunFacts&)>;

/// What the user waits for is done first: `later` is begun when nothing else waits and the window has
/// seen every answer, as it may ask for something because of one.
enum class Urgency : std::uint8_t { now, later };

struct Answer {
  std::string kind;
  std::uint64_t ticket = 0;
  Result<PreparedPtr> result;
};

/// What the thread is at.
struct Activity {
  std::string kind;
  double seconds = 0;
};

/// One thread that owns an open recording or dump, its diagnosis and its replays. Requests are served in
/// order; a newer one of the same kind takes the place of the one that still waits. Nothing here
/// makes the caller wait for the thread, except the destructor, for the moment that a running
/// request takes to see that it is to stop.
class Store {
 public:
  explicit Store(OpenedRun run);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  /// The answer will carry the ticket. What was replaced is never answered.
  std::uint64_t ask(const std::string& kind, Preparation work, Urgency urgency = Urgency::now);
  /// The answers since the last call, oldest first.
  std::vector<Answer> poll();
  /// Nothing when no request runs or waits.
  std::optional<Activity> activity() const;

 private:
  struct Request {
    std::string kind;
    std::uint64_t ticket = 0;
    Preparation work;
    Urgency urgency = Urgency::now;
  };
  struct Running {
    std::string kind;
    std::chrono::steady_clock::time_point since;
  };
  void serve(OpenedRun run, const std::stop_token& stop);
  std::optional<Request> next(const std::stop_token& stop);
  /// The request whose turn it is, or the end.
  std::deque<Request>::iterator due();

  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Request> waiting_;
  std::vector<Answer> answers_;
  std::optional<Running> running_;
  bool caught_up_ = false;  ///< the window has polled since the last answer that it took
  std::uint64_t last_ticket_ = 0;
  std::stop_source stop_;  ///< of the run
  std::jthread thread_;    ///< last: it uses all of the above
};

}  // namespace nanscope::gui
