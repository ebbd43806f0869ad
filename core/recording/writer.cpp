#include "core/recording/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "core/files/output_file.h"
#include "core/recording/batch.h"
#include "core/recording/element_pool.h"
#include "core/recording/insert.h"
#include "core/recording/reader_impl.h"
#include "core/recording/recording_file.h"
#include "core/system_reason.h"

namespace nanscope {
namespace {

using Clock = std::chrono::steady_clock;

/// A batch goes to the writing thread at the end of a step, or before it when it holds this much.
constexpr std::size_t kBatchBytes = std::size_t{4} << 20;
/// The writing thread looks for work this often. Waking it at the end of every step would cost the engine's
/// thread more than the step's rows do.
constexpr std::chrono::milliseconds kPoll{1};
constexpr std::size_t kSpareBatches = 16;

}  // namespace

class RecordingWriter::Impl {
 public:
  /// Without a file in memory. Errors: its thread cannot be started.
  static Result<std::unique_ptr<Impl>> make(const std::filesystem::path& path, const RunInfo& info,
                                            const WriterOptions& options, std::optional<OutputFile> file,
                                            insert::Inserter inserter) {
    try {
      return std::make_unique<Impl>(path, info, options, std::move(file), std::move(inserter));
    } catch (const std::exception& error) {
      return fail(fmt::format("{}: cannot be written: {}", path.string(), reason_of(error)));
    }
  }

  Impl(std::filesystem::path path, RunInfo info, const WriterOptions& options, std::optional<OutputFile> file,
       insert::Inserter inserter)
      : path_(std::move(path)),
        info_(std::move(info)),
        options_(options),
        file_(std::move(file)),
        inserter_(std::move(inserter)),
        thread_([this] { run_guarded(); }) {}

  ~Impl() { stop(); }

  /// Adds a row, as Batch::add() takes it.
  template <class... Row>
  void push(Row&&... row) {
    if (closed_.load(std::memory_order_relaxed)) return;
    current_.add(std::forward<Row>(row)...);
    if (current_.bytes() >= kBatchBytes) hand_over();
  }

  Status end_step() {
    current_.add(insert::EndStep{});
    hand_over();
    const std::lock_guard lock(mutex_);
    if (error_) return tl::unexpected(*error_);
    return {};
  }

  Status flush() {
    std::unique_lock lock(mutex_);
    flush_target_ = ended_;
    work_.notify_one();
    committed_changed_.wait(lock, [&] { return committed_ >= flush_target_ || error_ || stopping_; });
    if (error_) return tl::unexpected(*error_);
    return {};
  }

  std::int64_t committed() const {
    const std::lock_guard lock(mutex_);
    return committed_;
  }

  /// Joins the thread; afterwards nothing else touches the database.
  Status finish() {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return fail(path_.string() + ": the recording was finished before");
      complete_ = true;
    }
    stop();
    if (error_) return tl::unexpected(*error_);
    return file_ ? give_name() : Status{};
  }

  sqlite::Database release() { return inserter_.release(); }

  std::vector<std::byte> buffer(std::size_t size) { return elements_.take(size); }

 private:
  /// Waits while too much is on its way already.
  void hand_over() {
    if (current_.empty()) return;
    std::unique_lock lock(mutex_);
    if (queued_bytes_ > options_.queue_bytes) work_.notify_one();
    space_.wait(lock, [&] { return queued_bytes_ <= options_.queue_bytes || error_ || stopping_; });
    if (error_ || stopping_) return current_.clear();
    queued_bytes_ += current_.bytes();
    if (current_.ends_step()) ++ended_;
    if (current_.bytes() >= kBatchBytes || (awaits_end_ && current_.ends_step())) work_.notify_one();
    ready_.push_back(std::move(current_));
    current_ = {};
    if (spare_.empty()) return;
    current_ = std::move(spare_.back());
    spare_.pop_back();
  }

  void stop() {
    hand_over();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    closed_ = true;
    work_.notify_one();
    space_.notify_all();
    committed_changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void latch(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = Error{path_.string() + ": " + error.message};
    closed_ = true;
    ready_.clear();
    queued_bytes_ = 0;
    space_.notify_all();
    committed_changed_.notify_all();
  }

  /// Whether all of the step that the first batch begins is ready.
  bool step_is_whole() const {
    return std::any_of(ready_.begin(), ready_.end(), [](const insert::Batch& batch) { return batch.ends_step(); });
  }

  /// Whether what is ready is better written later: a piece of a step that may never end has the whole steps before it
  /// committed, see write(), and to commit each step of some megabytes by itself writes a tenth more.
  bool better_later() const {
    return !ready_.empty() && pending_steps_ > 0 && !mid_step_ && !stopping_ && flush_target_ <= committed_ &&
           queued_bytes_ < options_.queue_bytes / 2 && !step_is_whole();
  }

  /// The next batch, or none when it is time to commit or to stop.
  std::optional<insert::Batch> next() {
    std::unique_lock lock(mutex_);
    const auto woken = [&] {
      awaits_end_ = better_later();
      return (!ready_.empty() && !awaits_end_) || stopping_ || (pending_steps_ > 0 && flush_target_ > committed_);
    };
    auto until = Clock::now() + kPoll;
    if (pending_steps_ > 0 && !mid_step_) until = std::min(until, last_commit_ + options_.commit_interval);
    work_.wait_until(lock, until, woken);
    if (ready_.empty() || awaits_end_) return std::nullopt;
    may_never_end_ = !step_is_whole();
    insert::Batch batch = std::move(ready_.front());
    ready_.pop_front();
    return batch;
  }

  Status commit() {
    if (auto status = inserter_.commit(); !status) return status;
    last_commit_ = Clock::now();
    pending_bytes_ = 0;
    const std::lock_guard lock(mutex_);
    committed_ += std::exchange(pending_steps_, 0);
    committed_changed_.notify_all();
    return {};
  }

  Status write(insert::Batch& batch) {
    // Whole steps that wait for their commit must not share a transaction with a piece of a step
    // that may never end.
    if (may_never_end_ && !mid_step_ && pending_steps_ > 0) {
      if (auto status = commit(); !status) return status;
    }
    auto status = batch.each([this](auto& row) { return inserter_.apply(row); });
    if (!status) return status;
    pending_bytes_ += batch.bytes();
    mid_step_ = !batch.ends_step();
    if (batch.ends_step()) ++pending_steps_;
    return {};
  }

  void recycle(insert::Batch batch) {
    const std::size_t bytes = batch.bytes();
    for (auto& elements : batch.take_elements()) elements_.give(std::move(elements));
    batch.clear();
    const std::lock_guard lock(mutex_);
    queued_bytes_ -= std::min(queued_bytes_, bytes);
    if (spare_.size() < kSpareBatches) spare_.push_back(std::move(batch));
    space_.notify_all();
  }

  bool commit_is_due() {
    if (pending_steps_ == 0 || mid_step_) return false;
    if (pending_bytes_ >= options_.commit_bytes || Clock::now() >= last_commit_ + options_.commit_interval) return true;
    const std::lock_guard lock(mutex_);
    return flush_target_ > committed_ && ready_.empty();
  }

  /// No exception leaves the thread.
  void run_guarded() {
    try {
      run();
    } catch (const std::exception& error) {
      give_up(Error{reason_of(error)});
    }
  }

  void run() {
    if (auto status = inserter_.begin(info_); !status) return give_up(status.error());
    if (file_) file_->keep();
    for (;;) {
      auto batch = next();
      if (batch) {
        auto status = write(*batch);
        if (!status) return give_up(status.error());
        recycle(std::move(*batch));
      }
      if (commit_is_due()) {
        if (auto status = commit(); !status) return give_up(status.error());
      }
      if (batch) continue;
      const std::lock_guard lock(mutex_);
      if (stopping_ && ready_.empty()) break;
    }
    if (auto status = close(); !status) latch(status.error());
  }

  /// Once SQLite has closed it: it would not find its files again.
  Status give_name() {
    inserter_.release().reset();
    if (file_->path() != path_) {
      if (Status alone = check_beside(path_); !alone) return alone;
    }
    return file_->commit();
  }

  /// What the last transaction becomes: a finished recording, or the whole steps of one. A piece of
  /// a step is never with them, see write().
  Status close() {
    if (complete_) return inserter_.complete();
    if (Status kept = pending_steps_ > 0 ? commit() : Status{}; !kept) return kept;
    return inserter_.abandon();
  }

  void give_up(const Error& error) {
    latch(error);
    // The transaction's whole steps go too: after a failed write nothing in it can be relied on.
    std::ignore = inserter_.abandon();
  }

  const std::filesystem::path path_;
  const RunInfo info_;
  const WriterOptions options_;

  insert::Batch current_;             // of the thread that adds
  std::atomic<bool> closed_ = false;  // what is added now goes nowhere

  std::optional<OutputFile> file_;  // outlives the database in it

  insert::ElementPool elements_;

  // Of the writing thread alone, until it is joined.
  insert::Inserter inserter_;
  std::size_t pending_bytes_ = 0;
  bool mid_step_ = false;
  bool may_never_end_ = false;  // the step that is being written
  Clock::time_point last_commit_ = Clock::now();
  std::int64_t pending_steps_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::condition_variable space_;
  std::condition_variable committed_changed_;
  std::deque<insert::Batch> ready_;
  std::vector<insert::Batch> spare_;
  std::size_t queued_bytes_ = 0;
  std::int64_t ended_ = 0;
  std::int64_t committed_ = 0;
  std::int64_t flush_target_ = 0;
  bool awaits_end_ = false;  // the writing thread waits for the end of a step
  bool stopping_ = false;
  bool complete_ = false;
  std::optional<Error> error_;

  std::thread thread_;  // last: it uses all of the above
};

RecordingWriter::RecordingWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RecordingWriter::~RecordingWriter() = default;

Result<std::unique_ptr<RecordingWriter>> RecordingWriter::create(const std::filesystem::path& path, const RunInfo& info,
                                                                 const WriterOptions& options) {
  if (path.empty()) return fail("a recording needs a file name");
  auto file = create_recording_file(path, options.output, options.in_view);
  if (!file) return tl::unexpected(std::move(file.error()));
  return create(std::move(*file), info, options);
}

Result<std::unique_ptr<RecordingWriter>> RecordingWriter::create(OutputFile file, const RunInfo& info,
                                                                 const WriterOptions& options) {
  const std::filesystem::path path = file.target();
  auto inserter = insert::Inserter::create(&file, options);
  if (!inserter) return fail(path.string() + ": " + inserter.error().message);
  auto impl = Impl::make(path, info, options, std::move(file), std::move(*inserter));
  if (!impl) return tl::unexpected(std::move(impl.error()));
  return std::unique_ptr<RecordingWriter>(new RecordingWriter(std::move(*impl)));
}

Result<std::unique_ptr<RecordingWriter>> RecordingWriter::create_in_memory(const RunInfo& info,
                                                                           const WriterOptions& options) {
  auto inserter = insert::Inserter::create(nullptr, options);
  if (!inserter) return tl::unexpected(std::move(inserter.error()));
  auto impl = Impl::make(":memory:", info, options, std::nullopt, std::move(*inserter));
  if (!impl) return tl::unexpected(std::move(impl.error()));
  return std::unique_ptr<RecordingWriter>(new RecordingWriter(std::move(*impl)));
}

void RecordingWriter::add(RequestRow row) { impl_->push(insert::AddRequest{std::move(row), false}); }
void RecordingWriter::update_request(RequestRow row) { impl_->push(insert::AddRequest{std::move(row), true}); }
void RecordingWriter::add(StepRow row) { impl_->push(std::move(row)); }
void RecordingWriter::add(const OpRow& row, std::span<const InputRow> inputs) { impl_->push(row, inputs); }
void RecordingWriter::add(const TensorRow& row, const TensorDetail& detail, std::vector<std::byte> bytes) {
  impl_->push(row, detail, std::move(bytes));
}
void RecordingWriter::add_observed(const TensorRow& row, ObservedTensor observed) {
  impl_->push(row, std::move(observed));
}
void RecordingWriter::add_bytes(std::int64_t tensor, std::vector<std::byte> bytes) {
  impl_->push(insert::AddBytes{tensor, std::move(bytes)});
}
void RecordingWriter::add_part(std::int64_t tensor, std::vector<std::byte> bytes) {
  impl_->push(insert::AddPart{tensor, std::move(bytes)});
}
void RecordingWriter::add(WeightRow row) { impl_->push(std::move(row)); }
void RecordingWriter::add(ScaleRow row) { impl_->push(std::move(row)); }
void RecordingWriter::add(KvRow row) { impl_->push(std::move(row)); }
void RecordingWriter::add(TokenRow row) { impl_->push(std::move(row)); }
void RecordingWriter::add(KernelRow row) { impl_->push(std::move(row)); }
void RecordingWriter::add(RunNote note) { impl_->push(std::move(note)); }

std::vector<std::byte> RecordingWriter::buffer(std::size_t size) { return impl_->buffer(size); }
Status RecordingWriter::commit_step() { return impl_->end_step(); }
Status RecordingWriter::flush() { return impl_->flush(); }
std::int64_t RecordingWriter::committed_steps() const { return impl_->committed(); }
void RecordingWriter::set_expected_ops(std::int64_t ops) { impl_->push(insert::ExpectedOps{ops}); }

void RecordingWriter::set_expected_tensors(std::int64_t tensors) { impl_->push(insert::ExpectedTensors{tensors}); }

void RecordingWriter::set_config(std::string config) { impl_->push(insert::SetConfig{std::move(config)}); }

Status RecordingWriter::finish(std::int64_t expected_ops) {
  if (expected_ops > 0) set_expected_ops(expected_ops);
  return impl_->finish();
}

Result<Recording> RecordingWriter::finish_in_memory(std::int64_t expected_ops) {
  if (auto status = finish(expected_ops); !status) return tl::unexpected(std::move(status.error()));
  auto impl = Recording::Impl::load(impl_->release(), ":memory:");
  if (!impl) return tl::unexpected(std::move(impl.error()));
  return Recording(std::move(*impl));
}

}  // namespace nanscope
