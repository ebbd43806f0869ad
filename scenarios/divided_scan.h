#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "instrument/facts/dump_facts.h"
#include "scenarios/open_run.h"

/// The facts of a dump, computed in shares by several processes: docs/scale.md.
namespace nanscope::scenarios {

/// Recomputed outputs of an open dump that are facts. The run and the facts must outlive it.
class FactJudgements final : public Judgements {
 public:
  FactJudgements(OpenRun& run, const DumpFacts& facts) : run_(run), facts_(facts) {}
  /// Hears of each judgement that was not among the facts.
  std::function<void(const FactKey& key, const Recomputed& judged)> hears;

  std::optional<FactKey> identity(const Tensor& tensor) override;
  const Recomputed* find(const FactKey& judgement) const override { return facts_.find_judgement(judgement); }
  void found(const FactKey& key, const Recomputed& judged) override {
    if (hears) hears(key, judged);
  }

 private:
  OpenRun& run_;
  const DumpFacts& facts_;
};

/// What one process does. Indices of tensors are those of the dump.
struct ScanShare {
  std::vector<std::size_t> tensors;
  std::vector<TensorId> outputs;  ///< to be recomputed
  std::int64_t cost = 0;          ///< in bytes to be read, and what takes as long
};

/// Receives facts, as records of facts_records.
using FactSink = std::function<void(const std::string& record)>;

class DividedScan {
 public:
  struct Counts {
    std::int64_t tensors = 0;
    std::int64_t outputs = 0;
    std::uint64_t bytes = 0;  ///< of the tensors
    std::int64_t cost = 0;
  };

  /// Opens a dump and reads no elements but those that say what it is. Errors: those of OpenRun::open(); a recording.
  static Result<std::unique_ptr<DividedScan>> open(const std::filesystem::path& path, OpenRunOptions options);
  ~DividedScan();

  /// The dump's files, for parts of one scan to find each other by.
  FactKey dump_key() const;
  const OpenRun& run() const { return *run_; }
  Counts counts() const;
  /// Divides the work by its cost, the most expensive first, each piece to who has the least: alike in each process.
  std::vector<ScanShare> shares(std::int64_t parts);
  /// Does what of a share is not among `known`. `progress`: cost done, and in all. Errors: a file was written to;
  /// stopped.
  Status work(const ScanShare& share, const DumpFacts& known, const FactSink& sink, std::stop_token stop,
              const std::function<void(std::int64_t done, std::int64_t total)>& progress);

 private:
  struct Piece {
    std::vector<std::size_t> tensors;
    TensorId output = 0;
    std::int64_t cost = 0;
  };
  explicit DividedScan(std::unique_ptr<OpenRun> run) : run_(std::move(run)) {}
  std::vector<Piece> pieces();
  Status scan(const ScanShare& share, const DumpFacts& known, const FactSink& sink, const std::stop_token& stop,
              const std::function<void(std::int64_t)>& more);
  Status recompute(const ScanShare& share, const DumpFacts& known, const FactSink& sink, const std::stop_token& stop,
                   const std::function<void(std::int64_t)>& more);

  std::unique_ptr<OpenRun> run_;
  bool sums_ = false;
};

}  // namespace nanscope::scenarios
