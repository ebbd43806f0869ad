/// bench_training TEXT: time of a training step with health and hash of every tensor recorded, over one that nobody
/// listens to.
/// bench_training TEXT FOLDER [KNOB=VALUE...]: trains 50 steps (or train.steps) and writes what another program needs
/// to do the same (losses_torch.py): weights.safetensors at the start, run.json with the knobs that were set and all of
/// them, batches, losses and seconds.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instrument/engine/knobs.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/weight_source.h"
#include "instrument/tokenizer/shipped.h"
#include "instrument/train/trainer.h"
#include "instrument/weights/safetensors.h"
#include "scenarios/record.h"
#include "scenarios/run_spec.h"
#include "scenarios/workbench.h"
#include "tests/bench/bench.h"

namespace nanscope {
namespace {

constexpr std::int64_t kSteps = 50;

using Settings = std::vector<std::pair<std::string, std::string>>;

Settings settings_for(const std::string& text, std::int64_t steps) {
  return {{"model.weights", "random"}, {"model.seed", "5"},
          {"model.layers", "3"},       {"model.width", "128"},
          {"model.heads", "4"},        {"model.kv_heads", "2"},
          {"model.head_dim", "32"},    {"model.mlp_width", "384"},
          {"model.norm", "rms_norm"},  {"model.patch_size", "0"},
          {"kv.format", "f32"},        {"kv.prefix_cache", "false"},
          {"train.text", text},        {"train.steps", std::to_string(steps)},
          {"train.batch", "8"},        {"train.length", "128"},
          {"train.warm_up", "10"},     {"train.learning_rate", "0.002"},
          {"train.seed", "5"},         {"train.weight_decay", "0.1"}};
}

EngineConfig config_for(const Settings& settings) {
  EngineConfig config;
  for (const auto& [name, value] : settings) must(set_knob(config, name, value));
  must(check(config));
  return config;
}

struct Parts {
  std::unique_ptr<kernels::Device> device;
  std::shared_ptr<const Tokenizer> tokenizer;
  train::TrainingText text;
  std::unique_ptr<train::Trainer> trainer;
};

Parts parts_of(const EngineConfig& config) {
  Parts parts;
  parts.device = must(kernels::make_device("cpu", 0));
  parts.tokenizer = std::make_shared<const Tokenizer>(must(load_shipped_tokenizer()));
  parts.text = must(train::load_training_text(config.train, *parts.tokenizer));
  auto source = must(make_weight_source(config.model));
  auto model = must(load_model(config, *parts.device, *source, *parts.tokenizer));
  parts.trainer = must(train::Trainer::create(config, *parts.device, model, parts.tokenizer, parts.text));
  return parts;
}

void write_weights(train::Trainer& trainer, const std::filesystem::path& path) {
  const train::TrainState state = must(trainer.state());
  std::vector<SafetensorsInput> tensors;
  for (const auto& weight : trainer.model()->weights) {
    const std::vector<float>& values = state.weights.at(weight.name);
    tensors.push_back({weight.name, "F32", {weight.view.rows, weight.view.columns}, std::as_bytes(std::span(values))});
  }
  const std::vector<std::byte> bytes = must(encode_safetensors(tensors));
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

int export_run(const Settings& settings, const std::filesystem::path& folder) {
  const EngineConfig config = config_for(settings);
  Parts parts = parts_of(config);
  std::filesystem::create_directories(folder);
  write_weights(*parts.trainer, folder / "weights.safetensors");
  nlohmann::ordered_json run;
  for (const auto& [name, value] : settings) run["set"][name] = value;
  run["knobs"] = nlohmann::ordered_json::parse(config_to_json(config));
  NullProbe nobody;
  double total = 0;
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    nlohmann::ordered_json batch = nlohmann::ordered_json::array();
    for (const train::Sequence& one : train::batch_of_step(config.train, parts.text, step)) {
      batch.push_back({{"tokens", one.tokens}, {"targets", one.targets}});
    }
    const auto begin = Clock::now();
    const train::StepReport report = must(parts.trainer->step(nobody, {}));
    total += seconds_since(begin);
    run["batches"].push_back(std::move(batch));
    run["losses"].push_back(report.loss);
    run["norms"].push_back(report.gradient_norm);
  }
  run["seconds"] = total;
  std::ofstream(folder / "run.json") << run.dump();
  fmt::print("{} steps in {:.2f} s, loss {:.4f} to {:.4f}\n", config.train.steps, total,
             run["losses"].front().get<double>(), run["losses"].back().get<double>());
  return 0;
}

double plain_seconds(const EngineConfig& config) {
  Parts parts = parts_of(config);
  NullProbe nobody;
  return seconds([&] {
    for (std::int64_t step = 0; step < config.train.steps; ++step) must(parts.trainer->step(nobody, {}));
  });
}

struct Times {
  double run = 0;
  double until_closed = 0;
};

Times recorded_times(const EngineConfig& config, const std::filesystem::path& path) {
  scenarios::RunSpec spec;
  spec.config = config;
  auto bench = must(scenarios::Workbench::open(config));
  scenarios::RecordOptions options;
  options.path = path;
  options.capture = "none";
  options.output.replace = true;
  const scenarios::Recorded recorded = must(scenarios::record(*bench, spec, options));
  return {recorded.seconds, recorded.total_seconds};
}

int compare_recording(const std::string& text) {
  const EngineConfig config = config_for(settings_for(text, 12));
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "bench_training.nanscope";
  std::vector<double> ratios;
  std::vector<double> closed;
  for (int run = 0; run < 5; ++run) {
    const double plain = plain_seconds(config);
    const Times recorded = recorded_times(config, path);
    ratios.push_back(recorded.run / plain);
    closed.push_back(recorded.until_closed / plain);
    fmt::print(stderr, "{:.2f} s, recorded {:.2f} s, until the file is closed {:.2f} s\n", plain, recorded.run,
               recorded.until_closed);
  }
  std::filesystem::remove(path);
  row("the same until the file is closed, the model's loading included", fmt::format("{:.2f}", median(closed)), "none",
      true);
  const double ratio = median(ratios);
  return row("training with health and hash of every tensor / without", fmt::format("{:.2f}", ratio), "<= 1.25",
             ratio <= 1.25)
             ? 0
             : 1;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  using namespace nanscope;
  if (argc == 2) return compare_recording(argv[1]);
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_training TEXT [FOLDER [KNOB=VALUE...]]\n");
    return 2;
  }
  Settings settings = settings_for(argv[1], kSteps);
  for (const std::string_view setting : std::span(argv, static_cast<std::size_t>(argc)).subspan(3)) {
    const std::size_t equals = std::min(setting.find('='), setting.size() - 1);
    settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return export_run(settings, argv[2]);
}
