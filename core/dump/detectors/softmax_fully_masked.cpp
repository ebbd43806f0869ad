#include <fmt/format.h>

#include <optional>

#include "core/dump/detectors/detector.h"

namespace nanscope::dump_detectors {
namespace {

/// Rows that hold nothing but -inf.
std::vector<std::int64_t> empty_rows(DumpFacts& facts, TensorIndex index) {
  std::vector<std::int64_t> rows;
  if (facts.tensor(index).health.neg_inf < static_cast<std::uint64_t>(facts.tensor(index).channels())) return rows;
  const std::vector<Health>& health = facts.rows(index);
  for (std::size_t row = 0; row < health.size(); ++row) {
    if (health[row].count > 0 && health[row].neg_inf == health[row].count)
      rows.push_back(static_cast<std::int64_t>(row));
  }
  return rows;
}

/// What was made of scores, a mask or logits.
std::optional<TensorIndex> made_of(const DumpFacts& facts, TensorIndex index) {
  for (const std::string_view role : {"probs", "attn_out"}) {
    const auto found = facts.in_layer(index, role);
    if (found && *found > index) return found;
  }
  return std::nullopt;
}

DumpFinding finding_of(DumpFacts& facts, TensorIndex index, const std::vector<std::int64_t>& rows, TensorIndex shown) {
  const DumpTensor& tensor = facts.tensor(index);
  // The mask that emptied the rows, where it was dumped beside the scores.
  const std::optional<TensorIndex> mask = facts.in_layer(index, "mask");
  const bool masks = mask && !empty_rows(facts, *mask).empty();
  DumpFinding finding = finding_at(facts, masks ? *mask : index, {shown}, rows);
  finding.fault.evidence = {{"rows", static_cast<std::int64_t>(rows.size())},
                            {"of", tensor.rows()},
                            {"first_row", rows.front()},
                            {"keys", tensor.channels()}};
  finding.fault.summary =
      fmt::format("{} of {} rows of {} are -inf in all {} columns, the first is row {}: nothing is left to choose from",
                  rows.size(), tensor.rows(), tensor.name, tensor.channels(), rows.front());
  finding.fault.fix = "leave every query a key (its own), or make the softmax of an empty row zeros";
  finding.fault.breaks = true;
  return finding;
}

}  // namespace

/// A row that a mask leaves without a key: exp(-inf - (-inf)) is NaN. Masks are looked at where the scores were not
/// dumped.
DumpReport detect_softmax_fully_masked(DumpFacts& facts, const Explained& explained) {
  DumpReport report;
  std::int64_t looked_at = 0;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const DumpTensor& tensor = facts.tensor(i);
    const bool mask = tensor.at.role == "mask";
    if ((!mask && tensor.at.role != "scores" && tensor.at.role != "logits") || explained.has(i)) continue;
    if (mask && facts.in_layer(i, "scores")) continue;
    looked_at += tensor.rows();
    const std::vector<std::int64_t> rows = empty_rows(facts, i);
    if (rows.empty()) continue;
    const std::optional<TensorIndex> after = made_of(facts, i);
    // Rows of padding are empty on purpose where what follows is healthy; a mask alone proves nothing.
    if (after ? !facts.tensor(*after).bad() : mask) continue;
    report.findings.push_back(finding_of(facts, i, rows, after.value_or(i)));
  }
  report.figure = fmt::format("{} tensors with rows without a key, of {} rows of scores, masks and logits looked at",
                              report.findings.size(), looked_at);
  return report;
}

}  // namespace nanscope::dump_detectors
