#include "core/dump/recorded_dump.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "core/dump/diagnose_dump.h"
#include "core/tensor/health_of.h"

namespace nanscope {
namespace {

/// Row-major index in the dump's shape to that in the recording's matrix, which has the heads of a token side by side.
std::int64_t recorded_index(const TensorRow& row, bool heads_first, std::int64_t index) {
  if (!heads_first || row.tokens == 0 || row.heads <= 0 || row.channels < row.heads) return index;
  const std::int64_t width = row.channels / row.heads;
  const std::int64_t head = index / width / row.tokens;
  const std::int64_t token = index / width % row.tokens;
  return (token * row.heads + head) * width + index % width;
}

}  // namespace

Status RecordedDump::add(RunData& run, const OpRow& op) {
  const auto attributes = nlohmann::json::parse(op.attributes, nullptr, false);
  if (!attributes.is_object() || !attributes.contains("dumped_as") || !attributes["dumped_as"].is_string() ||
      !attributes.contains("shape") || !attributes["shape"].is_array()) {
    return fail(fmt::format("op {}: its attributes do not say what was dumped", op.id));
  }
  for (const TensorRow& row : run.tensors_of(op.id)) {
    DumpTensor tensor;
    tensor.name = attributes["dumped_as"].get<std::string>();
    tensor.at = parse_tensor_name(tensor.name);
    tensor.at.step = attributes.contains("step") && attributes["step"].is_number_integer()
                         ? std::optional(attributes["step"].get<std::int64_t>())
                         : tensor.at.step;
    const std::int64_t all = row.tokens * row.channels;
    std::int64_t count = 1;
    for (const auto& extent : attributes["shape"]) {
      if (!extent.is_number_integer()) return fail(fmt::format("op {}: a shape is made of integers", op.id));
      tensor.shape.push_back(extent.get<std::int64_t>());
      const std::int64_t size = tensor.shape.back();
      if (size < 0 || (size > 0 && count > all / size))
        return fail(fmt::format("op {}: its shape is not that of its tensor", op.id));
      count *= size;
    }
    if (count != row.tokens * row.channels)
      return fail(fmt::format("op {}: its shape is not that of its tensor", op.id));
    tensor.dtype = find_dtype(name(row.format));
    if (tensor.dtype == nullptr) return fail(fmt::format("op {}: no dtype is called {}", op.id, name(row.format)));
    if (row.format != Format::i32) tensor.format = row.format;
    tensor.source = rows_.size();
    heads_first_.push_back(attributes.contains("heads_first") && attributes["heads_first"] == true);
    tensor.health = row.health;
    tensor.stated = attributes.contains("statistics_only") && attributes["statistics_only"] == true;
    rows_.push_back(row);
    dump_.tensors.push_back(std::move(tensor));
  }
  return {};
}

Result<RecordedDump> RecordedDump::of(RunData& run, TensorSource& tensors, std::string target) {
  RecordedDump recorded(tensors);
  recorded.dump_.target = std::move(target);
  recorded.dump_.producer = run.info().isa;
  for (const OpRow& op : run.ops({})) {
    if (Status added = recorded.add(run, op); !added) return tl::unexpected(added.error());
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return recorded;
}

Result<std::vector<float>> RecordedDump::values(const DumpTensor& tensor, std::int64_t first, std::int64_t count) {
  const TensorRow& row = rows_[tensor.source];
  const auto data = tensors_.fetch(row.id);
  if (!data) return fail(tensor.name + ": its elements were not recorded");
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = data->value(recorded_index(row, heads_first_[tensor.source], first + i));
  }
  return values;
}

Result<std::vector<std::uint32_t>> RecordedDump::codes(const DumpTensor& tensor, std::int64_t first,
                                                       std::int64_t count) {
  const TensorRow& row = rows_[tensor.source];
  const auto data = tensors_.fetch(row.id);
  if (!data) return fail(tensor.name + ": its elements were not recorded");
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    codes[static_cast<std::size_t>(i)] = data->code(recorded_index(row, heads_first_[tensor.source], first + i));
  }
  return codes;
}

Result<std::vector<Health>> RecordedDump::row_health(const DumpTensor& tensor) {
  if (tensor.stated) return rows_of_stated(tensor);
  const Result<std::vector<float>> all = values(tensor, 0, tensor.count());
  if (!all) return tl::unexpected(all.error());
  const float largest = tensor.format ? info(*tensor.format).max_finite : std::numeric_limits<float>::infinity();
  std::vector<Health> rows;
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    const std::int64_t first = row * tensor.channels();
    const auto part =
        std::span(*all).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tensor.channels()));
    rows.push_back(health_of(part, first, largest));
  }
  return rows;
}

Result<Diagnosis> diagnose_recorded(RunData& run, TensorSource& tensors, std::string target) {
  if (run.info().device != kDumpDevice) return diagnose(run, tensors, std::move(target));
  Result<RecordedDump> recorded = RecordedDump::of(run, tensors, std::move(target));
  if (!recorded) return tl::unexpected(recorded.error());
  Result<Diagnosis> diagnosis = diagnose_dump(recorded->dump(), *recorded);
  if (!diagnosis) return diagnosis;
  std::unordered_map<std::string, const TensorRow*> rows;
  for (std::size_t i = 0; i < recorded->dump().tensors.size(); ++i)
    rows.emplace(recorded->dump().tensors[i].name, &recorded->row(i));
  for (Fault& fault : diagnosis->faults) {
    const auto row = rows.find(fault.tensor);
    const std::optional<OpRow> op = row == rows.end() ? std::nullopt : run.op(row->second->op);
    const StepRow* step = op ? run.step(op->step) : nullptr;
    if (step == nullptr) continue;
    fault.where.request = step->request;
    fault.where.step = step->index;
    fault.where.layer = op->layer < 0 ? std::nullopt : std::optional(op->layer);
    fault.where.op = op->name;
    fault.where.role = row->second->role;
    fault.where.op_id = op->id;
    fault.where.tensor_id = row->second->id;
  }
  return diagnosis;
}

}  // namespace nanscope
