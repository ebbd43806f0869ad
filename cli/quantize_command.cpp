#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "instrument/engine/calibrate.h"
#include "instrument/engine/compare_models.h"
#include "instrument/files/file.h"
#include "instrument/quantize/quantize.h"
#include "scenarios/report/quantize_report.h"

namespace nanscope::cli {
namespace {

constexpr std::uint64_t kMostText = 16u << 20;

struct QuantizeArguments {
  std::string checkpoint;
  std::string output;
  std::string to;
  std::string layout;
  std::vector<std::string> ignore;
  std::string calibrate;
  bool weights_only = false;
  std::size_t tokens = 256;
  int threads = 0;
  bool all = false;
  bool json = false;
  bool progress = false;
};

/// The formats, or the layouts of format `to`, in the order of the targets.
std::vector<std::string> values_of(std::string_view QuantizeTarget::*what, std::string_view to = {}) {
  std::vector<std::string> names;
  for (const QuantizeTarget& target : quantize_targets()) {
    const std::string name(target.*what);
    if ((to.empty() || target.to == to) && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  return names;
}

int quantize(const QuantizeArguments& arguments, const Interrupt& interrupt) {
  QuantizeOptions options;
  options.target = find_quantize_target(arguments.to, arguments.layout);
  if (options.target == nullptr) {
    return complain(fmt::format("--layout: {} has only the layouts {}", arguments.to,
                                fmt::join(values_of(&QuantizeTarget::layout, arguments.to), " and ")));
  }
  std::string text;
  Result<std::vector<std::int32_t>> ids;
  if (!arguments.calibrate.empty()) {
    const auto bytes = read_file(arguments.calibrate, kMostText);
    if (!bytes) return complain(bytes.error().message);
    text = as_text(*bytes);
    ids = tokens_of_text(arguments.checkpoint, text, arguments.tokens);
    if (!ids) return complain("--calibrate: " + ids.error().message);
  }
  if (!arguments.calibrate.empty() && !arguments.weights_only && !options.target->input.empty()) {
    auto inputs = calibrate_inputs(arguments.checkpoint, *ids, interrupt.token());
    if (!inputs && interrupt.requested()) return interrupt.code();
    if (!inputs) return complain("--calibrate: " + inputs.error().message);
    options.inputs = std::move(*inputs);
  }
  ProgressLine line("MiB", arguments.progress);
  options.ignore = arguments.ignore;
  options.threads = arguments.threads;
  options.stop = interrupt.token();
  options.progress = [&line](std::uint64_t done, std::uint64_t total) {
    line.show(static_cast<std::int64_t>(done >> 20), static_cast<std::int64_t>(total >> 20), "quantized");
  };
  const auto made = quantize_checkpoint(arguments.checkpoint, arguments.output, options);
  line.clear();
  if (!made && interrupt.requested()) {
    complain(fmt::format("stopped: the same command continues from {}.partial", arguments.output));
    return interrupt.code();
  }
  if (!made) return complain(made.error().message);
  report::QuantizeWords words{arguments.checkpoint, arguments.output, options.target, arguments.all, std::nullopt};
  if (!arguments.calibrate.empty()) {
    const auto change =
        compare_models(arguments.checkpoint, arguments.output, text, arguments.tokens, interrupt.token());
    if (!change && interrupt.requested()) return interrupt.code();
    if (!change) complain("--calibrate: " + change.error().message);
    if (change) words.measured = *change;
  }
  print(arguments.json ? report::quantize_json(*made, words) : report::quantize_text(*made, words, output_terminal()));
  return arguments.calibrate.empty() || words.measured ? kClean : kBadInput;
}

}  // namespace

void add_quantize_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<QuantizeArguments>();
  CLI::App* command = app.add_subcommand("quantize", "Write a quantized checkpoint: weights as codes and scales");
  command->add_option("CHECKPOINT", arguments->checkpoint, "A folder with config.json and *.safetensors")->required();
  command->add_option("-o,--output", arguments->output, "The folder to create; it must not exist")
      ->type_name("OUT")
      ->required();
  command->add_option("--to", arguments->to, "The format of the weights")
      ->type_name("FORMAT")
      ->check(CLI::IsMember(values_of(&QuantizeTarget::to)))
      ->required();
  command
      ->add_option("--layout", arguments->layout,
                   "The layout of tensor names and quantization_config (default: the one that most loaders read)")
      ->type_name("LAYOUT")
      ->check(CLI::IsMember(values_of(&QuantizeTarget::layout)));
  command
      ->add_option("--ignore", arguments->ignore,
                   "Do not quantize modules whose names contain a match of this regular expression; repeatable")
      ->type_name("REGEX")
      ->allow_extra_args(false);
  command
      ->add_option("--calibrate", arguments->calibrate,
                   "Run both models on this text and report how far the logits change. Formats with a scale for the "
                   "inputs of products (nvfp4, fp8 of modelopt) get it from this run")
      ->type_name("FILE");
  command->add_flag("--weights-only", arguments->weights_only,
                    "With --calibrate: do not quantize the inputs of products");
  command->add_option("--tokens", arguments->tokens, "Number of tokens of the text to run")
      ->type_name("N")
      ->check(CLI::Range(std::size_t{1}, std::size_t{4096}))
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "Number of threads; 0: one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--all", arguments->all, "Print a line for each weight, not only for the worst");
  command->add_flag("--json", arguments->json, "Print everything as JSON: nanscope.quantization/1");
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  command->footer(
      "quantize quantizes the weights of products. The head, routers, embeddings, norms and all other files stay "
      "unchanged. With --calibrate, nvfp4 also quantizes the inputs of products. quantize reads and writes one file at "
      "a time, with little memory. OUT.partial holds unfinished work; the same command continues from there.\n"
      "\n"
      "Examples:\n"
      "  nanscope quantize ~/models/Qwen3-8B -o Qwen3-8B-FP8 --to fp8-block\n"
      "  nanscope quantize ~/models/Qwen3-8B -o Qwen3-8B-NVFP4 --to nvfp4 --ignore 'layers\\.(0|35)\\.' --calibrate "
      "text.txt\n"
      "\n"
      "Exit codes: 0 written; 2 bad usage, an unreadable checkpoint, or one that the format or its loader cannot "
      "handle; "
      "130 interrupted.");
  command->callback(
      [arguments, &action] { action = [arguments](Interrupt& interrupt) { return quantize(*arguments, interrupt); }; });
}

}  // namespace nanscope::cli
