#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/run/run_data.h"
#include "core/run/tensor_source.h"
#include "tests/unit/core/run/fill.h"

/// Runs made row by row, so that a test states exactly the numbers that a detector sees.
namespace nanscope::testing {

class MemoryRun final : public RunData {
 public:
  RunInfo run_info;
  std::vector<RequestRow> request_rows;
  std::vector<StepRow> step_rows;
  std::vector<WeightRow> weight_rows;
  std::vector<ScaleRow> scale_rows;
  std::vector<KvRow> kv_rows;
  std::vector<TokenRow> token_rows;
  std::vector<OpRow> op_rows;
  std::vector<TensorRow> tensor_rows;
  std::vector<InputRow> input_rows;
  std::map<std::int64_t, std::vector<Health>> detail;
  std::optional<Error> error;
  std::size_t rows_read = 0;  ///< tensor rows handed out, to see that nobody scans
  std::size_t rows_until_stop = std::numeric_limits<std::size_t>::max();  ///< then an op's tensors are empty, an error

  const RunInfo& info() override { return run_info; }
  RecordingCounts counts() override;
  std::span<const RequestRow> requests() override { return request_rows; }
  std::span<const StepRow> steps() override { return step_rows; }
  std::span<const WeightRow> weights() override { return weight_rows; }
  std::span<const ScaleRow> scales() override { return scale_rows; }
  std::span<const KvRow> kv_history() override { return kv_rows; }
  std::vector<TokenRow> tokens(std::int64_t request) override;
  std::vector<OpRow> ops(const OpFilter& filter) override;
  std::vector<TensorRow> tensors(const TensorFilter& filter) override;
  void each_op_name(const std::function<bool(const OpRow&)>& visit) override;
  void each_glance(std::optional<std::int64_t> step, const std::function<bool(const TensorGlance&)>& visit) override;
  std::optional<OpRow> op(std::int64_t id) override;
  std::optional<TensorRow> tensor(std::int64_t id) override;
  std::vector<TensorRow> tensors_of(std::int64_t op) override;
  std::vector<InputRow> inputs_of(std::int64_t op) override;
  std::vector<Health> token_health(std::int64_t tensor) override;
  Status status() const override;
};

class MemoryTensors final : public TensorSource {
 public:
  std::map<std::int64_t, TensorData> data;
  int fetches = 0;
  Fact<TensorData> fetch(std::int64_t tensor) override;
};

/// An input of an op: a tensor, or a weight by name.
struct In {
  std::string role;
  std::int64_t tensor = 0;
  std::string weight = {};
};

struct Shape {
  std::int64_t tokens = 1;
  std::int64_t channels = 1;
  std::int64_t first_token = 0;
  std::int64_t heads = 1;
};

/// Adds rows in logical order and computes health and elements from the given values.
class RunBuilder {
 public:
  MemoryRun run;
  MemoryTensors tensors;

  std::int64_t request(std::int64_t id, std::vector<std::int32_t> prompt, std::vector<std::int32_t> output = {});
  std::int64_t step(std::int64_t request, std::int64_t index, std::int64_t first_token, std::int64_t tokens);
  /// In the current step.
  std::int64_t op(std::int64_t layer, const std::string& name, const std::string& kind, const std::vector<In>& inputs,
                  const std::string& attributes = "{}");
  /// An output of the op that was added last.
  std::int64_t output(const std::string& role, const Shape& shape, const Fill& fill, Format format = Format::f32);
  /// Codes of `source` under `scale`, with clipped values counted, and the ledger's entry.
  std::int64_t store(const std::string& target, std::int64_t source, const ScaleRow& scale,
                     Overflow overflow = Overflow::saturate);
  void weight(const std::string& name, std::uint64_t nan = 0);
  void kv(std::int64_t request, std::int64_t block, std::int64_t slot_begin, std::int64_t slot_end,
          std::int64_t first_token, KvAction action, const std::string& writer = "attention",
          Format format = Format::e4m3, std::int64_t layer = -1);
  const TensorRow& row(std::int64_t tensor) { return run.tensor_rows[static_cast<std::size_t>(tensor - 1)]; }
  float value(std::int64_t tensor, std::int64_t row, std::int64_t channel) {
    return tensors.data.at(tensor).value(row, channel);
  }
  std::int64_t current_step = 0;

 private:
  std::int64_t add(TensorRow row, TensorData data, const std::vector<std::uint64_t>& clipped);
};

}  // namespace nanscope::testing
