#include "scenarios/open_scan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "instrument/facts/facts_file.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "scenarios/analysis.h"

namespace nanscope::scenarios {
namespace {

/// Bytes of tensors of one file that are scanned by one process.
constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;
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

Result<std::unique_ptr<OpenScan>> OpenScan::open(const std::filesystem::path& path, OpenRunOptions options) {
  options.scan = false;
  Result<std::unique_ptr<OpenRun>> run = OpenRun::open(path, options);
  if (!run) return tl::unexpected(run.error());
  if ((*run)->dump() == nullptr)
    return fail(path.string() + ": it is a recording, whose health is recorded; a scan is of dumps");
  std::unique_ptr<OpenScan> made(new OpenScan(std::move(*run)));
  made->sums_ = options.sums;
  return made;
}

std::uint64_t OpenScan::bytes() const {
  std::uint64_t sum = 0;
  for (const DumpTensor& tensor : std::as_const(*run_).dump()->dump().tensors)
    sum += static_cast<std::uint64_t>(bytes_of(tensor));
  return sum;
}

std::vector<ScanPiece> OpenScan::pieces() {
  RunView& view = run_->view();
  const OpenDump& dump = *std::as_const(*run_).dump();
  const std::vector<DumpTensor>& tensors = dump.dump().tensors;
  Facts facts(view);
  KernelArithmetic arithmetic;
  Recomputer recomputer(facts, arithmetic);
  std::vector<ScanPiece> made;
  std::map<TensorId, std::size_t> by_output;
  for (const Step& step : view.steps()) {
    for (const Op& op : view.content(step.id).ops) {
      for (const TensorId id : op.outputs) {
        const Tensor* out = view.tensor(id);
        if (out == nullptr || !out->known || out->count() == 0 || !recomputer.judged_alone(op, *out)) continue;
        by_output[id] = made.size();
        made.push_back({{}, {id}, cost_of(view, op, *out)});
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
    ScanPiece piece;
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

ScanPiece OpenScan::piece_of(const std::set<std::string>& files) {
  const std::vector<DumpTensor>& tensors = std::as_const(*run_).dump()->dump().tensors;
  ScanPiece joined;
  for (ScanPiece& piece : pieces()) {
    std::erase_if(piece.tensors, [&](std::size_t i) { return !files.contains(tensors[i].file); });
    std::erase_if(piece.outputs, [&](TensorId id) {
      const DumpTensor* dumped = run_->dump_run()->dumped(id);
      return dumped == nullptr || !files.contains(dumped->file);
    });
    if (piece.tensors.empty() && piece.outputs.empty()) continue;
    joined.tensors.insert(joined.tensors.end(), piece.tensors.begin(), piece.tensors.end());
    joined.outputs.insert(joined.outputs.end(), piece.outputs.begin(), piece.outputs.end());
    joined.cost += piece.cost;
  }
  return joined;
}

Status OpenScan::scan(const ScanPiece& piece, const DumpFacts& known, const FactSink& sink, const std::stop_token& stop,
                      const std::function<void(std::int64_t)>& more) {
  OpenDump& dump = *run_->dump();
  const std::vector<DumpTensor>& tensors = dump.dump().tensors;
  std::vector<std::size_t> left;
  std::set<std::size_t> files;
  for (const std::size_t i : piece.tensors) {
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

Status OpenScan::recompute(const ScanPiece& piece, const DumpFacts& known, const FactSink& sink,
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
  for (const TensorId id : piece.outputs) {
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

Status OpenScan::work(const ScanPiece& piece, const DumpFacts& known, const FactSink& sink, const std::stop_token& stop,
                      const std::function<void(std::int64_t)>& progress) {
  if (Status scanned = scan(piece, known, sink, stop, progress); !scanned) return scanned;
  return recompute(piece, known, sink, stop, progress);
}

}  // namespace nanscope::scenarios
