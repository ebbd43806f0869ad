#include "instrument/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/files/output_file.h"
#include "core/files/temporary.h"
#include "core/parse_json.h"
#include "core/recording/weight_version.h"
#include "core/tensor/content_hash.h"
#include "instrument/engine/knobs.h"
#include "instrument/files/file.h"
#include "instrument/train/model_files.h"
#include "instrument/weights/safetensors.h"

namespace nanscope::train {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kRunSchema = "nanscope.trainer/1";
constexpr std::string_view kRunFile = "trainer.json";
constexpr std::string_view kOptimizer = "optimizer-";
constexpr std::string_view kStateEnd = ".safetensors";
constexpr std::string_view kAgain = "-again";
constexpr std::string_view kMadeBy = "made_by";  ///< a key of a state's metadata
constexpr std::string_view kTrainer = "nanscope train";
constexpr std::string_view kMaster = "master.";
constexpr std::string_view kFirst = "first.";
constexpr std::string_view kSecond = "second.";
constexpr std::string_view kRounded = "rounded.";
constexpr std::string_view kScores = "scores.";  ///< F64: what scores.policy remembers of a scale
constexpr std::uint64_t kMostRunFile = std::uint64_t{16} << 20;
constexpr std::uint64_t kMostState = std::uint64_t{1} << 40;
constexpr std::array<std::string_view, 4> kFileKnobs = {"train.text", "model.weights", "model.tokenizer",
                                                        "scores.scales"};

std::string hash_of_state(std::span<const std::byte> bytes) {
  ContentHash hash;
  hash.add(bytes);
  return fmt::format("{:016x}", hash.finish());
}

/// What trainer.json says.
struct RunFile {
  std::int64_t step = 0;
  double loss_scale = 1;
  std::int64_t steady_steps = 0;
  std::string optimizer, optimizer_hash, text_hash;
  EngineConfig config;
};

std::string to_text(const RunFile& run) {
  const Json json{{"schema", kRunSchema},
                  {"step", run.step},
                  {"loss_scale", run.loss_scale},
                  {"steady_steps", run.steady_steps},
                  {"optimizer", {{"file", run.optimizer}, {"hash", run.optimizer_hash}}},
                  {"text_hash", run.text_hash},
                  {"knobs", parse_json_or_none<Json>(config_to_json(run.config))}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

tl::unexpected<Error> damaged_run(const fs::path& path, std::string_view what) {
  return fail(fmt::format("{}: damaged: {}", path.string(), what));
}

/// A name in the folder itself.
bool is_plain_name(const std::string& name) {
  return !name.empty() && fs::path(name).filename() == name && name != "." && name != "..";
}

Result<RunFile> read_run_file(const fs::path& folder) {
  const fs::path path = folder / kRunFile;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return fail(fmt::format("{}: holds no {}, so it is no checkpoint of a training run", folder.string(), kRunFile));
  }
  const auto bytes = read_file(path, kMostRunFile);
  if (!bytes) return tl::unexpected(bytes.error());
  const Json json = parse_json_or_none<Json>(as_text(*bytes));
  if (!json.is_object()) return damaged_run(path, "not a JSON object");
  if (json.value("schema", Json()) != kRunSchema) {
    return damaged_run(path, fmt::format("its schema is not {}", kRunSchema));
  }
  const Json step = json.value("step", Json());
  const Json scale = json.value("loss_scale", Json());
  const Json steady = json.value("steady_steps", Json());
  const Json optimizer = json.value("optimizer", Json());
  const Json text = json.value("text_hash", Json());
  const Json knobs = json.value("knobs", Json());
  const bool numbers = step.is_number_integer() && scale.is_number() && steady.is_number_integer();
  const bool named = optimizer.is_object() && optimizer.value("file", Json()).is_string() &&
                     optimizer.value("hash", Json()).is_string() && text.is_string();
  if (!numbers || !named || !knobs.is_object()) return damaged_run(path, "a field is missing or has another type");
  RunFile run{step.get<std::int64_t>(),
              scale.get<double>(),
              steady.get<std::int64_t>(),
              optimizer["file"].get<std::string>(),
              optimizer["hash"].get<std::string>(),
              text.get<std::string>(),
              {}};
  if (run.step < 0 || run.steady_steps < 0 || !(run.loss_scale > 0) || !std::isfinite(run.loss_scale)) {
    return damaged_run(path, "step or loss scale is out of range");
  }
  if (!is_plain_name(run.optimizer)) return damaged_run(path, "the optimizer's file is not of this folder");
  auto config = config_from_json(knobs.dump());
  if (!config) return damaged_run(path, config.error().message);
  run.config = std::move(*config);
  return run;
}

/// How a knob that names a file is compared: by the last name, wherever it lies.
std::string compared(const Knob& knob, const EngineConfig& config) {
  std::string value = knob.get(config);
  const bool file = std::find(kFileKnobs.begin(), kFileKnobs.end(), knob.name) != kFileKnobs.end();
  if (!file) return value;
  const fs::path path(value);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

/// Whether a checkpoint is of this run.
Status same_run(const fs::path& folder, const RunFile& run, const EngineConfig& config) {
  for (const Knob& knob : knobs()) {
    if (!knob.numerics || knob.name == "train.steps") continue;
    const std::string theirs = compared(knob, run.config);
    const std::string ours = compared(knob, config);
    if (theirs == ours) continue;
    return fail(fmt::format("{}: was trained with {}={}, not with {}; a run goes on with the knobs that it began with",
                            folder.string(), knob.name, theirs, ours));
  }
  const std::string& ours = config.train.text_hash;
  if (!ours.empty() && !run.text_hash.empty() && ours != run.text_hash) {
    return fail(fmt::format("{}: was trained on another text than {} holds now (hash {} instead of {})",
                            folder.string(), config.train.text, ours, run.text_hash));
  }
  return {};
}

/// rows x columns of a weight of the model.
Result<std::vector<std::int64_t>> shape_of(const LoadedModel& model, const std::string& name, std::size_t elements) {
  for (const Weight& weight : model.weights) {
    if (weight_of_version(weight.name) != name) continue;
    if (std::cmp_not_equal(weight.view.rows * weight.view.columns, elements)) break;
    return std::vector<std::int64_t>{weight.view.rows, weight.view.columns};
  }
  return fail(fmt::format("the state of '{}' has {} elements, which no weight of the model has", name, elements));
}

Result<std::vector<std::byte>> optimizer_file(const LoadedModel& model, const TrainState& state) {
  std::vector<SafetensorsInput> tensors;
  const auto add = [&](std::string_view part, const std::string& name, const std::vector<float>& values) {
    auto shape = shape_of(model, name, values.size());
    if (!shape) return Status(tl::unexpected(shape.error()));
    tensors.push_back({fmt::format("{}{}", part, name), "F32", std::move(*shape), std::as_bytes(std::span(values))});
    return Status();
  };
  for (const auto& [name, values] : state.weights) {
    if (Status done = add(kMaster, name, values); !done) return tl::unexpected(done.error());
  }
  for (const auto& [name, values] : state.rounded) {
    if (Status done = add(kRounded, name, values); !done) return tl::unexpected(done.error());
  }
  for (const auto& [name, moments] : state.moments) {
    if (Status done = add(kFirst, name, moments.first); !done) return tl::unexpected(done.error());
    if (Status done = add(kSecond, name, moments.second); !done) return tl::unexpected(done.error());
  }
  for (const auto& [name, memory] : state.scores) {
    tensors.push_back(
        {fmt::format("{}{}", kScores, name), "F64", {std::ssize(memory)}, std::as_bytes(std::span(memory))});
  }
  return encode_safetensors(
      tensors, {{"format", "pt"}, {"step", std::to_string(state.step)}, {std::string(kMadeBy), std::string(kTrainer)}});
}

/// Every bit as it is stored: NaN keeps its payload.
template <class Number>
std::vector<Number> values_of_bytes(std::span<const std::byte> bytes) {
  std::vector<Number> values(bytes.size() / sizeof(Number));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Number));
  return values;
}

Status read_optimizer(const fs::path& path, const RunFile& run, TrainState& state) {
  std::error_code error;
  if (!fs::exists(path, error)) return fail(path.string() + ": is missing");
  const auto bytes = read_file(path, kMostState);
  if (!bytes) return tl::unexpected(bytes.error());
  if (hash_of_state(*bytes) != run.optimizer_hash) {
    return damaged_run(path, fmt::format("its hash is not the one that {} states", kRunFile));
  }
  const auto header = parse_safetensors(*bytes, path.string());
  if (!header) return tl::unexpected(header.error());
  for (const SafetensorsEntry& entry : header->entries) {
    const std::string_view name = entry.name;
    const auto stored = std::span(*bytes).subspan(header->data_begin + entry.begin, entry.end - entry.begin);
    const bool score = name.starts_with(kScores);
    const std::string_view dtype = score ? "F64" : "F32";
    if (entry.dtype != dtype) return damaged_run(path, fmt::format("'{}' is no {}", name, dtype));
    if (score) {
      state.scores[entry.name.substr(kScores.size())] = values_of_bytes<double>(stored);
      continue;
    }
    auto values = values_of_bytes<float>(stored);
    if (name.starts_with(kMaster)) {
      state.weights[entry.name.substr(kMaster.size())] = std::move(values);
    } else if (name.starts_with(kRounded)) {
      state.rounded[entry.name.substr(kRounded.size())] = std::move(values);
    } else if (name.starts_with(kFirst)) {
      state.moments[entry.name.substr(kFirst.size())].first = std::move(values);
    } else if (name.starts_with(kSecond)) {
      state.moments[entry.name.substr(kSecond.size())].second = std::move(values);
    } else {
      return damaged_run(path, fmt::format("'{}' is no part of an optimizer's state", name));
    }
  }
  for (const auto& [name, moments] : state.moments) {
    const auto master = state.weights.find(name);
    const std::size_t elements = master == state.weights.end() ? 0 : master->second.size();
    if (moments.first.size() != elements || moments.second.size() != elements) {
      return damaged_run(path, fmt::format("the moments of '{}' are not as large as the weight", name));
    }
  }
  return {};
}

/// What a folder may be replaced by.
Status may_replace(const fs::path& folder, const EngineConfig& config, bool replace) {
  if (replace) return {};
  if (!has_checkpoint(folder)) {
    return fail(folder.string() + ": is not empty and holds no checkpoint; name another folder");
  }
  const auto run = read_run_file(folder);
  if (!run) return tl::unexpected(run.error());
  return same_run(folder, *run, config);
}

/// One that trainer.json does not name now: what it names goes on being there until it is replaced.
std::string state_file_name(const fs::path& folder, const RunFile& run) {
  std::string name = fmt::format("{}{}{}", kOptimizer, run.step, kStateEnd);
  const auto before = has_checkpoint(folder) ? read_run_file(folder) : Result<RunFile>(fail(std::string()));
  const bool taken = before && before->optimizer == name && before->optimizer_hash != run.optimizer_hash;
  return taken ? fmt::format("{}{}{}{}", kOptimizer, run.step, kAgain, kStateEnd) : name;
}

/// Whether a file is the state of a step as this writes it: by its name and by what its header says.
bool is_own_state(const fs::path& path) {
  const std::string name = path.filename().string();
  std::string_view step = name;
  if (!step.starts_with(kOptimizer) || !step.ends_with(kStateEnd)) return false;
  step.remove_prefix(kOptimizer.size());
  step.remove_suffix(kStateEnd.size());
  if (step.ends_with(kAgain)) step.remove_suffix(kAgain.size());
  if (step.empty() || step.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const auto mapped = MappedFile::open(path);
  const auto header = mapped ? parse_safetensors(mapped->bytes(), path.string()) : tl::unexpected(mapped.error());
  if (!header) return false;
  const auto is = [&](std::string_view key, std::string_view value) {
    const auto found = header->metadata.find(std::string(key));
    return found != header->metadata.end() && found->second == value;
  };
  return is("step", step) && is(kMadeBy, kTrainer);
}

/// What write_output() of a process that was killed left.
bool is_unfinished(const std::string& name, const std::vector<FolderFile>& files) {
  return std::any_of(files.begin(), files.end(),
                     [&](const FolderFile& file) { return temporaries::is_beside(name, file.name); });
}

/// A pipe would be written to, and waited for. Error: something stands in the place of a file that is no file.
Status check_regular(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool other = fs::exists(status) && !fs::is_regular_file(status);
  return other ? fail(fmt::format("{}: is no regular file", path.string())) : Status();
}

/// States of other steps, and what a process that was killed left of any file. What others put there stays.
void remove_left_over(const fs::path& folder, const std::vector<FolderFile>& files) {
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool current =
        std::any_of(files.begin(), files.end(), [&](const FolderFile& file) { return file.name == name; });
    if (!current && (is_own_state(entry->path()) || is_unfinished(name, files))) old.push_back(entry->path());
  }
  for (const fs::path& path : old) fs::remove(path, error);
}

}  // namespace

bool has_checkpoint(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kRunFile, error);
}

Status save_checkpoint(const fs::path& folder, const EngineConfig& config, const LoadedModel& model,
                       kernels::Device& device, const TrainState& state, bool replace) {
  std::error_code error;
  const bool there = fs::is_directory(folder, error) && !fs::is_empty(folder, error);
  if (there) {
    if (Status allowed = may_replace(folder, config, replace); !allowed) return allowed;
  }
  auto files = model_files(config, model, device);
  if (!files) return fail(fmt::format("{}: {}", folder.string(), files.error().message));
  auto optimizer = optimizer_file(model, state);
  if (!optimizer) return fail(fmt::format("{}: {}", folder.string(), optimizer.error().message));
  RunFile run{state.step, state.loss_scale, state.steady_steps, {}, hash_of_state(*optimizer), config.train.text_hash,
              config};
  run.optimizer = state_file_name(folder, run);
  const std::string text = to_text(run);
  // The state that trainer.json names is there before it, and the one that it named before goes behind it.
  files->insert(files->begin(), {run.optimizer, std::move(*optimizer)});
  const auto text_bytes = std::as_bytes(std::span(text));
  files->push_back({std::string(kRunFile), {text_bytes.begin(), text_bytes.end()}});

  OutputOptions options{.replace = there, .durable = true};
  for (const std::string& input : {config.model.weights, config.model.tokenizer, config.train.text}) {
    if (!input.empty() && fs::exists(input, error)) options.inputs.emplace_back(input);
  }
  if (!there) {
    auto made = OutputFolder::create(folder, options);
    if (!made) return tl::unexpected(made.error());
    for (const FolderFile& file : *files) {
      if (Status done = made->write(file.name, file.bytes); !done) return done;
    }
    return made->commit();
  }
  for (const FolderFile& file : *files) {
    if (Status regular = check_regular(folder / file.name); !regular) return regular;
  }
  for (const FolderFile& file : *files) {
    if (Status done = write_output(folder / file.name, file.bytes, options); !done) return done;
  }
  remove_left_over(folder, *files);
  return {};
}

Result<TrainState> load_checkpoint(const fs::path& folder, const EngineConfig& config) {
  const auto run = read_run_file(folder);
  if (!run) return tl::unexpected(run.error());
  if (Status same = same_run(folder, *run, config); !same) return tl::unexpected(same.error());
  if (run->step > config.train.steps) {
    return fail(fmt::format("{}: has done {} steps already, and train.steps={} are fewer", folder.string(), run->step,
                            config.train.steps));
  }
  // Before anything is trained, as saving would refuse them.
  for (const std::string_view name : {std::string_view("config.json"), std::string_view("model.safetensors"),
                                      std::string_view("tokenizer.json"), kRunFile}) {
    if (Status regular = check_regular(folder / name); !regular) return tl::unexpected(regular.error());
  }
  TrainState state;
  state.step = run->step;
  state.loss_scale = run->loss_scale;
  state.steady_steps = run->steady_steps;
  if (Status read = read_optimizer(folder / run->optimizer, *run, state); !read) return tl::unexpected(read.error());
  return state;
}

}  // namespace nanscope::train
