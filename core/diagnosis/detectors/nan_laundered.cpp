#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/counted.h"
#include "core/diagnosis/detectors/detector.h"
#include "core/diagnosis/provenance/walk.h"

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

/// Whether a key that the row may see has a NaN score. A mask drops NaN of the other keys: that is what it is for.
bool sees_nan(Facts& facts, const OpRow& softmax, const TensorRow& scores, std::int64_t row) {
  const std::shared_ptr<const TensorData> data = facts.elements(scores);
  const auto first_key = number_attribute(softmax, "first_key");
  const auto first_position = number_attribute(softmax, "first_position");
  if (!data || !first_key || !first_position || scores.heads <= 0) return false;
  const std::int64_t keys = scores.channels / scores.heads;
  const std::int64_t last = std::min(keys - 1, static_cast<std::int64_t>(*first_position) + row);
  for (std::int64_t head = 0; head < scores.heads; ++head) {
    for (std::int64_t key = count_attribute(softmax, "first_key", 0); key <= last; ++key) {
      if (std::isnan(data->value(row, head * keys + key))) return true;
    }
  }
  return false;
}

/// What a row-local op's output is made of: k_codes of k, v_codes of v, everything else of all inputs.
bool feeds(const InputRow& input, const TensorRow& output) {
  if (output.role == "k_codes") return input.role == "k";
  if (output.role == "v_codes") return input.role == "v";
  return true;
}

/// Not ops whose outputs say of a NaN input that it is one, or that do not read all of their inputs: the scales of a
/// block are NaN for it, and the padding behind them need not be read.
bool may_launder(const OpRow& op) {
  return row_local(op) && op.kind != "embedding" && op.kind != "argmax" && op.kind != "route" &&
         op.kind != "expert_mix" && op.kind != "block_quantise" && op.kind != "block_gemm";
}

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
          std::vector<std::int64_t> rows = laundered_rows(facts, *input, output);
          if (op.kind == "softmax") {
            std::erase_if(rows, [&](std::int64_t at) { return !sees_nan(facts, op, *input, at); });
          }
          if (rows.empty()) continue;
          if (!report.faults.empty()) {
            report.faults.front().ops.push_back(op.id);
            continue;
          }
          FoundFault found;
          found.ops = {op.id};
          found.element = first_bad_element(facts, *input, rows.front());
          const WhyPath path = walk(facts, *found.element);
          const std::string born = path.origin
                                       ? fmt::format("; born in {}: {}", tensor_text(path.hops[*path.origin].where),
                                                     path.hops[*path.origin].text)
                                       : std::string();
          found.fault.where = facts.where(output, rows);
          found.fault.evidence = {{"rows with NaN before", static_cast<std::int64_t>(facts.bad_rows(*input).size())},
                                  {"finite after", static_cast<std::int64_t>(rows.size())},
                                  {"format", std::string(name(output.format))}};
          found.fault.summary =
              fmt::format("{} that {} NaN or Inf before {} {} finite {} after it{}", counted(rows.size(), "row"),
                          rows.size() == 1 ? std::string_view("is") : "are", tensor_text(found.fault.where),
                          rows.size() == 1 ? std::string_view("is") : "are", name(output.format), born);
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
