#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/recording/reader.h"
#include "core/result.h"
#include "core/run/run_data.h"
#include "core/run/run_view.h"
#include "core/run/tensor_source.h"
#include "instrument/dump/open_dump.h"
#include "instrument/facts/dump_facts.h"
#include "instrument/model/model_spec.h"
#include "scenarios/replay.h"

namespace nanscope::scenarios {

struct OpenRunOptions {
  /// Bytes of a dump that were scanned, and in all: one call at a time, from any thread. Not called for recordings.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  /// Ends opening, and all reads of the run later on.
  std::stop_token stop;
  bool follow_links = false;  ///< of a dump, read what links in it lead to out of it too
  bool sums = false;          ///< health of a dump's activations has sums, which doubles the time of the scan
  /// Bytes of a recording's elements that are kept: of those that one replay re-made, and of those that were read last.
  std::size_t replay_bytes = ReplayTensors::kBudget;
  std::size_t cache_bytes = RecordingTensors::kCacheBudget;
  RunLimits limits = kReplayLimits;  ///< what a replay of a recording may take
  /// The folder of a dump's checkpoint: its weights are those of the ops, and its config.json says how they are
  /// computed. Empty: none. A recording has its own.
  std::filesystem::path model = {};
  bool scan = true;                         ///< false: a dump's tensors have no health
  const DumpFacts* facts = nullptr;         ///< of a dump, spare reading; must outlive the run
  bool facts_only = false;                  ///< tensors without facts are not looked at
  std::optional<DumpListing> listing = {};  ///< of a dump, files to be read: see OpenDumpOptions
};

/// A file of which Recording::open() is to say what is wrong with it, rather than OpenDump: it has a recording's name,
/// or its bytes are a database that no other producer is known to write.
bool looks_like_recording(const std::string& path);

/// A recording or a dump, open to be looked at: nobody who has one needs to know which.
class OpenRun {
 public:
  /// Errors, in one line: those of Recording::open() and OpenDump::open(); stopped.
  static Result<std::unique_ptr<OpenRun>> open(const std::filesystem::path& path, const OpenRunOptions& options = {});
  /// Tensors in memory as a dump, see OpenDump::of().
  static Result<std::unique_ptr<OpenRun>> of(std::string target, std::vector<NamedTensor> tensors,
                                             const OpenRunOptions& options = {});
  OpenRun(const OpenRun&) = delete;
  OpenRun& operator=(const OpenRun&) = delete;
  ~OpenRun();

  RunView& view();
  /// The same as rows, ids being those of the view.
  RunData& rows();
  /// Elements by the ids of the rows; of a recording, what it does not hold is re-made by replay.
  TensorSource& tensors();

  /// Null for a dump. Of a dump that was attached with schema 1, ids are those of the view, not of the recording.
  const Recording* recording() const;
  const OpenDump* dump() const;  ///< null for a recording
  OpenDump* dump();
  DumpRun* dump_run();  ///< null for a recording, but for a dump that was attached with schema 1

  /// What the config.json of OpenRunOptions::model says; null where there is none or nanscope does not understand it,
  /// which model_note() explains.
  const ModelSpec* model() const;
  const std::string& model_note() const;
  /// Numbers under keys of the config.json that name an eps, where model() is null.
  std::span<const double> norm_eps() const;

  const DumpFacts* facts() const;  ///< OpenRunOptions::facts

  const std::string& target() const;  ///< the path as it was given
  /// Files and tensors of a dump that could not be read, where others were: to be said aloud.
  std::span<const RunNote> unread() const;
  /// To be asked when what was read is to be believed: see OpenDump::check().
  Status check() const;

 private:
  struct Parts;
  explicit OpenRun(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace nanscope::scenarios
