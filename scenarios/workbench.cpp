#include "scenarios/workbench.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/recording/rows.h"
#include "core/text/safe_text.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/reference_weights.h"
#include "instrument/engine/weight_source.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/tokenizer/tokenizer.h"
#include "instrument/train/trainer.h"

namespace nanscope::scenarios {

namespace {

Result<std::unique_ptr<WeightSource>> weight_source(const ModelConfig& model) {
  return model.weights == "reference" ? make_reference_weights(model) : make_weight_source(model);
}

}  // namespace

Result<std::unique_ptr<Workbench>> Workbench::open(const std::string& device, int threads, const RunLimits& limits) {
  auto made = kernels::make_device(device, threads);
  if (!made) return tl::unexpected(made.error());
  return std::unique_ptr<Workbench>(new Workbench(std::move(*made), limits));
}

Result<std::unique_ptr<Workbench>> Workbench::open(const EngineConfig& config, const RunLimits& limits) {
  return open(config.device, config.threads, limits);
}

Status Workbench::load_tokenizer(const ModelConfig& model) {
  const std::string& path = model.tokenizer;
  const bool none = path.empty() && !model.family.empty();
  if (tokenizer_ && tokenizer_path_ == path && none == (tokenizer_->vocab_size() == 0)) return {};
  auto loaded = none ? Tokenizer::none() : path.empty() ? load_shipped_tokenizer() : Tokenizer::load(path);
  if (!loaded) return tl::unexpected(loaded.error());
  tokenizer_ = std::make_shared<const Tokenizer>(std::move(*loaded));
  tokenizer_path_ = path;
  model_.reset();
  return {};
}

Status Workbench::load(const EngineConfig& config, std::stop_token stop) {
  if (Status loaded = load_tokenizer(config.model); !loaded) return loaded;
  const auto tokens = static_cast<std::int64_t>(tokenizer_->vocab_size());
  const RunCost cost = cost_of_model(config, config.model.vocabulary > 0 ? config.model.vocabulary : tokens);
  if (Status affordable = within(cost, limits_); !affordable) return affordable;
  if (model_ && fits(*model_, config)) return {};
  auto source = weight_source(config.model);
  if (!source) return tl::unexpected(source.error());
  auto model = load_model(config, *device_, **source, *tokenizer_, std::move(stop));
  if (!model) return tl::unexpected(model.error());
  model_ = std::move(*model);
  weights_.clear();
  return {};
}

Status Workbench::load_recorded(const EngineConfig& config, const Recording& recording, const std::stop_token& stop) {
  const auto recorded = recording.weights();
  if (!recorded) return tl::unexpected(recorded.error());
  if (Status loaded = load(config, stop); !loaded) return loaded;
  std::unordered_map<std::string_view, const WeightRow*> expected;
  for (const WeightRow& row : *recorded) expected.emplace(row.name, &row);
  for (const Weight& weight : model_->weights) {
    if (stop.stop_requested()) return fail("stopped");
    const auto found = expected.find(weight.name);
    if (found == expected.end()) continue;  // a run that was not recorded to its end
    const auto decoded = decoded_weight(*model_, weight, *device_);
    if (!decoded) return tl::unexpected(decoded.error());
    const auto row = weights_.of(weight_row(weight), decoded->view);
    if (!row) return tl::unexpected(row.error());
    if (row->hash == found->second->hash) continue;
    return fail(
        fmt::format("the weight '{}' is not the recorded one (hash {:016x} instead of {:016x}): the model's files have "
                    "changed since",
                    one_line(weight.name), row->hash, found->second->hash));
  }
  return {};
}

Result<std::unique_ptr<train::Trainer>> Workbench::trainer(const EngineConfig& config, std::stop_token stop) {
  if (Status loaded = load(config, std::move(stop)); !loaded) return tl::unexpected(loaded.error());
  auto text = train::load_training_text(config.train, *tokenizer_);
  if (!text) return tl::unexpected(text.error());
  return train::Trainer::create(config, *device_, model_, tokenizer_, std::move(*text));
}

Result<std::unique_ptr<Engine>> Workbench::engine(const EngineConfig& config, kernels::Device& device,
                                                  std::stop_token stop) {
  if (Status loaded = load(config, std::move(stop)); !loaded) return tl::unexpected(loaded.error());
  if (config.train.steps > 0) return train::make_training_engine(config, device, model_, tokenizer_, limits_);
  return Engine::create(config, device, model_, tokenizer_, limits_);
}

}  // namespace nanscope::scenarios
