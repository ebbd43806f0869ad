#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/numbers/codec.h"
#include "core/run/memory_run.h"
#include "core/tensor/health_of.h"
#include "tests/unit/core/run/fill.h"

/// Graphs as dumps give them: tensors with names of their own, some not dumped, scales and weights that are tensors,
/// caches that are pools of slots.
namespace nanscope::testing {

/// `value` at one element, 1 elsewhere.
inline Fill one_at(std::int64_t row, std::int64_t channel, float value) {
  return [=](std::int64_t r, std::int64_t c) { return r == row && c == channel ? value : 1.0F; };
}

inline Fill row_of(std::int64_t row, float value) {
  return [=](std::int64_t r, std::int64_t) { return r == row ? value : 1.0F; };
}

struct Made {
  std::string role = "out";
  std::int64_t tokens = 4;
  std::int64_t channels = 4;
  Fill fill = constant(1);
  Format format = Format::f32;
  Axis axis = Axis::rows;
  std::int64_t heads = 1;
};

class DumpGraph final : public nanscope::MemoryRun {
 public:
  std::optional<std::int64_t> layer = 0;  ///< of the ops that follow

  DumpGraph() { begin(kBeforeSteps); }

  StepId pass(std::vector<Span> spans, std::int64_t rows = 4, std::int64_t batch = 1, std::int64_t rank = 0) {
    Step step;
    step.id = static_cast<StepId>(steps_.size()) + 1;
    step.rank = rank;
    step.rows = rows;
    step.batch = batch;
    step.spans = std::move(spans);
    begin(step.id);
    steps_.push_back(std::move(step));
    return steps_.back().id;
  }
  Step& last_pass() { return steps_.back(); }
  /// The op that was added last is a module of a known name.
  void know_by_name() { last_op().by_name = true; }
  /// One sequence of four tokens from position 0.
  StepId pass() { return pass({Span{0, 0, 0, 4, 0, 4}}); }

  TensorId op(const std::string& name, OpKind kind, std::vector<std::pair<std::string, TensorId>> inputs,
              const Made& made = {}, OpAttributes attributes = {}) {
    Op op;
    op.layer = layer;
    op.name = name;
    op.kind = kind;
    op.attributes = std::holds_alternative<NoAttributes>(attributes) ? attributes_of(kind) : std::move(attributes);
    for (auto& [role, id] : inputs) op.inputs.push_back({role, id, {}});
    add(std::move(op));
    return output(made);
  }
  TensorId output(const Made& made) {
    Tensor tensor = described(made);
    tensor.name = fmt::format("p{}.{}", steps_.size(), last_op().name);
    if (layer.value_or(0) != 0) tensor.name += std::to_string(*layer);
    if (made.role != "out") tensor.name += '.' + made.role;
    TensorData data{made.format, made.tokens, made.channels, {}};
    std::vector<float> values;
    for (std::int64_t i = 0; i < made.tokens * made.channels; ++i) {
      const float value = made.fill(i / made.channels, i % made.channels);
      const std::uint32_t code = made.format == Format::i32
                                     ? static_cast<std::uint32_t>(static_cast<std::int32_t>(value))
                                     : encode(made.format, value, Overflow::overflow);
      for (std::size_t byte = 0; byte < nanscope::info(made.format).storage_bytes(); ++byte) {
        data.bytes.push_back(static_cast<std::byte>((code >> (8 * byte)) & 0xFFU));
      }
      values.push_back(decode(made.format, code));
    }
    tensor.health = health_of(values, 0);
    const TensorId id = add(std::move(tensor)).id;
    data_[id] = std::move(data);
    return id;
  }
  /// What stands for a tensor that was not dumped.
  TensorId unknown(const std::string& name, OpKind kind, std::vector<std::pair<std::string, TensorId>> inputs,
                   OpAttributes attributes = {}) {
    Op op;
    op.layer = layer;
    op.name = name;
    op.kind = kind;
    op.attributes = std::holds_alternative<NoAttributes>(attributes) ? attributes_of(kind) : std::move(attributes);
    for (auto& [role, id] : inputs) op.inputs.push_back({role, id, {}});
    add(std::move(op));
    Tensor tensor;
    tensor.role = "out";
    tensor.tokens = steps_.back().rows;
    tensor.known = false;
    tensor.health = empty_health();
    return add(std::move(tensor)).id;
  }
  TensorId source(const Made& made = {}) { return op("source", OpKind::embedding, {}, made); }
  TensorId parameter(const std::string& name, std::int64_t tokens, std::int64_t channels, const Fill& fill) {
    return op(name, OpKind::parameter, {}, {"weight", tokens, channels, fill, Format::f32, Axis::none});
  }
  /// The element as it is stored and read again.
  float at(TensorId tensor, std::int64_t row, std::int64_t channel) const {
    return data_.at(tensor).value(row, channel);
  }
  void kv(std::int64_t request, std::int64_t block, std::int64_t slot_begin, std::int64_t slot_end,
          std::int64_t first_token, KvAction action) {
    kv_.push_back(
        {steps_.back().id, request, -1, block, slot_begin, slot_end, first_token, action, "attention", Format::f32});
  }

 protected:
  std::vector<Health> read_rows(const Tensor& tensor) override {
    std::vector<float> values;
    std::vector<Health> rows;
    const auto data = data_.find(tensor.id);
    if (data == data_.end()) return rows;
    data->second.decode_into(values);
    const auto width = static_cast<std::size_t>(tensor.channels);
    for (std::size_t row = 0; row < static_cast<std::size_t>(tensor.tokens); ++row) {
      rows.push_back(health_of(std::span(values).subspan(row * width, width), 0));
    }
    return rows;
  }
  Fact<TensorData> read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) override {
    const auto data = data_.find(tensor.id);
    if (data == data_.end()) return absent("not there");
    const std::size_t width = static_cast<std::size_t>(tensor.channels) * nanscope::info(tensor.format).storage_bytes();
    TensorData out{tensor.format, count, tensor.channels, {}};
    const auto begin =
        data->second.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * width);
    out.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(count) * width));
    return out;
  }

 private:
  static Tensor described(const Made& made) {
    Tensor tensor;
    tensor.role = made.role;
    tensor.format = made.format;
    tensor.tokens = made.tokens;
    tensor.channels = made.channels;
    tensor.heads = made.heads;
    tensor.axis = made.axis;
    return tensor;
  }
  std::map<TensorId, TensorData> data_;
};

}  // namespace nanscope::testing
