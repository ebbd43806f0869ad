#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "gui/background.h"
#include "gui/prepare/prepared.h"
#include "gui/selection.h"

/// The run that stands beside the recording: another recording, or the recorded run with settings changed.
namespace nanscope::gui {

/// A folder of this program's own among the system's temporary files; it goes with all that is in it.
class ScratchFolder {
 public:
  /// Errors: it cannot be made.
  static Result<std::shared_ptr<const ScratchFolder>> make();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

class ModelCheck;

/// A run, or the model that a dump is checked against.
struct BesideRun {
  std::filesystem::path path;
  std::string label;                             ///< "kv.format=bf16", or the name of the file
  std::shared_ptr<const ScratchFolder> scratch;  ///< what the file goes away with; null for a file of the user's
  std::shared_ptr<ModelCheck> check = nullptr;   ///< of the model in `path`; null for a run
};
using BesideRunPtr = std::shared_ptr<const BesideRun>;

/// Runs what a recording states with some settings changed, and records it into a scratch folder. Errors: it
/// cannot be run (an import; settings that do not fit), nothing can be written, stopped.
Result<BesideRunPtr> run_changed(const std::filesystem::path& recording, const std::vector<std::string>& settings,
                                 const std::stop_token& stop, const std::function<void(JobProgress)>& report);

/// Copies a scratch recording beside `recording`, or where else something about it is kept, under a name that tells
/// the change and that no file has. Answers where to. Errors: nothing can be written.
Result<std::filesystem::path> keep_beside(const BesideRun& run, const std::filesystem::path& recording);

/// Where two runs part.
struct Divergence final : Prepared {
  std::string words;               ///< one sentence
  std::optional<Selection> first;  ///< the first tensor whose bits differ; nothing when it is only in the other run
};

/// By the hashes of all tensors, in logical order, or by elements where there are none. Errors: rows cannot be read.
Result<Divergence> find_divergence(RunView& here, RunView& there);

}  // namespace nanscope::gui
