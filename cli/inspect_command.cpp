#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/inspect/gguf_census.h"
#include "instrument/inspect/inspection.h"
#include "scenarios/report/gguf_report.h"
#include "scenarios/report/inspect_report.h"

namespace nanscope::cli {
namespace {

struct InspectArguments {
  std::string checkpoint;
  std::string loader = "vllm";
  std::int64_t rows = InspectOptions{}.rows;
  std::string kv_cache_dtype = InspectOptions{}.kv_cache_dtype;
  bool all = false;
  bool json = false;
  bool progress = false;
  std::string of_loaders;  ///< the first option that was given of those that GGUF has no use for
};

int inspect_gguf(const std::filesystem::path& file, const InspectArguments& arguments, const Interrupt& interrupt) {
  if (!arguments.of_loaders.empty())
    return failed({fmt::format("{}: is a GGUF file: {} is for safetensors", file.string(), arguments.of_loaders)},
                  interrupt);
  ProgressLine line("tensors", arguments.progress);
  const auto made =
      census_of_gguf(file, {.stop = interrupt.token(), .progress = [&line](std::size_t done, std::size_t total) {
                              line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "inspected");
                            }});
  line.clear();
  if (!made) return failed(made.error(), interrupt);
  print(arguments.json ? report::gguf_json(*made) : report::gguf_text(*made, arguments.all, output_terminal()));
  return made->bad() > 0 ? kFound : kClean;
}

int inspect(const InspectArguments& arguments, const Interrupt& interrupt) {
  const auto gguf = gguf_of(arguments.checkpoint);
  if (!gguf) return failed(gguf.error(), interrupt);
  if (*gguf) return inspect_gguf(**gguf, arguments, interrupt);
  ProgressLine line("modules", arguments.progress);
  InspectOptions options;
  options.loader = find_loader(arguments.loader);
  options.rows = arguments.rows;
  options.kv_cache_dtype = arguments.kv_cache_dtype;
  options.stop = interrupt.token();
  options.progress = [&line](std::size_t done, std::size_t total) {
    line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "inspected");
  };
  const auto made = inspect_checkpoint(arguments.checkpoint, options);
  line.clear();
  if (!made) return failed(made.error(), interrupt);
  print(arguments.json ? report::inspect_json(*made) : report::inspect_text(*made, arguments.all, output_terminal()));
  return made->count(Severity::error) + made->count(Severity::warning) > 0 ? kFound : kClean;
}

}  // namespace

void add_inspect_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand("inspect", "Report what a loader does with a checkpoint's tensors");
  command
      ->add_option("CHECKPOINT", arguments->checkpoint, "A folder with config.json and *.safetensors, or a GGUF file")
      ->required();
  std::vector<std::string> names;
  for (const Loader* loader : loaders()) names.emplace_back(loader->name);
  command->add_option("--as", arguments->loader, "The loader whose rules apply")
      ->type_name("LOADER")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command
      ->add_option(
          "--rows", arguments->rows,
          "Rows of each weight to decode, evenly spread, to measure its magnitude and the loader's changes; 0: all")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--kv-cache-dtype", arguments->kv_cache_dtype, "The dtype in which the server stores the KV cache")
      ->type_name("DTYPE")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4",
                             "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head"}))
      ->capture_default_str();
  command->add_flag("--all", arguments->all, "Also print a line for each weight");
  command->add_flag("--json", arguments->json, "Print everything as JSON: nanscope.inspection/1");
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  command->footer(
      "inspect reads config.json and the tensors; it loads no model and needs no GPU. It reports which weights the "
      "loader reads as codes, which as floats, and which weights fit neither. It reports scales that are missing, "
      "misnamed, "
      "not finite, inverted or replaced. It reports the weights that the loader changes, and by how much.\n"
      "\n"
      "Of a GGUF file it reports the types, the bits a weight, and scales that are NaN, Inf or 0. --as, --rows and "
      "--kv-cache-dtype do not apply.\n"
      "\n"
      "Examples:\n"
      "  nanscope inspect ~/models/Qwen3-8B-FP8\n"
      "  nanscope inspect ~/models/Qwen3-8B-NVFP4 --as sglang --all\n"
      "  nanscope inspect ~/models/Qwen3-8B-FP8 --as transformers --json\n"
      "  nanscope inspect ~/models/Qwen3-8B-Q4_K_M.gguf\n"
      "\n"
      "Exit codes: 0 only notes, 1 a warning, an error, or a scale that is NaN or Inf, 2 bad usage or an unreadable "
      "checkpoint, 130 interrupted.");
  command->callback([arguments, command, &action] {
    for (const char* option : {"--as", "--rows", "--kv-cache-dtype"}) {
      if (command->count(option) > 0 && arguments->of_loaders.empty()) arguments->of_loaders = option;
    }
    action = [arguments](Interrupt& interrupt) { return inspect(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
