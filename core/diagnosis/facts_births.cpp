#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/diagnosis/facts.h"

/// Which ops made NaN or Inf out of healthy numbers, and whether it mattered.
namespace nanscope {
namespace {

// A run whose every step is bad in its own way is cut here: the first births are what matters.
constexpr std::size_t kMaxSickOps = 20000;

/// Nobody gets the answer of a warm-up or a dummy batch: it matters by what it stores, where it stores.
bool is_sink(const SickOp& sick) {
  if (sick.op.kind == "kv_store") return number_attribute(sick.op, "stored").value_or(1) != 0;
  if (sick.step.request < 0) return false;
  if (sick.op.kind == "token_softmax") return true;
  return std::any_of(sick.outputs.begin(), sick.outputs.end(),
                     [](const TensorRow& row) { return row.role == "logits"; });
}

}  // namespace

const std::vector<SickOp>& Facts::sick_ops() {
  if (!sick_) collect();
  return *sick_;
}

std::vector<const SickOp*> Facts::births() {
  std::vector<const SickOp*> found;
  for (const SickOp& sick : sick_ops()) {
    if (sick.born && sick.matters) found.push_back(&sick);
  }
  return found;
}

const SickOp* Facts::sick(std::int64_t op) {
  sick_ops();
  const auto found = sick_index_.find(op);
  return found == sick_index_.end() ? nullptr : &(*sick_)[found->second];
}

void Facts::collect() {
  sick_.emplace();
  std::unordered_set<std::int64_t> answered_bad;  // requests
  TensorFilter next;
  next.bad_only = true;
  next.limit = 1;
  while (sick_->size() < kMaxSickOps) {
    const std::vector<TensorRow> found = run.tensors(next);
    if (found.empty()) break;
    const std::optional<OpRow> op = run.op(found.front().op);
    const StepRow* step = op ? run.step(op->step) : nullptr;
    if (step == nullptr) {
      next.first_id = found.front().id + 1;
      continue;
    }
    if (!answered_bad.contains(step->request)) {
      const std::size_t first = sick_->size();
      collect_step(*step);
      for (std::size_t i = first; i < sick_->size(); ++i) {
        const TensorRow* logits = (*sick_)[i].output("logits");
        if (logits != nullptr && logits->health.bad() > 0) answered_bad.insert(step->request);
      }
      mark_what_matters(first);
    }
    // On to the first tensor of the next step that is worth a look.
    std::int64_t after = 0;
    for (const StepRow& row : run.steps()) {
      if (row.id <= step->id || answered_bad.contains(row.request)) continue;
      OpFilter first_op;
      first_op.step = row.id;
      first_op.limit = 1;
      const std::vector<OpRow> ops = run.ops(first_op);
      const std::vector<TensorRow> outputs = ops.empty() ? std::vector<TensorRow>{} : run.tensors_of(ops.front().id);
      if (outputs.empty()) continue;
      after = outputs.front().id;
      break;
    }
    if (after <= found.front().id) break;
    next.first_id = after;
  }
  for (std::size_t i = 0; i < sick_->size(); ++i) sick_index_.emplace((*sick_)[i].op.id, i);
}

void Facts::collect_step(const StepRow& step) {
  TensorFilter filter;
  filter.step = step.id;
  filter.bad_only = true;
  filter.limit = kMaxSickOps;
  for (const TensorRow& bad : run.tensors(filter)) {
    if (!sick_->empty() && sick_->back().op.id == bad.op) continue;
    std::optional<OpRow> op = run.op(bad.op);
    if (!op) continue;
    SickOp sick;
    sick.step = step;
    sick.inputs = run.inputs_of(op->id);
    sick.outputs = run.tensors_of(op->id);
    if (sick.outputs.empty()) continue;  // reading was stopped between the two queries
    sick.op = std::move(*op);
    examine(sick);
    sick_->push_back(std::move(sick));
  }
}

void Facts::examine(SickOp& sick) {
  const TensorRow output = sick.bad_output();
  std::vector<TensorRow> bad_inputs;
  for (const InputRow& input : sick.inputs) {
    if (input.tensor != 0) {
      std::optional<TensorRow> tensor = run.tensor(input.tensor);
      if (tensor && tensor->health.bad() > 0) bad_inputs.push_back(std::move(*tensor));
    } else if (!input.weight.empty()) {
      const WeightRow* weight = run.weight(input.weight);
      if (weight != nullptr && weight->health.bad() > 0) sick.bad_weight = input.weight;
    }
  }
  if (sick.op.kind == "kv_read") {
    std::vector<std::int64_t> rows;
    for (const TensorRow& read : sick.outputs) {
      const std::vector<std::int64_t> bad = bad_rows(read);
      rows.insert(rows.end(), bad.begin(), bad.end());
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    for (const std::int64_t row : rows) {
      sick.bad_keys.push_back(key_row(sick.step, sick.op.layer, row));
      const bool spoilt = std::any_of(sick.outputs.begin(), sick.outputs.end(), [&](const TensorRow& read) {
        return spoilt_by_reading(sick.op.layer, read, sick.bad_keys.back());
      });
      sick.spoilt = sick.spoilt || spoilt;
      if (spoilt || !sick.bad_keys.back().own) sick.newborn.push_back(row);
    }
    sick.born = rows.empty() || !sick.newborn.empty();
    return;
  }
  if (bad_inputs.empty()) {
    sick.newborn = bad_rows(output);
    sick.born = true;
    return;
  }
  if (!row_local(sick.op)) return;
  for (const std::int64_t row : bad_rows(output)) {
    const bool inherited = std::any_of(bad_inputs.begin(), bad_inputs.end(), [&](const TensorRow& input) {
      return input.tokens != output.tokens || row_bad(input, row);
    });
    if (!inherited) sick.newborn.push_back(row);
  }
  sick.born = !sick.newborn.empty();
}

bool Facts::spoilt_by_reading(std::int64_t layer, const TensorRow& read, const KeyRow& key) {
  if (!key.own || !key.slot || !row_bad(read, key.row)) return false;
  const std::optional<StoredRow> stored = stored_row(*key.writer, *key.slot, layer, read.role.substr(0, 1));
  return stored && !row_bad(stored->codes, stored->row);
}

void Facts::mark_what_matters(std::size_t first) {
  // Backwards through the step: an op matters when it is a sink or feeds a bad op that matters.
  std::unordered_set<std::int64_t> reaching;  // tensors that a mattering op read
  for (std::size_t i = sick_->size(); i-- > first;) {
    SickOp& sick = (*sick_)[i];
    sick.matters = is_sink(sick) || std::any_of(sick.outputs.begin(), sick.outputs.end(), [&](const TensorRow& row) {
                     return row.health.bad() > 0 && reaching.contains(row.id);
                   });
    if (!sick.matters) continue;
    for (const InputRow& input : sick.inputs) {
      if (input.tensor != 0) reaching.insert(input.tensor);
    }
  }
}

}  // namespace nanscope
