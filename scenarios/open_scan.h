#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/facts/dump_facts.h"
#include "scenarios/open_run.h"

/// The facts of an open dump: docs/scale.md.
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

/// What else a tensor or a file takes, in bytes that could be read meanwhile: it is looked up, its fact is kept.
inline constexpr std::int64_t kEachTensor = 4096;

/// Facts that are computed together. Indices of tensors are those of the dump.
struct ScanPiece {
  std::vector<std::size_t> tensors;
  std::vector<TensorId> outputs;  ///< to be recomputed
  std::int64_t cost = 0;          ///< in bytes to be read, and what takes as long
};

/// Receives facts, as records of facts_records.
using FactSink = std::function<void(const std::string& record)>;

/// A dump that is open, without the health of its tensors.
class OpenScan {
 public:
  /// Errors: those of OpenRun::open(); a recording.
  static Result<std::unique_ptr<OpenScan>> open(const std::filesystem::path& path, OpenRunOptions options);

  const OpenRun& run() const { return *run_; }
  std::uint64_t bytes() const;  ///< of all tensors
  /// All facts, in pieces that are not to be divided further.
  std::vector<ScanPiece> pieces();
  /// Those of some files, by the names that they are shown under.
  ScanPiece piece_of(const std::set<std::string>& files);
  /// Does what of a piece is not among `known`. `progress` hears of the cost of what was done. Errors: a file was
  /// written to; stopped.
  Status work(const ScanPiece& piece, const DumpFacts& known, const FactSink& sink, const std::stop_token& stop,
              const std::function<void(std::int64_t more)>& progress);

 private:
  explicit OpenScan(std::unique_ptr<OpenRun> run) : run_(std::move(run)) {}
  Status scan(const ScanPiece& piece, const DumpFacts& known, const FactSink& sink, const std::stop_token& stop,
              const std::function<void(std::int64_t)>& more);
  Status recompute(const ScanPiece& piece, const DumpFacts& known, const FactSink& sink, const std::stop_token& stop,
                   const std::function<void(std::int64_t)>& more);

  std::unique_ptr<OpenRun> run_;
  bool sums_ = false;
};

}  // namespace nanscope::scenarios
