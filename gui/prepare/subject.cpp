#include "gui/prepare/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/numbers/codec.h"
#include "core/tensor/health_of.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "instrument/recompute/recompute.h"
#include "instrument/recompute/scaled.h"

namespace nanscope::gui {
namespace {

constexpr std::int64_t kMostComputed = std::int64_t{1} << 22;  ///< elements of what was not dumped

/// The worse the earlier, and `out` before its companions.
int rank(const Tensor& tensor) {
  if (!tensor.known) return 4;
  if (tensor.role == "out") return 0;
  if (RunView::symptomatic(tensor)) return 1;
  return tensor.health.clipped > 0 ? 2 : 3;
}

/// Rows that are one sequence's from the first to the last need no names.
bool is_one_sequence(const Step& step, const Tensor& tensor) {
  if (tensor.axis == Axis::none || tensor.axis == Axis::slots || tensor.sequence >= 0) return true;
  if (step.spans.size() != 1) return step.spans.empty();
  const Span& span = step.spans.front();
  return step.batch <= 1 && span.row == 0 && (tensor.axis != Axis::rows || span.rows == tensor.tokens);
}

std::int64_t first_token_of(const Span& span, const Tensor& tensor) {
  switch (tensor.axis) {
    case Axis::rows:
    case Axis::live:
      return span.first_token;
    case Axis::ends:
      return span.context - 1;
    case Axis::keys:
    case Axis::part:
      return tensor.first_token;
    case Axis::slots:
    case Axis::none:
      break;
  }
  return 0;
}

void name_rows(RunView& run, Subject& subject) {
  const Tensor& tensor = subject.tensor;
  if (is_one_sequence(subject.step, tensor)) {
    const bool of_another = tensor.sequence >= 0 && tensor.sequence < std::ssize(subject.step.spans);
    if (of_another) subject.span = subject.step.spans[static_cast<std::size_t>(tensor.sequence)];
    subject.first_token = first_token_of(subject.span, tensor);
    return;
  }
  subject.row_names.reserve(static_cast<std::size_t>(std::max<std::int64_t>(0, tensor.tokens)));
  for (std::int64_t row = 0; row < tensor.tokens; ++row) {
    const RowToken token = run.token_of(tensor, row);
    subject.row_names.push_back(token.span == nullptr
                                    ? RowName{subject.span.request, subject.span.index, row, true}
                                    : RowName{token.span->request, token.span->index, token.position, false});
  }
}

/// "k" of k_codes and k_cache; "x" of what else is quantised.
std::string target_of(const Subject& subject) {
  return subject.op.kind == OpKind::kv_store ? subject.tensor.role.substr(0, 1) : "x";
}

/// What is stated of a store into a cache, where there is neither a scale in the dump nor an entry in the ledger.
std::optional<double> stated_scale(const Subject& subject, const std::string& target) {
  const auto* store = subject.op.get<KvStoreAttributes>();
  // Of scales of their own the attribute is but the largest.
  if (store == nullptr || scale_by_row(store->policy.value_or(""), subject.step)) return std::nullopt;
  return target == "k" ? store->scale_k : store->scale_v;
}

/// A scale that was dumped, else what the op states, else what the ledger has.
void find_scales(RunView& run, Values& values, const Subject& subject, const std::string& target, Storing& storing) {
  const std::string role = target == "x" ? "scale" : target + "_scale";
  const auto* store = subject.op.get<KvStoreAttributes>();
  if (run.input(subject.op, role) == nullptr && store != nullptr && (store->policy || stated_scale(subject, target))) {
    const std::optional<double> stated = stated_scale(subject, target);
    if (stated) storing.grid = ScaleGrid::uniform(*stated);
    return;
  }
  const RowScale scale = row_scale(values, subject.op, role, subject.tensor);
  storing.grid = scale.grid;
  storing.by_source_row = scale.by_step_row;
}

/// The scales that a product multiplies a weight's codes by.
std::optional<Storing> storing_of_weight(RunView& run, const Tensor& weight) {
  if (!holds_codes(weight.format)) return std::nullopt;
  for (const Op* reader : run.readers(weight)) {
    const Tensor* scale = reader->input("weight") == weight.id ? run.input(*reader, "weight_scale") : nullptr;
    if (scale == nullptr) continue;
    Storing storing;
    storing.grid = ScaleGrid::of(run, *scale, weight);
    return storing;
  }
  return std::nullopt;
}

/// What is known of values that were not dumped: computed ones may be off, and are taken to be as small as they can be.
std::shared_ptr<const TensorData> computed_source(Values& values, const Tensor& source) {
  if (!values.available(source) || source.count() > kMostComputed) return nullptr;
  const std::shared_ptr<const Block> all = values.all(source);
  if (!all || static_cast<std::int64_t>(all->value.size()) != source.count()) return nullptr;
  auto data = std::make_shared<TensorData>();
  data->format = Format::f32;
  data->tokens = source.tokens;
  data->channels = source.channels;
  data->bytes.resize(all->value.size() * sizeof(float));
  for (std::size_t i = 0; i < all->value.size(); ++i) {
    const float off = all->error.empty() ? 0 : all->error[i];
    const float least = std::max(0.0F, std::abs(all->value[i]) - off);
    const float value = std::isnan(all->value[i]) ? all->value[i] : std::copysign(least, all->value[i]);
    std::memcpy(data->bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return data;
}

void find_source_rows(RunView& run, Values& values, const Tensor& source, const Tensor& codes, Storing& storing) {
  storing.source_rows.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, codes.tokens)), -1);
  if (codes.axis == Axis::slots) {
    for (const auto& [slot, row] : own_slots(values, codes)) {
      if (slot >= 0 && slot < codes.tokens) storing.source_rows[static_cast<std::size_t>(slot)] = row;
    }
    return;
  }
  for (std::int64_t row = 0; row < codes.tokens; ++row) {
    storing.source_rows[static_cast<std::size_t>(row)] = run.same_row(codes, row, source).value_or(-1);
  }
}

}  // namespace

RowName Subject::row_name(std::int64_t row) const {
  if (!row_names.empty()) return row_names[static_cast<std::size_t>(row)];
  return {span.request, span.index, first_token + row, false};
}

std::optional<std::int64_t> layer_of(const Place& place) {
  return place.layer && *place.layer >= 0 ? place.layer : std::nullopt;
}

SpanOfStep find_span(RunView& run, const Place& place) {
  if (!place.request || !place.step) return {};
  for (const Step& step : run.steps()) {
    if (step.rank != place.rank) continue;
    for (const Span& span : step.spans) {
      if (span.request == *place.request && span.index == *place.step) return {&step, &span};
    }
  }
  return {};
}

namespace {

/// Ranks and passes may each have parameters of the same place.
std::vector<const Op*> outside_ops(RunView& run, std::optional<std::int64_t> layer, const std::string& name,
                                   const std::string& role) {
  std::vector<const Op*> found;
  for (const Op& op : run.content(kBeforeSteps).ops) {
    if (op.layer == layer && op.name == name && run.output(op, role) != nullptr) found.push_back(&op);
  }
  return found;
}

/// The op that a place names; of several, one with such an output.
const Op* find_op(RunView& run, StepId step, const Place& place) {
  if (step == kBeforeSteps) {
    const std::vector<const Op*> all = outside_ops(run, layer_of(place), place.op, place.role);
    if (place.rank >= 0 && place.rank < std::ssize(all)) return all[static_cast<std::size_t>(place.rank)];
  }
  const Op* found = run.find_op(step, layer_of(place), place.op);
  if (found == nullptr || place.role.empty() || run.output(*found, place.role) != nullptr) return found;
  for (const Op& op : run.content(step).ops) {
    if (op.layer == found->layer && op.name == found->name && run.output(op, place.role) != nullptr) return &op;
  }
  return found;
}

}  // namespace

Subject subject_of(RunView& run, const Tensor& tensor, const Span* span) {
  Subject subject;
  if (const Step* step = run.step(tensor.step)) {
    subject.step = *step;
    if (span == nullptr && !step->spans.empty()) span = &step->spans.front();
  }
  if (span != nullptr) subject.span = *span;
  if (const Op* op = run.maker(tensor)) subject.op = *op;
  subject.tensor = tensor;
  subject.outputs = {tensor};
  if (subject.outside()) {
    const std::vector<const Op*> all = outside_ops(run, subject.op.layer, subject.op.name, tensor.role);
    const auto at = std::find_if(all.begin(), all.end(), [&](const Op* op) { return op->id == subject.op.id; });
    if (at != all.end()) subject.occurrence = at - all.begin();
  }
  name_rows(run, subject);
  return subject;
}

namespace {

/// The op with this id, where it is at the place.
const Op* called(RunView& run, StepId step, const Place& place, std::int64_t call) {
  for (const Op& op : run.content(step).ops) {
    if (op.id == call && op.name == place.op && op.layer == layer_of(place)) return &op;
  }
  return nullptr;
}

}  // namespace

Result<Subject> find_subject(RunView& run, const Place& place, std::int64_t call) {
  if (place.op.empty() || place.request.has_value() != place.step.has_value()) return fail("Nothing is selected");
  const SpanOfStep at = find_span(run, place);
  if (place.request && at.step == nullptr) {
    return fail(fmt::format("Request {} has no step {}", *place.request, *place.step));
  }
  const StepId step = at.step != nullptr ? at.step->id : kBeforeSteps;
  const Op* op = find_op(run, step, place);
  for (const Step& other : run.steps()) {
    if (op == nullptr && !place.request && other.spans.empty()) op = find_op(run, other.id, place);
  }
  if (call != 0 && op != nullptr) {
    if (const Op* meant = called(run, op->step, place, call)) op = meant;
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  if (op == nullptr) {
    if (!place.request) return fail("Nothing is selected");
    return fail(fmt::format("The step has no op called {}", place.op));
  }
  std::vector<Tensor> outputs;
  for (const TensorId id : op->outputs) {
    const Tensor* output = run.tensor(id);
    if (output != nullptr && output->known) outputs.push_back(*output);
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  if (outputs.empty()) return fail(fmt::format("{} has no recorded output", place.op));
  auto chosen =
      std::find_if(outputs.begin(), outputs.end(), [&](const Tensor& tensor) { return tensor.role == place.role; });
  if (chosen == outputs.end()) {
    chosen = std::min_element(outputs.begin(), outputs.end(),
                              [](const Tensor& a, const Tensor& b) { return rank(a) < rank(b); });
  }
  Subject found = subject_of(run, *chosen, at.span);
  found.outputs = std::move(outputs);
  return found;
}

std::optional<std::int64_t> row_of(const Subject& subject, const Place& place) {
  if (!place.token) return std::nullopt;
  if (subject.row_names.empty()) {
    const std::int64_t row = *place.token - subject.first_token;
    if (row < 0 || row >= subject.tensor.tokens) return std::nullopt;
    return row;
  }
  const RowName wanted{place.request.value_or(0), place.step.value_or(0), *place.token, false};
  const auto at = std::find(subject.row_names.begin(), subject.row_names.end(), wanted);
  if (at == subject.row_names.end()) return std::nullopt;
  return at - subject.row_names.begin();
}

std::optional<std::int64_t> channel_of(const Tensor& tensor, const Place& place) {
  if (!place.channel || *place.channel < 0 || *place.channel >= tensor.channels) return std::nullopt;
  return place.channel;
}

Place tensor_place(const Subject& subject) {
  Place place;
  place.rank = subject.occurrence;
  if (!subject.outside()) {
    place.request = subject.span.request;
    place.step = subject.span.index;
    place.rank = subject.step.rank;
  }
  place.layer = subject.op.layer.value_or(-1);
  place.op = subject.op.name;
  place.role = subject.tensor.role;
  return place;
}

Place element_place(const Subject& subject, std::int64_t row, std::int64_t channel) {
  Place place = tensor_place(subject);
  const RowName name = subject.row_name(row);
  if (name.nobodys) return place;
  if (!subject.outside()) {
    place.request = name.request;
    place.step = name.step;
  }
  place.token = name.token;
  place.channel = channel;
  return place;
}

std::optional<float> Storing::scale(std::int64_t row, std::int64_t channel) const {
  if (!grid) return std::nullopt;
  if (by_source_row) row = source_rows.empty() ? -1 : source_rows[static_cast<std::size_t>(row)];
  if (row < 0) return std::nullopt;
  return static_cast<float>(grid->at(row, channel));
}

std::optional<float> Storing::only_scale() const {
  return grid && grid->single() ? std::optional(static_cast<float>(grid->first())) : std::nullopt;
}

namespace {

constexpr double kExplains = 0.9;  ///< share of codes that a scale gives, when it is the one

/// Where no scale is known, the one that codes and source show; nothing when they show none.
void imply_scale(RunView& run, const Tensor& codes, Storing& storing) {
  const Result<Elements> made = fetch_elements(run, codes);
  const Result<Elements> of =
      storing.source ? fetch_elements(run, *storing.source) : Result<Elements>(storing.computed);
  if (!made || !of || !*of || codes.count() > kMostComputed) return;
  std::vector<float> values;
  std::vector<float> decoded;
  for (std::int64_t row = 0; row < codes.tokens; ++row) {
    const std::int64_t from = storing.source_rows[static_cast<std::size_t>(row)];
    if (from < 0 || from >= (*of)->tokens) continue;
    for (std::int64_t channel = 0; channel < codes.channels; ++channel) {
      values.push_back((*of)->value(from, channel));
      decoded.push_back((*made)->value(row, channel));
    }
  }
  const std::optional<double> scale = implied_scale(values, decoded, codes.format);
  if (!scale || !(*scale > 0)) return;
  std::size_t explained = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float quotient = values[i] / static_cast<float>(*scale);
    const float code = decode(codes.format, encode(codes.format, quotient, storing.overflow));
    // A median is not the scale to the last bit: the neighbour counts.
    const float step = std::abs(code) * std::ldexp(1.01F, -info(codes.format).mantissa_bits) + 1e-3F;
    const bool same = std::isfinite(code) ? std::abs(code - decoded[i]) <= step : !std::isfinite(decoded[i]);
    explained += same ? 1 : 0;
  }
  if (static_cast<double>(explained) < kExplains * static_cast<double>(values.size())) return;
  storing.grid = ScaleGrid::uniform(*scale);
  storing.implied = true;
}

}  // namespace

std::optional<Storing> storing_of(RunView& run, const Subject& subject) {
  const OpKind kind = subject.op.kind;
  const Tensor& codes = subject.tensor;
  if (kind == OpKind::parameter) return storing_of_weight(run, codes);
  if (kind != OpKind::kv_store && kind != OpKind::quantise) return std::nullopt;
  if (kind == OpKind::quantise && !holds_codes(codes.format)) return std::nullopt;
  const std::string target = target_of(subject);
  Facts facts(run);
  KernelArithmetic arithmetic;
  Recomputer recomputer(facts, arithmetic);
  Storing storing;
  find_scales(run, recomputer.values(), subject, target, storing);
  const Tensor* source = run.input(subject.op, target);
  if (source != nullptr && source->channels == codes.channels) {
    if (source->known && !source->stated) {
      storing.source = *source;
    } else {
      storing.computed = computed_source(recomputer.values(), *source);
    }
    if (storing.source || storing.computed) find_source_rows(run, recomputer.values(), *source, codes, storing);
  }
  const auto* store = subject.op.get<KvStoreAttributes>();
  if (store != nullptr && store->overflow == "overflow") storing.overflow = Overflow::overflow;
  if (const ScaleRow* row = facts.scale_of(subject.op.id, target)) storing.foreign = row->calibrated_step != row->step;
  const bool told = storing.grid || (store != nullptr && store->policy);
  if (!told && (storing.source || storing.computed) && holds_codes(codes.format)) imply_scale(run, codes, storing);
  return storing;
}

Result<Elements> fetch_elements(RunView& run, const Tensor& tensor) {
  Fact<TensorData> data = run.read(tensor, 0, tensor.tokens);
  if (!data) return fail(std::move(data.error()));
  const std::size_t expected = static_cast<std::size_t>(data->count()) * info(data->format).storage_bytes();
  if (data->format != tensor.format || data->tokens != tensor.tokens || data->channels != tensor.channels ||
      data->bytes.size() != expected) {
    return fail(fmt::format("tensor {} is not of the shape that its row states", tensor.id));
  }
  return std::make_shared<const TensorData>(std::move(*data));
}

Health whole_health(RunView& run, const Tensor& tensor) {
  const Health& health = tensor.health;
  const bool scanned = health.finite() == 0 || health.min <= health.max;
  const auto values = scanned || tensor.format != Format::i32 ? nullptr : run.values(tensor);
  return values ? health_of(*values, 0, std::numeric_limits<float>::infinity()) : health;
}

bool is_query_by_key(const Op& op, const Tensor& tensor) {
  const bool kind = op.kind == OpKind::attention_scores || op.kind == OpKind::softmax;
  return kind && tensor.heads > 0 && tensor.channels % tensor.heads == 0;
}

}  // namespace nanscope::gui
