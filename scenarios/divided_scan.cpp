#include "scenarios/divided_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "instrument/facts/facts_file.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "scenarios/analysis.h"

namespace nanscope::scenarios {
namespace {

/// Bytes of tensors of one file that are scanned by one process.
constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;
/// What else a tensor takes, in bytes that could be read meanwhile: it is looked up, its fact is kept.
constexpr std::int64_t kEachTensor = 4096;
/// A multiplication of a product takes as long as reading these, as docs/scale.md measures it.
constexpr std::int64_t kBytesPerProduct = 2;

std::int64_t bytes_of(const DumpTensor& tensor) {
  return static_cast<std::int64_t>(tensor.dtype->bytes(static_cast<std::uint64_t>(tensor.count())));
}

std::int64_t cost_of(RunView& run, const Op& op, const Tensor& out) {
  const Tensor* weight = run.input(op, "weight");
  const std::int64_t each = weight == nullptr ? 1 : std::min(weight->tokens, weight->channels);
  return kBytesPerProduct * std::min(out.count() * std::max<std::int64_t>(1, each), Recomputer::kOpCost);
}

}  // namespace

std::optional<FactKey> FactJudgements::identity(const Tensor& tensor) {
  DumpRun* run = run_.dump_run();
  const DumpTensor* dumped = run != nullptr ? run->dumped(tensor.id) : nullptr;
  if (dumped == nullptr || run_.dump() == nullptr) return std::nullopt;
  const Layout layout = run->layout_of(tensor.id);
  // A part of a fused projection does not say which one it is.
  if (!layout.plain() || layout.channels() != tensor.channels || layout.offset != 0) return std::nullopt;
  const std::optional<FactKey> stored = run_.dump()->identity_of(*dumped);
  if (!stored) return std::nullopt;
  return FactKeyMaker("matrix").add(*stored).add(name(tensor.format)).add(tensor.tokens).add(tensor.channels).key();
}

DividedScan::~DividedScan() = default;

Result<std::unique_ptr<DividedScan>> DividedScan::open(const std::filesystem::path& path, OpenRunOptions options) {
  options.scan = false;
  const bool sums = options.sums;
  Result<std::unique_ptr<OpenRun>> run = OpenRun::open(path, options);
  if (!run) return tl::unexpected(run.error());
  if ((*run)->dump() == nullptr)
    return fail(path.string() + ": it is a recording, whose health is recorded; a scan is of dumps");
  std::unique_ptr<DividedScan> made(new DividedScan(std::move(*run)));
  made->sums_ = sums;
  return made;
}

FactKey DividedScan::dump_key() const {
  FactKeyMaker maker("dump");
  for (const DumpFileState& file : run_->dump()->files()) maker.add(file.state);
  return maker.key();
}

DividedScan::Counts DividedScan::counts() const {
  Counts counts;
  const Dump& dump = run_->dump()->dump();
  for (const DumpTensor& tensor : dump.tensors) {
    ++counts.tensors;
    counts.bytes += static_cast<std::uint64_t>(bytes_of(tensor));
  }
  return counts;
}

std::vector<DividedScan::Piece> DividedScan::pieces() {
  RunView& view = run_->view();
  const OpenDump& dump = *std::as_const(*run_).dump();
  const std::vector<DumpTensor>& tensors = dump.dump().tensors;
  Facts facts(view);
  KernelArithmetic arithmetic;
  Recomputer recomputer(facts, arithmetic);
  std::vector<Piece> made;
  std::map<TensorId, std::size_t> by_output;
  for (const Step& step : view.steps()) {
    for (const Op& op : view.content(step.id).ops) {
      for (const TensorId id : op.outputs) {
        const Tensor* out = view.tensor(id);
        if (out == nullptr || !out->known || out->count() == 0 || !recomputer.judged_alone(op, *out)) continue;
        by_output[id] = made.size();
        made.push_back({{}, id, cost_of(view, op, *out)});
      }
    }
  }
  // A process that recomputes an output scans it too, as it has its bytes. Others go file by file.
  std::map<std::size_t, std::vector<std::size_t>> by_file;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!dump.is_scanned(tensors[i]) || !dump.file_of(tensors[i])) continue;
    const auto output = by_output.find(run_->dump_run()->tensor_of(i));
    if (output == by_output.end()) {
      by_file[*dump.file_of(tensors[i])].push_back(i);
      continue;
    }
    made[output->second].tensors.push_back(i);
    made[output->second].cost += bytes_of(tensors[i]) + kEachTensor;
  }
  for (const auto& [file, members] : by_file) {
    Piece piece;
    for (const std::size_t i : members) {
      piece.tensors.push_back(i);
      piece.cost += bytes_of(tensors[i]) + kEachTensor;
      if (piece.cost < kPieceBytes && i != members.back()) continue;
      made.push_back(std::move(piece));
      piece = {};
    }
  }
  return made;
}

std::vector<ScanShare> DividedScan::shares(std::int64_t parts) {
  std::vector<Piece> all = pieces();
  std::stable_sort(all.begin(), all.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
  std::vector<ScanShare> shares(static_cast<std::size_t>(parts));
  using Load = std::pair<std::int64_t, std::size_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t i = 0; i < shares.size(); ++i) least.emplace(0, i);
  for (const Piece& piece : all) {
    const std::size_t index = least.top().second;
    least.pop();
    ScanShare& share = shares[index];
    share.tensors.insert(share.tensors.end(), piece.tensors.begin(), piece.tensors.end());
    if (piece.output != 0) share.outputs.push_back(piece.output);
    share.cost += piece.cost;
    least.emplace(share.cost, index);
  }
  // In the order of the dump, as files lie.
  for (ScanShare& share : shares) {
    std::sort(share.tensors.begin(), share.tensors.end());
    std::sort(share.outputs.begin(), share.outputs.end());
  }
  return shares;
}

Status DividedScan::scan(const ScanShare& share, const DumpFacts& known, const FactSink& sink,
                         const std::stop_token& stop, const std::function<void(std::int64_t)>& more) {
  OpenDump& dump = *run_->dump();
  const std::vector<DumpTensor>& tensors = dump.dump().tensors;
  std::vector<std::size_t> left;
  std::set<std::size_t> files;
  for (const std::size_t i : share.tensors) {
    files.insert(*dump.file_of(tensors[i]));
    const auto key = dump.fact_key(tensors[i], sums_);
    if (key && known.find(*key) == nullptr)
      left.push_back(i);
    else
      more(bytes_of(tensors[i]) + kEachTensor);
  }
  for (const std::size_t file : files) {
    if (!known.has_file(dump.files()[file])) sink(facts_records::file(dump.files()[file]));
  }
  OpenDumpOptions options;
  options.stop = stop;
  options.sums = sums_;
  return dump.scan_some(left, options, [&](std::size_t i, const TensorFact& fact) {
    sink(facts_records::tensor(*dump.fact_key(tensors[i], sums_), fact));
    more(bytes_of(tensors[i]) + kEachTensor);
  });
}

Status DividedScan::recompute(const ScanShare& share, const DumpFacts& known, const FactSink& sink,
                              const std::stop_token& stop, const std::function<void(std::int64_t)>& more) {
  RunView& view = run_->view();
  Facts facts(view);
  KernelArithmetic arithmetic;
  FactJudgements judgements(*run_, known);
  judgements.hears = [&](const FactKey& key, const Recomputed& judged) { sink(facts_records::judgement(key, judged)); };
  RecomputerOptions options;
  options.stop = stop;
  options.model = known_model(*run_);
  options.judgements = &judgements;
  Recomputer recomputer(facts, arithmetic, options);
  for (const TensorId id : share.outputs) {
    const Tensor* out = view.tensor(id);
    const Op* op = out != nullptr ? view.maker(*out) : nullptr;
    if (op == nullptr) continue;
    // The first that explains everything is the one that a diagnosis chooses.
    for (const OpForm& form : recomputer.forms_of(*op, *out)) {
      if (stop.stop_requested()) return fail("stopped");
      const auto judged = recomputer.judge(*op, *out, form);
      if (judged && judged->explained == judged->elements) break;
    }
    more(cost_of(view, *op, *out));
  }
  return stop.stop_requested() ? fail("stopped") : run_->check();
}

Status DividedScan::work(const ScanShare& share, const DumpFacts& known, const FactSink& sink, std::stop_token stop,
                         const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  std::int64_t done = 0;
  const auto more = [&](std::int64_t cost) {
    done += cost;
    if (progress) progress(std::min(done, share.cost), share.cost);
  };
  if (Status scanned = scan(share, known, sink, stop, more); !scanned) return scanned;
  return recompute(share, known, sink, stop, more);
}

}  // namespace nanscope::scenarios
