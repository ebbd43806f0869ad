#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/dump/pass_files.h"
#include "scenarios/open_scan.h"

/// The facts of a dump, computed in shares by several processes: docs/scale.md.
namespace nanscope::scenarios {

/// What one process does: facts of a dump that is open, or of files that are to be opened.
struct ScanShare {
  ScanPiece piece;
  std::vector<const PassFiles*> passes;
  std::int64_t cost = 0;

  bool empty() const { return cost == 0; }
};

/// What was done for a share.
struct ScanCounts {
  std::int64_t tensors = 0;
  std::int64_t outputs = 0;
  std::uint64_t bytes = 0;  ///< of all tensors of the files that were opened for it
};

struct DivideOptions {
  std::int64_t parts = 1;
  bool recompute = true;
  /// A dump of more files is divided by its passes where that is even, without a file being opened. So many are opened
  /// at a time then.
  std::size_t files_at_once = 256;
};

class DividedScan {
 public:
  /// Lists a dump and divides the work by its cost, the most expensive first, each piece to who has the least: alike in
  /// each process. Errors: those of OpenRun::open(); a recording.
  static Result<std::unique_ptr<DividedScan>> open(const std::filesystem::path& path, OpenRunOptions options,
                                                   const DivideOptions& dividing);

  /// The dump's files, for parts of one scan to find each other by.
  const FactKey& dump_key() const { return key_; }
  const std::vector<ScanShare>& shares() const { return shares_; }
  /// Of the tensors, or of their files.
  std::uint64_t bytes() const { return bytes_; }
  /// Whether no file was opened to divide it.
  bool by_files() const { return scan_ == nullptr; }
  /// Does what of a share is not among `known`. `progress`: cost done, and in all. `unread` hears of what could not be
  /// read. Errors: a file was written to; stopped.
  Result<ScanCounts> work(const ScanShare& share, const DumpFacts& known, const FactSink& sink, std::stop_token stop,
                          const std::function<void(std::int64_t done, std::int64_t total)>& progress,
                          const std::function<void(const RunNote& note)>& unread = {}) const;

 private:
  DividedScan() = default;
  bool divide_files(const DivideOptions& dividing);
  void divide_facts(const DivideOptions& dividing);
  Result<ScanCounts> work_on(const std::vector<const PassFiles*>& passes, const DumpFacts& known, const FactSink& sink,
                             const std::stop_token& stop, const std::function<void(std::int64_t)>& more,
                             const std::function<void(const RunNote& note)>& unread) const;

  std::filesystem::path path_;
  OpenRunOptions options_;
  DumpListing listing_;
  FactKey key_;
  std::optional<FilesByPass> files_;
  std::unique_ptr<OpenScan> scan_;
  std::vector<ScanShare> shares_;
  std::uint64_t bytes_ = 0;
  std::size_t files_at_once_ = 0;
  bool recompute_ = true;
};

}  // namespace nanscope::scenarios
