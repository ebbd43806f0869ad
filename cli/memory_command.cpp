#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "instrument/engine/model_folder.h"
#include "instrument/files/file.h"
#include "instrument/gguf/gguf_model.h"
#include "scenarios/report/memory_report.h"

namespace nanscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 24;

struct MemoryArguments {
  std::string target;
  std::string weights;
  std::string cache;
  std::int64_t context = MemoryOptions{}.context;
  std::int64_t batch = 1;
  std::vector<std::string> devices;
  std::string format = "text";
};

/// "80G" or "80": GiB.
Result<double> device_bytes(const std::string& typed) {
  const std::string number = typed.substr(0, typed.find_last_not_of("GgiBb") + 1);
  double gib = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), gib);
  if (error != std::errc() || end != number.data() + number.size() || !(gib > 0) || gib > 1e6)
    return fail(fmt::format("--gpus: '{}' is no size; expected GiB, such as 80 or 24G", typed));
  return gib * 1073741824.0;
}

/// Of a folder, of its config.json alone, or of a GGUF file.
Result<ModelSpec> spec_of_model(const fs::path& target) {
  std::error_code error;
  if (target.extension() != ".json" || fs::is_directory(target, error)) return read_model_spec(target);
  const auto bytes = read_file(target, kMostConfigBytes);
  return bytes ? parse_model_spec(as_text(*bytes), target.string()) : tl::unexpected(bytes.error());
}

std::optional<double> bytes_of_files(const fs::path& target) {
  std::error_code error;
  double bytes = 0;
  if (fs::is_regular_file(target, error) && target.extension() == ".gguf")
    return static_cast<double>(fs::file_size(target, error));
  for (const auto& entry : fs::directory_iterator(target, error)) {
    const std::string extension = entry.path().extension().string();
    const bool weights = extension == ".safetensors" && entry.path().filename().string().starts_with("model");
    if (weights || extension == ".gguf") bytes += static_cast<double>(entry.file_size(error));
  }
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

Result<report::MemoryWords> words_of(const MemoryArguments& arguments) {
  const auto spec = spec_of_model(arguments.target);
  if (!spec) return tl::unexpected(spec.error());
  EngineConfig config;
  if (Status used = use_model_spec(config, *spec); !used) return fail(arguments.target + ": " + used.error().message);
  const auto stored = bytes_of_files(arguments.target);
  const bool coded = spec->quantized || gguf_of(arguments.target).value_or(std::nullopt);
  if (coded && arguments.weights.empty() && !stored)
    return fail(arguments.target + ": its weights are quantized: name their format, such as --weights e4m3");
  const std::string dtype(name(spec->format));
  report::MemoryWords words{.target = arguments.target, .family = spec->model.family};
  const auto weights = find_storage(arguments.weights.empty() ? dtype : arguments.weights);
  if (!weights) return fail("--weights: " + weights.error().message);
  const std::string cache_name = !arguments.cache.empty() ? arguments.cache
                                 : spec->kv_format        ? std::string(name(*spec->kv_format))
                                                          : dtype;
  const auto cache = find_storage(cache_name);
  if (!cache) return fail("--kv: " + cache.error().message);
  words.options = {.weights = *weights,
                   .others = *find_storage(dtype),
                   .cache = *cache,
                   .context = arguments.context,
                   .batch = arguments.batch};
  words.stored_bytes = stored;
  words.as_stored = coded && arguments.weights.empty();
  const auto plan = [&](const MemoryOptions& options) {
    MemoryPlan made = plan_memory(config, options);
    if (words.as_stored) made.weight_bytes = *stored;
    return made;
  };
  words.plan = plan(words.options);
  std::vector<std::string> formats = {cache_name};
  for (const char* one : {"bf16", "e4m3", "nvfp4"}) {
    if (std::ranges::find(formats, one) == formats.end()) formats.emplace_back(one);
  }
  for (const std::string& format : formats) {
    MemoryOptions options = words.options;
    options.cache = *find_storage(format);
    words.caches.push_back({format, plan(options)});
  }
  for (const std::string& typed : arguments.devices) {
    const auto bytes = device_bytes(typed);
    if (!bytes) return tl::unexpected(bytes.error());
    words.devices.push_back(*bytes);
  }
  return words;
}

}  // namespace

void add_memory_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<MemoryArguments>();
  CLI::App* command =
      app.add_subcommand("memory", "Compute the memory of a model's weights and KV cache from its configuration");
  command
      ->add_option("MODEL", arguments->target, "A config.json, a folder with one, or a GGUF file; weights are not read")
      ->required();
  command->add_option("--context", arguments->context, "Tokens of a request")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--batch", arguments->batch, "Requests at once")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("--weights", arguments->weights,
                   "Format of the matrices that products read: bf16, e4m3, int8, mxfp4, nvfp4, ... (default: the "
                   "config's dtype)")
      ->type_name("FORMAT");
  command->add_option("--kv", arguments->cache, "Format of the KV cache (default: the config's dtype)")
      ->type_name("FORMAT");
  command->add_option("--gpus", arguments->devices, "Sizes of memory in GiB, to see how many requests fit: 80,24G")
      ->type_name("GIB,...")
      ->delimiter(',');
  add_format(*command, arguments->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope memory model/ --context 32768 --batch 8 --gpus 80\n"
      "  nanscope memory config.json --weights e4m3 --kv e4m3\n"
      "\n"
      "Exit codes: 0 printed, 2 bad usage or bad input.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt&) {
      const auto words = words_of(*arguments);
      if (!words) return complain(words.error().message);
      print(arguments->format == "json" ? report::memory_json(*words) : report::memory_text(*words, output_terminal()));
      return kClean;
    };
  });
}

}  // namespace nanscope::cli
