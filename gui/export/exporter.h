#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/result.h"

namespace nanscope::gui {

std::vector<std::byte> bytes_of(std::string_view text);

/// Writes files on a thread of its own, one after another, each under a name that was free. The destructor lets
/// what was asked for be written.
class Exporter {
 public:
  /// What is in the file.
  using Make = std::function<Result<std::vector<std::byte>>()>;
  /// The file, or why there is none.
  using Saved = Result<std::filesystem::path>;

  /// For files about this recording.
  explicit Exporter(const std::filesystem::path& recording);
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;
  ~Exporter();

  /// Into `<recording>-<what>.<extension>`.
  void save(const std::string& what, std::string extension, Make make);
  /// What was saved since the last call.
  std::vector<Saved> poll();
  bool busy() const;

 private:
  struct Task {
    std::string stem;
    std::string extension;
    Make make;
  };
  void serve(const std::stop_token& stop);
  /// No exception leaves the thread.
  static Result<std::vector<std::byte>> guarded(const Task& task);
  Saved carry_out(const Task& task) const;

  std::string stem_;
  std::vector<std::filesystem::path> folders_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Task> waiting_;
  std::vector<Saved> saved_;
  bool writing_ = false;
  std::jthread thread_;  ///< last: it uses all of the above
};

}  // namespace nanscope::gui
