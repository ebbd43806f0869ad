#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/recording/rows.h"
#include "core/recording/writer.h"
#include "core/result.h"

namespace nanscope::live {

/// What a process does on its GPUs, as a recording: the process is its one request, each launch, copy or graph an op in
/// the order of the calls, when it ran a row of kernel activity. A step is what came together within `kStepOps` ops or
/// between two calls of commit(): the file holds it whole, also when the process is killed right afterwards.
/// One call at a time.
class TimelineWriter {
 public:
  static constexpr std::int64_t kStepOps = 1024;

  /// Where `path` exists, the process's id is added to its name: children of one command share the name. With `beside`
  /// the first writes there, under the name `path` to people: what exists stays until that is renamed. Only the user
  /// can read the file: it says what he runs. Errors: the file cannot be made.
  static Result<std::unique_ptr<TimelineWriter>> create(const std::filesystem::path& path,
                                                        const std::filesystem::path& beside, std::string command,
                                                        std::int64_t process, std::string version);

  /// The number of the op, from 1. `kind` is the kernel's short name, "memcpy" or "graph"; `attributes` JSON.
  std::int64_t add_op(std::string name, std::string kind, std::string attributes);
  void add(KernelRow row) {
    writer_->add(std::move(row));
    work_added_ = true;
  }
  /// What is said about the process as a whole, for people: the output text of its request.
  void say(std::string text);
  /// Ends the step that is open, if there is one, and keeps the work that was added since. Errors: the disk is full;
  /// the timeline then ends there.
  Status commit();
  /// Ends the recording: it is complete.
  Status finish();

  std::int64_t ops() const { return ops_; }
  /// What the file is called, or will be.
  const std::filesystem::path& path() const { return path_; }

 private:
  TimelineWriter(std::filesystem::path path, std::unique_ptr<RecordingWriter> writer, RequestRow request);
  void open_step();

  std::filesystem::path path_;
  std::unique_ptr<RecordingWriter> writer_;
  RequestRow request_;
  std::int64_t steps_ = 0;
  std::int64_t ops_ = 0;
  std::int64_t ops_in_step_ = 0;
  bool step_open_ = false;
  bool work_added_ = false;
};

}  // namespace nanscope::live
