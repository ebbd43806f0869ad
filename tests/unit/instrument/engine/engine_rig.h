#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "instrument/engine/engine.h"
#include "instrument/engine/knobs.h"
#include "instrument/probe.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/tokenizer/tokenizer.h"
#include "kernels/device.h"

namespace nanscope::testing {

using Knobs = std::vector<std::pair<std::string, std::string>>;

/// A model small enough for plain loops: 2 layers, width 32, 4 heads of 8 over 2 KV heads.
inline EngineConfig tiny_config(const Knobs& changes = {}) {
  const Knobs tiny{{"model.weights", "random"}, {"model.layers", "2"},     {"model.width", "32"},
                   {"model.heads", "4"},        {"model.kv_heads", "2"},   {"model.head_dim", "8"},
                   {"model.mlp_width", "48"},   {"model.patch_size", "4"}, {"kv.format", "f32"},
                   {"kv.blocks", "32"}};
  EngineConfig config;
  for (const Knobs& knobs : {tiny, changes}) {
    for (const auto& [name, value] : knobs) {
      const Status status = set_knob(config, name, value);
      EXPECT_TRUE(status) << (status ? "" : status.error().message);
    }
  }
  return config;
}

inline RequestSpec text_request(std::string text, int max_tokens = 1) {
  return {.name = text.substr(0, 8), .parts = {TextPart{std::move(text)}}, .max_tokens = max_tokens};
}

/// One output as a probe saw it. Codes of narrow formats stay bytes.
struct Seen {
  std::int64_t id = 0;
  std::int64_t request = 0;
  std::int64_t step = 0;  ///< within the request
  std::int64_t layer = 0;
  std::string op;
  std::string role;
  Format format = Format::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::byte> bytes;
  std::int64_t rank = 0;

  std::vector<float> floats() const {
    EXPECT_EQ(format, Format::f32) << op << "." << role;
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::vector<float> row(std::int64_t index) const {
    const std::vector<float> all = floats();
    return {all.begin() + index * columns, all.begin() + (index + 1) * columns};
  }
};

/// Keeps everything that the engine tells.
class CollectProbe final : public Probe {
 public:
  explicit CollectProbe(kernels::Device& device) : device_(device) {}

  Status on_step_begin(const StepRow& row) override {
    steps.push_back(row);
    return {};
  }
  Status on_op(const ProbeOp& op) override {
    ops.emplace_back(op.name);
    EXPECT_EQ(op.id, static_cast<std::int64_t>(ops.size()));
    for (const ProbeTensor& tensor : op.outputs) {
      Seen seen{tensor.id,
                steps.back().request,
                steps.back().index,
                op.layer,
                std::string(op.name),
                std::string(tensor.role),
                tensor.view.format,
                tensor.view.rows,
                tensor.view.columns,
                {},
                steps.back().rank};
      EXPECT_EQ(tensor.view.stride, tensor.view.columns);
      seen.bytes.resize(static_cast<std::size_t>(tensor.view.elements()) * info(tensor.view.format).storage_bytes());
      if (Status status = device_.download(seen.bytes, tensor.view.data); !status) return status;
      tensors.push_back(std::move(seen));
    }
    return {};
  }
  Status on_scale(const ScaleRow& row) override {
    scales.push_back(row);
    return {};
  }
  Status on_kv(const KvRow& row) override {
    kv.push_back(row);
    return {};
  }
  Status on_token(const TokenRow& row) override {
    tokens.push_back(row);
    return {};
  }

  const Seen& find(std::int64_t request, std::int64_t step, std::int64_t layer, std::string_view op,
                   std::string_view role, std::int64_t rank = 0) const {
    for (const Seen& seen : tensors) {
      if (seen.request == request && seen.step == step && seen.layer == layer && seen.op == op && seen.role == role &&
          seen.rank == rank) {
        return seen;
      }
    }
    ADD_FAILURE() << "no tensor " << request << "/" << step << "/" << layer << "/" << op << "." << role;
    return tensors.front();
  }
  /// Logits of the last row of a step.
  std::vector<float> last_logits(std::int64_t request, std::int64_t step) const {
    const Seen& logits = find(request, step, -1, "lm_head", "logits");
    return logits.row(logits.rows - 1);
  }

  std::vector<StepRow> steps;
  std::vector<std::string> ops;
  std::vector<Seen> tensors;
  std::vector<ScaleRow> scales;
  std::vector<KvRow> kv;
  std::vector<TokenRow> tokens;

 private:
  kernels::Device& device_;
};

inline std::shared_ptr<const Tokenizer> shipped_tokenizer() {
  static const auto tokenizer = std::make_shared<const Tokenizer>(load_shipped_tokenizer().value());
  return tokenizer;
}

/// An engine with its device and weights.
struct Rig {
  explicit Rig(const EngineConfig& config, WeightSource* weights = nullptr) {
    device = kernels::make_device(config.device, config.threads).value();
    std::unique_ptr<WeightSource> own;
    if (weights == nullptr) {
      own = make_weight_source(config.model).value();
      weights = own.get();
    }
    model = load_model(config, *device, *weights, *shipped_tokenizer()).value();
    Result<std::unique_ptr<Engine>> made = Engine::create(config, *device, model, shipped_tokenizer());
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    engine = std::move(*made);
  }

  CollectProbe collect(const std::vector<RequestSpec>& requests) {
    CollectProbe probe(*device);
    Result<RunResult> run = engine->run(requests, probe);
    EXPECT_TRUE(run) << (run ? "" : run.error().message);
    if (run) result = std::move(*run);
    return probe;
  }

  std::unique_ptr<kernels::Device> device;
  std::shared_ptr<const LoadedModel> model;
  std::unique_ptr<Engine> engine;
  RunResult result;
};

inline CollectProbe collect(const EngineConfig& config, const std::vector<RequestSpec>& requests) {
  return Rig(config).collect(requests);
}

/// Bit equality: unlike ==, it holds for NaN and tells zeros apart.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace nanscope::testing
