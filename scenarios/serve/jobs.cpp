#include "scenarios/serve/jobs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nanscope::serve {

void Job::add_event(std::string event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

void Job::finish(Outcome outcome) {
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
  changed_.notify_all();
}

std::optional<std::string> Job::next_event() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !events_.empty() || outcome_; });
  if (events_.empty()) return std::nullopt;
  std::string event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool Job::begins() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !events_.empty() || outcome_; });
  return !events_.empty();
}

Job::Outcome Job::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return outcome_.has_value(); });
  return *outcome_;
}

bool JobQueue::push(std::shared_ptr<Job> job) {
  const std::lock_guard lock(mutex_);
  if (closed_ || jobs_.size() >= most_) return false;
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return true;
}

std::vector<std::shared_ptr<Job>> JobQueue::take(std::size_t most) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !jobs_.empty() || closed_; });
  if (closed_) return {};
  const auto end = jobs_.begin() + static_cast<std::ptrdiff_t>(std::min(most, jobs_.size()));
  std::vector<std::shared_ptr<Job>> taken(std::make_move_iterator(jobs_.begin()), std::make_move_iterator(end));
  jobs_.erase(jobs_.begin(), end);
  return taken;
}

std::vector<std::shared_ptr<Job>> JobQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  std::vector<std::shared_ptr<Job>> left(jobs_.begin(), jobs_.end());
  jobs_.clear();
  return left;
}

}  // namespace nanscope::serve
