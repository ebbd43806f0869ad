#include "scenarios/paused_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "instrument/probe.h"
#include "instrument/recorder/observation_queue.h"

namespace nanscope::scenarios {

namespace {

/// What the probe returns to end a run that nobody reads any more.
constexpr const char* kNobodyReads = "replay: seen enough";
/// A tensor of at most this part of the budget is small.
constexpr std::size_t kSmallPart = 64;

/// Ids in the order in which they were made.
struct Queue {
  std::deque<std::int64_t> ids;
  std::size_t bytes = 0;
};

}  // namespace

class PausedRun::KeepProbe final : public Probe {
 public:
  KeepProbe(PausedRun& run, std::int64_t first, std::size_t budget)
      : run_(run),
        first_(first),
        budget_(budget),
        queue_(
            run.workbench_.device(), [this](Observation observation) { return keep(std::move(observation)); },
            [](std::size_t bytes) { return std::vector<std::byte>(bytes); }) {}

  Status on_op(const ProbeOp& op) override {
    for (const ProbeTensor& tensor : op.outputs) {
      last = tensor.id;
      if (tensor.id < first_) continue;
      waiting_.push_back({tensor.id, tensor.view.format, tensor.view.rows, tensor.view.columns});
      if (Status asked = queue_.observe({.view = tensor.view, .health = false, .bytes = true}); !asked) return asked;
    }
    if (last < run_.wanted_) return {};
    if (Status kept = queue_.finish(); !kept) return kept;
    return run_.wait() ? Status() : fail(kNobodyReads);
  }
  Status on_step_end(const StepRow&) override { return queue_.finish(); }
  Status on_request_end(const RequestRow&) override { return queue_.finish(); }

  std::map<std::int64_t, MadeTensor> held;
  std::int64_t last = -1;  ///< made

 private:
  struct Waiting {
    std::int64_t id;
    Format format;
    std::int64_t rows;
    std::int64_t columns;
  };

  Status keep(Observation observation) {
    const Waiting tensor = waiting_.front();
    waiting_.pop_front();
    const std::uint64_t hash = observation.hash;
    MadeTensor made{{tensor.format, tensor.rows, tensor.columns, std::move(observation).take_bytes()}, hash};
    const std::size_t bytes = made.data.bytes.size();
    Queue& queue = bytes <= budget_ / kSmallPart ? small_ : large_;
    queue.ids.push_back(tensor.id);
    queue.bytes += bytes;
    held.emplace(tensor.id, std::move(made));
    drop_oldest(small_, budget_ / 2);
    drop_oldest(large_, budget_ - std::min(budget_, small_.bytes));
    return {};
  }

  /// The newest is kept even where it alone is larger.
  void drop_oldest(Queue& queue, std::size_t most) {
    while (queue.bytes > most && queue.ids.size() > 1) {
      const auto oldest = held.find(queue.ids.front());
      queue.bytes -= oldest->second.data.bytes.size();
      held.erase(oldest);
      queue.ids.pop_front();
    }
  }

  PausedRun& run_;
  std::int64_t first_;
  std::size_t budget_;
  std::deque<Waiting> waiting_;
  Queue small_;
  Queue large_;
  ObservationQueue queue_;
};

PausedRun::PausedRun(Workbench& workbench, RunSpec spec, std::unique_ptr<Engine> engine, std::int64_t first,
                     std::size_t budget, std::stop_token stop)
    : workbench_(workbench),
      spec_(std::move(spec)),
      engine_(std::move(engine)),
      stop_(std::move(stop)),
      probe_(std::make_unique<KeepProbe>(*this, first, budget)),
      thread_([this] { work(); }) {}

PausedRun::~PausedRun() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PausedRun::work() {
  if (may_go_on(std::unique_lock(mutex_))) {
    try {
      const auto result = engine_->run(spec_.requests, spec_.transients, *probe_,
                                       {.progress = {}, .stop = stop_, .edit_embedding = {}});
      if (!result) error_ = result.error();
    } catch (...) {
      exception_ = std::current_exception();
    }
    engine_.reset();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  runs_ = false;
  changed_.notify_all();
}

bool PausedRun::wait() {
  std::unique_lock lock(mutex_);
  runs_ = false;
  changed_.notify_all();
  return may_go_on(std::move(lock));
}

bool PausedRun::may_go_on(std::unique_lock<std::mutex> lock) {
  changed_.wait(lock, [this] { return runs_ || cancelled_; });
  return !cancelled_;
}

Status PausedRun::reach(std::int64_t tensor) {
  std::unique_lock lock(mutex_);
  if (!ended_) {
    wanted_ = tensor;
    runs_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !runs_; });
  }
  // Of a run that has failed every later tensor fails too.
  if (exception_) std::rethrow_exception(exception_);
  if (error_) return tl::unexpected(*error_);
  return {};
}

const MadeTensor* PausedRun::find(std::int64_t tensor) const {
  const auto found = probe_->held.find(tensor);
  return found == probe_->held.end() ? nullptr : &found->second;
}

bool PausedRun::may_make(std::int64_t tensor) const { return !ended_ && tensor > probe_->last; }

}  // namespace nanscope::scenarios
