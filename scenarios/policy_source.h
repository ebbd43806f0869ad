#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "instrument/engine/engine.h"
#include "instrument/policies/layer_tokens.h"
#include "scenarios/run_spec.h"

namespace nanscope::scenarios {

struct PolicySourceOptions {
  std::string target;           ///< a scenario (a file, or a name of the library), a recording, a dump
  std::filesystem::path model;  ///< of a dump: the folder with the config.json of what was served; empty: none
  std::int64_t heads = 0;       ///< of queries, where neither the run nor a config.json says; 0: not given
  bool follow_links = false;
  std::stop_token stop;
  RunLimits limits = kReplayLimits;
  /// Ops of a scenario, or bytes of a dump: done of total.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& unit)> progress;
};

/// A run whose queries, keys and values can be had, whatever it is of: a scenario is run first, what a recording does
/// not hold is made again.
class PolicySource {
 public:
  /// Errors, in one line: those of the scenario, the recording, the dump, the config.json; stopped.
  static Result<std::unique_ptr<PolicySource>> open(const PolicySourceOptions& options);
  PolicySource(const PolicySource&) = delete;
  PolicySource& operator=(const PolicySource&) = delete;
  ~PolicySource();

  RunView& view();
  /// Of a dump: does its ops again, see CollectOptions::again. Null of a run that states all of it.
  Recomputer* again();
  /// As PolicyOptions::known.
  KnownAttention known(std::int64_t layer) const;
  /// What can be run again; null for a dump.
  const RunSpec* spec() const;
  /// Of that run; null for a dump.
  const Recording* recording() const;
  /// Files and tensors of a dump that could not be read, where others were.
  const std::vector<RunNote>& unread() const;
  /// To be asked when what was read is to be believed.
  Status check() const;

 private:
  struct Parts;
  explicit PolicySource(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace nanscope::scenarios
