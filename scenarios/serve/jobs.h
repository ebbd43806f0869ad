#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/serve/question.h"

namespace nanscope::serve {

/// A question on its way through the thread that runs the engine, and its answer on the way back.
class Job {
 public:
  explicit Job(Question asked) : question(std::move(asked)) {}
  const Question question;

  /// What a client waits for: the body of the answer, or of an error.
  struct Outcome {
    int status = 200;
    std::string body;
  };
  void add_event(std::string event);
  /// Of a stream: all its events are there.
  void finish(Outcome outcome);
  /// The next event of a stream; nothing: it has ended.
  std::optional<std::string> next_event();
  /// Whether the stream begins; else it ended with an error before.
  bool begins();
  Outcome wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> events_;
  std::optional<Outcome> outcome_;
};

/// Questions that wait for the engine, in the order in which they came.
class JobQueue {
 public:
  explicit JobQueue(std::size_t most) : most_(most) {}
  /// False: too many wait, or the queue is closed.
  bool push(std::shared_ptr<Job> job);
  /// Waits for one, and takes up to `most` that are there. Empty: the queue is closed.
  std::vector<std::shared_ptr<Job>> take(std::size_t most);
  /// Nothing more comes in or out. Returns what waits.
  std::vector<std::shared_ptr<Job>> close();

 private:
  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool closed_ = false;
};

}  // namespace nanscope::serve
