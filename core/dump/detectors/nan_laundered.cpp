#include <fmt/format.h>

#include <algorithm>

#include "core/dump/detectors/detector.h"
#include "core/dump/quantized.h"

namespace nanscope::dump_detectors {
namespace {

/// What makes `to` of `from`, row by row: a NaN in a row of the one must be in that row of the other.
struct Passage {
  TensorIndex from = 0;
  TensorIndex to = 0;
  std::string_view what;
};

std::vector<Passage> passages(DumpFacts& facts) {
  std::vector<Passage> out;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const DumpTensor& tensor = facts.tensor(i);
    if (tensor.at.port != Port::output) continue;
    const ModuleKind kind = tensor.at.kind;
    const bool local = kind == ModuleKind::linear || kind == ModuleKind::norm || kind == ModuleKind::activation ||
                       kind == ModuleKind::softmax || kind == ModuleKind::rotary || kind == ModuleKind::router;
    if (!local) continue;
    std::optional<TensorIndex> input = facts.input_of(i);
    if (!input && tensor.at.role == "probs") input = facts.in_layer(i, "scores");
    if (input && *input != i && facts.tensor(*input).rows() == tensor.rows()) out.push_back({*input, i, "op"});
  }
  for (const Quantized& quantized : quantized_tensors(facts)) {
    if (quantized.source) out.push_back({*quantized.source, quantized.codes, "cast"});
    if (quantized.readback && facts.tensor(quantized.codes).bad())
      out.push_back({quantized.codes, *quantized.readback, "cast"});
  }
  return out;
}

}  // namespace

/// A NaN that goes into an op or a cast and does not come out: a max that prefers numbers, a format without NaN. What
/// comes out is garbage that looks healthy.
DumpReport detect_nan_laundered(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::size_t with_nan = 0;
  for (const Passage& passage : passages(facts)) {
    const DumpTensor& from = facts.tensor(passage.from);
    const DumpTensor& to = facts.tensor(passage.to);
    if (from.health.nan == 0 || from.rows() != to.rows() || explained.has(passage.to)) continue;
    ++with_nan;
    const std::vector<Health>& before = facts.rows(passage.from);
    const std::vector<Health>& after = facts.rows(passage.to);
    std::vector<std::int64_t> rows;
    std::uint64_t vanished = 0;
    for (std::size_t row = 0; row < std::min(before.size(), after.size()); ++row) {
      if (before[row].nan == 0 || after[row].bad() > 0) continue;
      rows.push_back(static_cast<std::int64_t>(row));
      vanished += before[row].nan;
    }
    if (rows.empty()) continue;
    DumpFinding finding = finding_at(facts, passage.to, {passage.to}, rows);
    finding.fault.evidence = {{"nan_before", static_cast<std::int64_t>(vanished)},
                              {"rows", static_cast<std::int64_t>(rows.size())},
                              {"first_row", rows.front()},
                              {"by", std::string(passage.what)}};
    finding.fault.summary = fmt::format("{} NaN in {} of {} rows of {} are gone in {}: the {} made numbers of them",
                                        vanished, rows.size(), from.rows(), from.name, to.name, passage.what);
    finding.fault.fix =
        "let NaN pass through (a max that propagates, a cast that keeps NaN), and look for where it was born";
    report.findings.push_back(std::move(finding));
  }
  report.figure =
      fmt::format("NaN went into {} dumped ops and casts, and vanished in {}", with_nan, report.findings.size());
  return report;
}

}  // namespace nanscope::dump_detectors
