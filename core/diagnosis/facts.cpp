#include "core/diagnosis/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace nanscope {
namespace {

std::optional<nlohmann::json> attribute(const OpRow& op, const std::string& name) {
  const auto object = nlohmann::json::parse(op.attributes, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  return *found;
}

}  // namespace

std::optional<double> number_attribute(const OpRow& op, const std::string& name) {
  const auto value = attribute(op, name);
  if (!value) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>() ? 1.0 : 0.0;
  if (!value->is_number()) return std::nullopt;
  return value->get<double>();
}

std::optional<std::string> text_attribute(const OpRow& op, const std::string& name) {
  const auto value = attribute(op, name);
  if (!value || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

std::int64_t count_attribute(const OpRow& op, const std::string& name, std::int64_t fallback) {
  constexpr double kMost = 2147483648.0;
  const double value = number_attribute(op, name).value_or(static_cast<double>(fallback));
  return static_cast<std::int64_t>(std::clamp(std::isnan(value) ? 0.0 : value, 0.0, kMost));
}

bool row_local(const OpRow& op) {
  return op.kind != "kv_read" && op.kind != "attention_scores" && op.kind != "attention_mix" &&
         op.kind != "recurrent_scan" && op.kind != "patch_embedding";
}

std::string code_text(Format format, std::uint32_t code) {
  return fmt::format("0x{:0{}X}", code, 2 * info(format).storage_bytes());
}

std::optional<Range> range_of(const std::vector<std::int64_t>& rows) {
  if (rows.empty()) return std::nullopt;
  return Range{rows.front(), rows.back()};
}

std::string request_text(const StepRow& step) {
  if (step.request == kDummyRequest) return fmt::format("the dummy batch step {}", step.index);
  if (step.request < 0) return fmt::format("the warm-up step {}", step.index);
  return fmt::format("request {} step {}", step.request, step.index);
}

const TensorRow* SickOp::output(const std::string& role) const {
  for (const TensorRow& row : outputs) {
    if (row.role == role) return &row;
  }
  return nullptr;
}

const TensorRow& SickOp::bad_output() const {
  const TensorRow* out = output("out");
  if (out != nullptr && out->health.bad() > 0) return *out;
  for (const TensorRow& row : outputs) {
    if (row.health.bad() > 0) return row;
  }
  return outputs.front();
}

Facts::Facts(RunData& rows, TensorSource& source) : run(rows), tensors(source) {}

const KvSlots& Facts::slots() {
  if (!slots_) slots_ = std::make_unique<KvSlots>(run.kv_history());
  return *slots_;
}

const std::vector<Health>& Facts::rows(const TensorRow& tensor) {
  const auto found = rows_.find(tensor.id);
  if (found != rows_.end()) return found->second;
  std::vector<Health> health = run.token_health(tensor.id);
  if (health.empty() && tensor.tokens == 1) health.push_back(tensor.health);
  if (static_cast<std::int64_t>(health.size()) != tensor.tokens) health.clear();
  return rows_.emplace(tensor.id, std::move(health)).first->second;
}

bool Facts::row_bad(const TensorRow& tensor, std::int64_t row) {
  if (tensor.health.bad() == 0) return false;
  const std::vector<Health>& detail = rows(tensor);
  if (detail.empty() || row < 0 || row >= tensor.tokens) return true;
  return detail[static_cast<std::size_t>(row)].bad() > 0;
}

std::vector<std::int64_t> Facts::bad_rows(const TensorRow& tensor) {
  std::vector<std::int64_t> found;
  if (tensor.health.bad() == 0) return found;
  const std::vector<Health>& detail = rows(tensor);
  for (std::size_t i = 0; i < detail.size(); ++i) {
    if (detail[i].bad() > 0) found.push_back(static_cast<std::int64_t>(i));
  }
  return found;
}

std::vector<std::int64_t> Facts::constant_rows(const TensorRow& tensor) {
  std::vector<std::int64_t> found;
  if (tensor.channels < 2) return found;
  const std::vector<Health>& detail = rows(tensor);
  for (std::size_t i = 0; i < detail.size(); ++i) {
    if (detail[i].bad() == 0 && detail[i].count > 1 && detail[i].min == detail[i].max) {
      found.push_back(static_cast<std::int64_t>(i));
    }
  }
  return found;
}

Where Facts::where(const OpRow& op) {
  Where place;
  place.op = op.name;
  place.op_id = op.id;
  if (op.layer >= 0) place.layer = op.layer;
  if (const StepRow* step = run.step(op.step)) {
    place.request = step->request;
    place.step = step->index;
  }
  return place;
}

Where Facts::where(const TensorRow& tensor, std::optional<Range> rows, std::optional<Range> channels) {
  Where place;
  if (const auto op = run.op(tensor.op)) place = where(*op);
  place.role = tensor.role;
  place.tensor_id = tensor.id;
  if (rows) place.tokens = Range{tensor.first_token + rows->first, tensor.first_token + rows->last};
  place.channels = channels;
  return place;
}

Where Facts::where(const TensorRow& tensor, const std::vector<std::int64_t>& rows) {
  return where(tensor, range_of(rows));
}

KeyRow Facts::key_row(const StepRow& step, std::int64_t layer, std::int64_t row) {
  KeyRow key;
  key.row = row;
  key.in_context = row < step.context;
  key.slot = slots().locate(step.request, row, step.id);
  if (!key.slot) return key;
  key.writer = slots().last_writer(*key.slot, layer, step.id, false);
  const KvRow* state = slots().last_writer(*key.slot, layer, step.id, true);
  if (state != key.writer) {
    // A recurrent state was in the block since. It filled only a part of it: what attention stored is
    // still there when that is what explains the row.
    const std::optional<StoredRow> stored =
        key.writer != nullptr ? stored_row(*key.writer, *key.slot, layer, "k") : std::nullopt;
    const std::optional<StoredRow> values =
        key.writer != nullptr ? stored_row(*key.writer, *key.slot, layer, "v") : std::nullopt;
    const bool explained =
        (stored && row_bad(stored->codes, stored->row)) || (values && row_bad(values->codes, values->row));
    if (!explained) key.writer = state;
  }
  key.own = key.writer != nullptr && key.writer->action == KvAction::written && key.writer->request == step.request &&
            key.writer->writer != kRecurrentState && key.in_context;
  return key;
}

std::optional<StoredRow> Facts::stored_row(const KvRow& write, const Slot& slot, std::int64_t layer,
                                           const std::string& target) {
  if (write.action != KvAction::written || write.writer == kRecurrentState) return std::nullopt;
  const std::optional<OpRow> store = run.find_op(write.step, layer, "kv_store");
  std::optional<TensorRow> codes = store ? run.output(store->id, target + "_codes") : std::nullopt;
  if (!codes || codes->format != write.format) return std::nullopt;
  const std::int64_t row = write.first_token + slot.slot - write.slot_begin - codes->first_token;
  if (row < 0 || row >= codes->tokens) return std::nullopt;
  return StoredRow{std::move(*codes), row};
}

const ScaleRow* Facts::scale_of(std::int64_t op, const std::string& target) {
  if (scales_.empty()) {
    for (const ScaleRow& row : run.scales()) scales_.emplace(row.op, &row);
  }
  const auto [first, last] = scales_.equal_range(op);
  const auto found = std::find_if(first, last, [&](const auto& entry) { return entry.second->target == target; });
  return found == last ? nullptr : found->second;
}

}  // namespace nanscope
