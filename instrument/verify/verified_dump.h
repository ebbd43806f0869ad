#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>

#include "core/dump/dump_run.h"
#include "core/result.h"
#include "instrument/dump/open_dump.h"
#include "instrument/model/model_spec.h"

namespace nanscope {

struct VerifiedDumpOptions {
  std::filesystem::path dump;
  std::filesystem::path model;    ///< the checkpoint's folder
  std::filesystem::path adapter;  ///< a LoRA adapter that was served merged; empty: none
  bool follow_links = false;
  std::stop_token stop;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  ///< bytes scanned
};

/// The heads of a model, for the layouts of a dump's tensors.
Geometry geometry_of(const ModelSpec& spec);

/// A dump with its model's weights beside it, as verify() takes it.
struct VerifiedDump {
  ModelSpec spec;
  std::unique_ptr<OpenDump> dump;
  std::unique_ptr<DumpRun> run;

  /// The dump as a run once more, for another thread.
  std::unique_ptr<DumpRun> another_run(std::stop_token stop) const;

  /// Errors: those of read_model_spec(), merged_weights() and OpenDump::open().
  static Result<std::unique_ptr<VerifiedDump>> open(const VerifiedDumpOptions& options);
};

}  // namespace nanscope
