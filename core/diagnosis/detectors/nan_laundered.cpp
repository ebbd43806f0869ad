#include <fmt/format.h>

#include <set>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

/// The tensor input of a row-local op that has bad rows where `output` has none; those rows.
std::vector<std::int64_t> laundered_rows(Facts& facts, const TensorRow& input, const TensorRow& output) {
  std::vector<std::int64_t> rows;
  if (input.tokens != output.tokens) return rows;
  for (const std::int64_t row : facts.bad_rows(input)) {
    if (!facts.row_bad(output, row)) rows.push_back(row);
  }
  return rows;
}

/// What a row-local op's output is made of: k_codes of k, v_codes of v, everything else of all inputs.
bool feeds(const InputRow& input, const TensorRow& output) {
  if (output.role == "k_codes") return input.role == "k";
  if (output.role == "v_codes") return input.role == "v";
  return true;
}

bool may_launder(const OpRow& op) { return row_local(op) && op.kind != "embedding" && op.kind != "argmax"; }

}  // namespace

/// A row that was NaN before an op and is finite after it: the fault goes on as plausible garbage.
FaultReport detect_nan_laundered(Facts& facts) {
  FaultReport report;
  std::set<std::int64_t> steps;
  for (const SickOp& sick : facts.sick_ops()) steps.insert(sick.step.id);
  std::int64_t looked_at = 0;
  for (const std::int64_t step : steps) {
    OpFilter filter;
    filter.step = step;
    for (const OpRow& op : facts.run.ops(filter)) {
      if (!may_launder(op)) continue;
      ++looked_at;
      for (const TensorRow& output : facts.run.tensors_of(op.id)) {
        for (const InputRow& row : facts.run.inputs_of(op.id)) {
          if (row.tensor == 0 || !feeds(row, output)) continue;
          const std::optional<TensorRow> input = facts.run.tensor(row.tensor);
          if (!input || input->health.bad() == 0) continue;
          const std::vector<std::int64_t> rows = laundered_rows(facts, *input, output);
          // A select mask drops NaN of keys that the row may not see: that is what it is for.
          if (rows.empty() || op.kind == "softmax") continue;
          if (!report.faults.empty()) {
            report.faults.front().ops.push_back(op.id);
            continue;
          }
          FoundFault found;
          found.ops = {op.id};
          found.element = Element{input->id, rows.front(), 0};
          found.fault.where = facts.where(output, rows);
          found.fault.evidence = {{"rows with NaN before", static_cast<std::int64_t>(facts.bad_rows(*input).size())},
                                  {"finite after", static_cast<std::int64_t>(rows.size())},
                                  {"format", std::string(name(output.format))}};
          found.fault.summary = fmt::format("{} rows that are NaN or Inf before {} are finite {} after it", rows.size(),
                                            tensor_text(found.fault.where), name(output.format));
          found.fault.fix = "stop at the NaN before this op: its format or its rule hides it";
          report.faults.push_back(std::move(found));
        }
      }
    }
  }
  report.figure = fmt::format("{} row-wise ops of {} steps with NaN looked at", looked_at, steps.size());
  return report;
}

}  // namespace nanscope
