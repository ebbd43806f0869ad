#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "instrument/inspect/inspection.h"
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
};

int inspect(const InspectArguments& arguments, const Interrupt& interrupt) {
  ProgressLine line("modules", arguments.progress);
  InspectOptions options;
  options.loader = find_loader(arguments.loader);
  options.rows = arguments.rows;
  options.kv_cache_dtype = arguments.kv_cache_dtype;
  options.stop = interrupt.token();
  options.progress = [&line](std::size_t done, std::size_t total) {
    line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "looked at");
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
  CLI::App* command = app.add_subcommand("inspect", "What a loader will do with a checkpoint's tensors");
  command->add_option("CHECKPOINT", arguments->checkpoint, "A folder with config.json and *.safetensors")->required();
  std::vector<std::string> names;
  for (const Loader* loader : loaders()) names.emplace_back(loader->name);
  command->add_option("--as", arguments->loader, "Whose rules: those of this loader")
      ->type_name("LOADER")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command
      ->add_option("--rows", arguments->rows,
                   "Rows of each weight that are decoded for its size and its changes, spread evenly; 0: all")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--kv-cache-dtype", arguments->kv_cache_dtype, "What the server is told to store the KV cache in")
      ->type_name("DTYPE")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4",
                             "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head"}))
      ->capture_default_str();
  command->add_flag("--all", arguments->all, "A line for each weight as well");
  command->add_flag("--json", arguments->json, "All of it as JSON: nanscope.inspection/1");
  command->add_flag("--progress", arguments->progress, "Say how far it is, also where standard error is no terminal");
  command->footer(
      "Reads config.json and the tensors, loads no model and needs no GPU. Says which weights the loader takes as "
      "codes, "
      "which as floats and which fit to neither; scales that are missing, under other names, not finite, the wrong way "
      "round, or replaced; weights that it changes, and by how much.\n"
      "\n"
      "Examples:\n"
      "  nanscope inspect ~/models/Qwen3-8B-FP8\n"
      "  nanscope inspect ~/models/Qwen3-8B-NVFP4 --as sglang --all\n"
      "  nanscope inspect ~/models/Qwen3-8B-FP8 --as transformers --json\n"
      "\n"
      "Exit codes: 0 nothing but notes, 1 a warning or an error, 2 bad usage, or a checkpoint that cannot be read, 130 "
      "interrupted.");
  command->callback(
      [arguments, &action] { action = [arguments](Interrupt& interrupt) { return inspect(*arguments, interrupt); }; });
}

}  // namespace nanscope::cli
