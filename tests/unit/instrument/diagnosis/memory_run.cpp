#include "tests/unit/instrument/diagnosis/memory_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/numbers/codec.h"

namespace nanscope::testing {
namespace {

/// Health of codes, written from the definition in core/tensor/health.h.
Health health_of(const TensorData& data, std::int64_t first, std::int64_t count) {
  Health health = empty_health();
  const FormatInfo& format = info(data.format);
  for (std::int64_t i = first; i < first + count; ++i) {
    const float value = data.value(i);
    ++health.count;
    if (!std::isfinite(value) && health.first_bad < 0) health.first_bad = i;
    if (std::isnan(value)) {
      ++health.nan;
      continue;
    }
    if (std::isinf(value)) {
      ++(value > 0 ? health.pos_inf : health.neg_inf);
      continue;
    }
    if (std::abs(value) == format.max_finite) ++health.saturated;
    if (value == 0) ++health.zero;
    if (value != 0 && std::abs(value) < format.min_normal) ++health.subnormal;
    health.sum += value;
    health.sum_sq += double{value} * value;
    health.min = std::min(health.min, value);
    health.max = std::max(health.max, value);
    health.absmax = std::max(health.absmax, std::abs(value));
  }
  return health;
}

template <class Row>
std::optional<Row> at(const std::vector<Row>& rows, std::int64_t id) {
  if (id < 1 || id > static_cast<std::int64_t>(rows.size())) return std::nullopt;
  return rows[static_cast<std::size_t>(id - 1)];
}

}  // namespace

RecordingCounts MemoryRun::counts() {
  RecordingCounts counts;
  counts.requests = static_cast<std::int64_t>(request_rows.size());
  counts.steps = static_cast<std::int64_t>(step_rows.size());
  counts.ops = static_cast<std::int64_t>(op_rows.size());
  counts.expected_ops = run_info.expected_ops;
  counts.tensors = static_cast<std::int64_t>(tensor_rows.size());
  return counts;
}

std::vector<TokenRow> MemoryRun::tokens(std::int64_t request) {
  std::vector<TokenRow> found;
  for (const TokenRow& row : token_rows) {
    if (row.request == request) found.push_back(row);
  }
  return found;
}

std::vector<OpRow> MemoryRun::ops(const OpFilter& filter) {
  std::vector<OpRow> found;
  for (const OpRow& row : op_rows) {
    if (filter.limit >= 0 && static_cast<std::int64_t>(found.size()) >= filter.limit) break;
    if (row.id < filter.first_id || (filter.step && row.step != *filter.step)) continue;
    if (filter.layer && row.layer != *filter.layer) continue;
    if (filter.name && row.name != *filter.name) continue;
    if (filter.kind && row.kind != *filter.kind) continue;
    found.push_back(row);
  }
  return found;
}

std::vector<TensorRow> MemoryRun::tensors(const TensorFilter& filter) {
  std::vector<TensorRow> found;
  for (const TensorRow& row : tensor_rows) {
    if (filter.limit >= 0 && static_cast<std::int64_t>(found.size()) >= filter.limit) break;
    if (row.id < filter.first_id || (filter.bad_only && row.health.bad() == 0)) continue;
    if (filter.role && row.role != *filter.role) continue;
    if (filter.step && op_rows[static_cast<std::size_t>(row.op - 1)].step != *filter.step) continue;
    found.push_back(row);
  }
  rows_read += found.size();
  return found;
}

void MemoryRun::each_op_name(const std::function<bool(const OpRow&)>& visit) {
  for (const OpRow& row : op_rows) {
    if (!visit(row)) return;
  }
}

void MemoryRun::each_glance(std::optional<std::int64_t> step, const std::function<bool(const TensorGlance&)>& visit) {
  TensorFilter filter;
  filter.step = step;
  for (const TensorRow& row : tensors(filter)) {
    const TensorGlance glance{row.id,     row.op,       row.role,        row.format,
                              row.tokens, row.channels, row.first_token, detail.contains(row.id),
                              row.health};
    if (!visit(glance)) return;
  }
}

std::optional<OpRow> MemoryRun::op(std::int64_t id) { return at(op_rows, id); }

std::optional<TensorRow> MemoryRun::tensor(std::int64_t id) {
  ++rows_read;
  return at(tensor_rows, id);
}

std::vector<TensorRow> MemoryRun::tensors_of(std::int64_t op) {
  if (rows_read >= rows_until_stop) {
    error = Error{"stopped"};
    return {};
  }
  std::vector<TensorRow> found;
  auto row = std::lower_bound(tensor_rows.begin(), tensor_rows.end(), op,
                              [](const TensorRow& tensor, std::int64_t key) { return tensor.op < key; });
  for (; row != tensor_rows.end() && row->op == op; ++row) found.push_back(*row);
  rows_read += found.size();
  return found;
}

std::vector<InputRow> MemoryRun::inputs_of(std::int64_t op) {
  std::vector<InputRow> found;
  auto row = std::lower_bound(input_rows.begin(), input_rows.end(), op,
                              [](const InputRow& input, std::int64_t key) { return input.op < key; });
  for (; row != input_rows.end() && row->op == op; ++row) found.push_back(*row);
  return found;
}

std::vector<Health> MemoryRun::token_health(std::int64_t tensor) {
  const auto found = detail.find(tensor);
  return found == detail.end() ? std::vector<Health>{} : found->second;
}

Status MemoryRun::status() const {
  if (error) return tl::unexpected(*error);
  return {};
}

Fact<TensorData> MemoryTensors::fetch(std::int64_t tensor) {
  ++fetches;
  const auto found = data.find(tensor);
  if (found == data.end()) return absent("not there");
  return found->second;
}

std::int64_t RunBuilder::request(std::int64_t id, std::vector<std::int32_t> prompt, std::vector<std::int32_t> output) {
  RequestRow row;
  row.id = id;
  row.prompt_tokens = std::move(prompt);
  row.output_tokens = std::move(output);
  for (std::size_t i = 0; i < row.prompt_tokens.size(); ++i) {
    const std::int32_t token = row.prompt_tokens[i];
    run.token_rows.push_back({id, static_cast<std::int64_t>(i), token, token < 0 ? "" : "t",
                              token < 0 ? TokenSource::image : TokenSource::prompt});
  }
  for (std::size_t i = 0; i < row.output_tokens.size(); ++i) {
    const auto position = static_cast<std::int64_t>(row.prompt_tokens.size() + i);
    run.token_rows.push_back(
        {id, position, row.output_tokens[i], row.output_tokens[i] == 0 ? "!" : "x", TokenSource::generated});
  }
  run.request_rows.push_back(std::move(row));
  return id;
}

std::int64_t RunBuilder::step(std::int64_t request, std::int64_t index, std::int64_t first_token, std::int64_t tokens) {
  StepRow row;
  row.id = current_step = static_cast<std::int64_t>(run.step_rows.size()) + 1;
  row.request = request;
  row.index = index;
  row.kind = index == 0 ? StepKind::prefill : StepKind::decode;
  row.first_token = first_token;
  row.tokens = tokens;
  row.context = first_token + tokens;
  run.step_rows.push_back(row);
  return row.id;
}

std::int64_t RunBuilder::op(std::int64_t layer, const std::string& name, const std::string& kind,
                            const std::vector<In>& inputs, const std::string& attributes) {
  const std::int64_t id = static_cast<std::int64_t>(run.op_rows.size()) + 1;
  run.op_rows.push_back({id, current_step, layer, name, kind, attributes});
  for (const In& input : inputs) run.input_rows.push_back({id, input.role, input.tensor, input.weight});
  return id;
}

std::int64_t RunBuilder::add(TensorRow row, TensorData data, const std::vector<std::uint64_t>& clipped) {
  row.id = static_cast<std::int64_t>(run.tensor_rows.size()) + 1;
  row.op = run.op_rows.back().id;
  row.format = data.format;
  row.tokens = data.tokens;
  row.channels = data.channels;
  row.health = health_of(data, 0, data.count());
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const std::byte byte : data.bytes) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211ULL;
  row.hash = hash;
  std::vector<Health>& rows = run.detail[row.id];
  for (std::int64_t i = 0; i < data.tokens; ++i) {
    rows.push_back(health_of(data, i * data.channels, data.channels));
    const auto at = static_cast<std::size_t>(i);
    rows.back().clipped = at < clipped.size() ? clipped[at] : 0;
    row.health.clipped += rows.back().clipped;
  }
  tensors.data[row.id] = std::move(data);
  run.tensor_rows.push_back(row);
  return row.id;
}

std::int64_t RunBuilder::output(const std::string& role, const Shape& shape, const Fill& fill, Format format) {
  TensorData data{format, shape.tokens, shape.channels, {}};
  for (std::int64_t row = 0; row < shape.tokens; ++row) {
    for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
      const float value = fill(row, channel);
      const std::uint32_t code = format == Format::i32 ? static_cast<std::uint32_t>(static_cast<std::int32_t>(value))
                                                       : encode(format, value, Overflow::overflow);
      for (std::size_t i = 0; i < info(format).storage_bytes(); ++i) {
        data.bytes.push_back(static_cast<std::byte>((code >> (8 * i)) & 0xffU));
      }
    }
  }
  TensorRow row;
  row.role = role;
  row.heads = shape.heads;
  row.first_token = shape.first_token;
  return add(std::move(row), std::move(data), {});
}

std::int64_t RunBuilder::store(const std::string& target, std::int64_t source, const ScaleRow& scale,
                               Overflow overflow) {
  const TensorRow from = row(source);
  const TensorData& x = tensors.data.at(source);
  TensorData data{scale.format, from.tokens, from.channels, {}};
  std::vector<std::uint64_t> clipped(static_cast<std::size_t>(from.tokens), 0);
  std::uint64_t flushed = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const float quotient = x.value(i) / static_cast<float>(scale.scale);
    if (std::abs(quotient) > info(scale.format).max_finite) ++clipped[static_cast<std::size_t>(i / from.channels)];
    const std::uint32_t code = encode(scale.format, quotient, overflow);
    flushed += quotient != 0 && decode(scale.format, code) == 0 ? 1 : 0;
    for (std::size_t k = 0; k < info(scale.format).storage_bytes(); ++k) {
      data.bytes.push_back(static_cast<std::byte>((code >> (8 * k)) & 0xffU));
    }
  }
  TensorRow codes;
  codes.role = target + "_codes";
  codes.first_token = from.first_token;
  const std::int64_t id = add(std::move(codes), std::move(data), clipped);
  run.tensor_rows.back().health.flushed = flushed;
  ScaleRow ledger = scale;
  ledger.step = current_step;
  ledger.op = run.op_rows.back().id;
  ledger.layer = run.op_rows.back().layer;
  ledger.target = target;
  ledger.absmax = from.health.absmax;
  ledger.headroom = info(scale.format).max_finite * scale.scale / ledger.absmax;
  run.scale_rows.push_back(ledger);
  return id;
}

void RunBuilder::weight(const std::string& name, std::uint64_t nan) {
  WeightRow row;
  row.name = name;
  row.rows = 4;
  row.columns = 4;
  row.health = empty_health();
  row.health.count = 16;
  row.health.nan = nan;
  if (nan > 0) row.health.first_bad = 3;
  run.weight_rows.push_back(row);
}

void RunBuilder::kv(std::int64_t request, std::int64_t block, std::int64_t slot_begin, std::int64_t slot_end,
                    std::int64_t first_token, KvAction action, const std::string& writer, Format format,
                    std::int64_t layer) {
  run.kv_rows.push_back(
      {current_step, request, layer, block, slot_begin, slot_end, first_token, action, writer, format});
}

}  // namespace nanscope::testing
