#include "gui/prepare/subject.h"

#include <fmt/format.h>

#include <algorithm>

#include "instrument/diagnosis/facts.h"

namespace nanscope::gui {
namespace {

/// The worse the earlier, and `out` before its companions.
int rank(const TensorRow& tensor) {
  if (tensor.role == "out") return 0;
  if (tensor.health.bad() > 0) return 1;
  return tensor.health.clipped > 0 ? 2 : 3;
}

std::optional<float> scale_of(const OpRow& op, const std::string& name) {
  // Under this policy the attribute is but the largest of the tokens' scales.
  if (text_attribute(op, "policy") == "per_token") return std::nullopt;
  const std::optional<double> scale = number_attribute(op, name);
  if (!scale) return std::nullopt;
  return static_cast<float>(*scale);
}

}  // namespace

Result<Subject> find_subject(RunData& run, const Place& place) {
  if (!place.request || !place.step || place.op.empty()) return fail("Nothing is selected");
  const StepRow* step = run.find_step(*place.request, *place.step);
  if (step == nullptr) return fail(fmt::format("Request {} has no step {}", *place.request, *place.step));
  Subject found;
  found.step = *step;
  const std::optional<OpRow> op = run.find_op(step->id, place.layer.value_or(-1), place.op);
  if (!op) return fail(fmt::format("The step has no op called {}", place.op));
  found.op = *op;
  found.outputs = run.tensors_of(op->id);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  if (found.outputs.empty()) return fail(fmt::format("{} has no recorded output", place.op));
  auto chosen = std::find_if(found.outputs.begin(), found.outputs.end(),
                             [&](const TensorRow& tensor) { return tensor.role == place.role; });
  if (chosen == found.outputs.end()) {
    chosen = std::min_element(found.outputs.begin(), found.outputs.end(),
                              [](const TensorRow& a, const TensorRow& b) { return rank(a) < rank(b); });
  }
  found.tensor = *chosen;
  return found;
}

std::optional<std::int64_t> row_of(const TensorRow& tensor, const Place& place) {
  if (!place.token) return std::nullopt;
  const std::int64_t row = *place.token - tensor.first_token;
  if (row < 0 || row >= tensor.tokens) return std::nullopt;
  return row;
}

std::optional<std::int64_t> channel_of(const TensorRow& tensor, const Place& place) {
  if (!place.channel || *place.channel < 0 || *place.channel >= tensor.channels) return std::nullopt;
  return place.channel;
}

Place element_place(const Subject& subject, std::int64_t row, std::int64_t channel) {
  return {subject.step.request,
          subject.step.index,
          subject.op.layer,
          subject.op.name,
          subject.tensor.role,
          subject.tensor.first_token + row,
          channel};
}

std::optional<Storing> storing_of(RunData& run, const Subject& subject) {
  const bool cast = subject.op.kind == "cast";
  if (!cast && subject.op.kind != "kv_store") return std::nullopt;
  const std::string target = cast ? "x" : subject.tensor.role.substr(0, 1);
  std::optional<TensorRow> source = run.input(subject.op.id, target);
  if (!source || source->channels != subject.tensor.channels) return std::nullopt;
  Storing storing{std::move(*source), scale_of(subject.op, cast ? "scale" : "scale_" + target), Overflow::saturate,
                  false};
  if (cast && !storing.scale) storing.scale = 1.0F;
  if (text_attribute(subject.op, "overflow") == "overflow") storing.overflow = Overflow::overflow;
  for (const ScaleRow& row : run.scales()) {
    if (row.op == subject.op.id && row.target == target) storing.foreign = row.calibrated_step != row.step;
  }
  return storing;
}

Result<Elements> fetch_elements(TensorSource& tensors, const TensorRow& tensor) {
  Result<TensorData> data = tensors.fetch(tensor.id);
  if (!data) return tl::unexpected(data.error());
  const std::size_t expected = static_cast<std::size_t>(data->count()) * info(data->format).storage_bytes();
  if (data->format != tensor.format || data->tokens != tensor.tokens || data->channels != tensor.channels ||
      data->bytes.size() != expected) {
    return fail(fmt::format("tensor {} is not of the shape that its row states", tensor.id));
  }
  return std::make_shared<const TensorData>(std::move(*data));
}

bool is_query_by_key(const OpRow& op) { return op.kind == "attention_scores" || op.kind == "softmax"; }

}  // namespace nanscope::gui
