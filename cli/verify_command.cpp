#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "cli/verify_state.h"
#include "core/files/output_file.h"
#include "core/tensor/content_hash.h"
#include "instrument/files/file.h"
#include "instrument/model/model_spec.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "instrument/verify/free_run.h"
#include "instrument/verify/verified_dump.h"
#include "instrument/verify/verify.h"
#include "scenarios/report/verify_report.h"
#include "scenarios/target_kind.h"
#ifdef NANSCOPE_GUI
#include "gui/app.h"
#endif

namespace nanscope::cli {
namespace {

namespace fs = std::filesystem;

struct VerifyArguments {
  std::string target;
  std::string model;
  std::vector<std::int64_t> layers;
  std::vector<std::string> ops;
  bool brief = false;
  bool json = false;
  bool progress = false;
  bool follow_links = false;
  bool no_free_run = false;
  double min_coverage = 0.95;
  bool gui = false;
  bool force = false;
  std::string junit;
  std::string adapter;
  std::string prompt;
  std::string resume;
};

Result<std::unique_ptr<VerifiedDump>> open(const VerifyArguments& arguments, const Interrupt& interrupt) {
  auto opened = VerifiedDump::open({.dump = arguments.target,
                                    .model = arguments.model,
                                    .adapter = arguments.adapter,
                                    .follow_links = arguments.follow_links,
                                    .stop = interrupt.token(),
                                    .progress = {}});
  if (!opened) return opened;
  for (const RunNote& one : (*opened)->dump->unread()) complain("not read: " + one.text);
  return opened;
}

/// Identifies the check and the content of its files: after a change, the saved results are invalid. Errors: a file
/// cannot be read.
Result<std::string> about(const VerifyArguments& arguments) {
  std::string text = fmt::format("{}|{}|{}|", arguments.target, arguments.model, arguments.adapter);
  for (const std::int64_t layer : arguments.layers) text += fmt::format("{},", layer);
  for (const std::string& op : arguments.ops) text += op + ',';
  for (const std::string& root : {arguments.target, arguments.model, arguments.adapter}) {
    if (root.empty()) continue;
    const auto listing = list_dump(root, true);
    if (!listing) return tl::unexpected(listing.error());
    ContentHash hash;
    for (const DumpFile& file : listing->files) {
      std::error_code error;
      if (fs::equivalent(file.path, arguments.resume, error)) continue;
      const auto mapped = MappedFile::open(file.path);
      if (!mapped) return tl::unexpected(mapped.error());
      hash.add(std::as_bytes(std::span(file.shown)));
      hash.add(mapped->bytes());
    }
    text += fmt::format("|{:016x}", hash.finish());
  }
  return text;
}

/// The free run, or the reason why there is none. Error: interrupted.
Result<FreeRun> run_freely(const VerifyArguments& arguments, ReferenceModel& reference, DumpRun& run,
                           const Interrupt& interrupt) {
  FreeRun none;
  none.why = arguments.adapter.empty() ? "not requested" : "the engine runs no adapter";
  if (arguments.no_free_run || !arguments.adapter.empty()) return none;
  auto ran = reference.run(run, served_format(run), interrupt.token());
  if (ran || interrupt.requested()) return ran;
  none.why = ran.error().message;
  return none;
}

#ifdef NANSCOPE_GUI
/// Shows the same check in the window.
int show(const VerifyArguments& arguments, const Interrupt& interrupt) {
  if (Status taken = scenarios::check_target(arguments.target, scenarios::Takes::dumps); !taken)
    return complain(taken.error().message);
  gui::AppOptions options;
  options.file = arguments.target;
  options.check = {.dump = {},
                   .model = arguments.model,
                   .adapter = arguments.adapter,
                   .layers = {arguments.layers.begin(), arguments.layers.end()},
                   .ops = arguments.ops,
                   .follow_links = arguments.follow_links};
  options.follow_links = arguments.follow_links;
  options.stop = interrupt.token();
  const Status shown = gui::run_app(options);
  return shown ? kClean : complain(shown.error().message);
}
#endif

/// What `--junit` may replace: nothing that the check reads.
OutputOptions junit_output(const VerifyArguments& arguments) {
  OutputOptions output{.replace = arguments.force, .inputs = {arguments.target, arguments.model}};
  for (const std::string& read : {arguments.adapter, arguments.resume}) {
    if (!read.empty()) output.inputs.emplace_back(read);
  }
  return output;
}

int verify_dump(const VerifyArguments& arguments, const Interrupt& interrupt) {
  if (arguments.brief && arguments.json)
    return complain("--brief and --json exclude each other: leave one of the two out");
  if (!arguments.junit.empty()) {
    if (Status can = check_output(arguments.junit, junit_output(arguments)); !can) return complain(can.error().message);
  }
  if (Status taken = scenarios::check_target(arguments.target, scenarios::Takes::dumps); !taken)
    return complain(taken.error().message);
  // Report a bad checkpoint before any work.
  const auto reference = ReferenceModel::load(arguments.model, interrupt.token());
  if (!reference) return failed(reference.error(), interrupt);
  auto opened = open(arguments, interrupt);
  if (!opened) return failed(opened.error(), interrupt);
  VerifiedDump& one = **opened;
  ProgressLine line("ops", arguments.progress);
  VerifyOptions options;
  options.layers = {arguments.layers.begin(), arguments.layers.end()};
  options.ops = arguments.ops;
  options.stop = interrupt.token();
  options.progress = [&line](std::size_t done, std::size_t total) {
    line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "recomputed");
  };
  std::optional<VerifyState> state;
  if (!arguments.resume.empty()) {
    const auto identity = about(arguments);
    if (!identity) return complain(identity.error().message);
    auto known = VerifyState::open(arguments.resume, *identity);
    if (!known) return complain(known.error().message);
    state.emplace(std::move(*known));
    options.known = [&state](const std::string& name) { return state->known(name); };
    options.found = [&state](const VerifiedOutput& checked) { state->found(checked); };
  }
  KernelArithmetic arithmetic;
  auto made = verify(*one.dump, *one.run, one.spec, arithmetic, options);
  line.clear();
  if (!made) return failed(made.error(), interrupt);
  if (state) {
    if (Status saved = state->status(); !saved) return complain(saved.error().message);
  }
  if (interrupt.requested()) {
    if (state) complain(fmt::format("stopped: --resume {} continues from here", arguments.resume));
    return interrupt.code();
  }
  if (!arguments.prompt.empty()) {
    const auto ids = served_ids(*one.run);
    const auto wrong = ids ? compare_ids(*ids, arguments.prompt, arguments.model) : tl::unexpected(ids.error());
    if (!wrong) return complain("--prompt: " + wrong.error().message);
    if (!wrong->empty()) made->notes.push_back(*wrong);
  }
  const Result<FreeRun> free = run_freely(arguments, **reference, *one.run, interrupt);
  if (!free) return interrupt.code();
  ask_what_is_open(*made, *free, arguments.min_coverage);
  if (!arguments.junit.empty()) {
    const Status written = write_output(arguments.junit, report::verify_junit(*made), junit_output(arguments));
    if (!written) return complain(written.error().message);
  }
  const report::Terminal terminal = output_terminal();
  print(arguments.json    ? report::verify_json(*made, *free)
        : arguments.brief ? report::verify_answer(*made, terminal)
                          : report::verify_text(*made, *free, terminal));
  if (made->off() > 0 || !made->notes.empty()) return kFound;
  return made->open.empty() ? kClean : kNotJudged;
}

}  // namespace

void add_verify_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand("verify", "Check a dump against its checkpoint, op by op");
  command->add_option("DUMP", arguments->target, "A dump: a file or a folder of tensors")->required();
  command
      ->add_option("--model", arguments->model,
                   "The served checkpoint: a folder with config.json and *.safetensors, or a GGUF file")
      ->type_name("DIR")
      ->required();
  command->add_option("--layers", arguments->layers, "Check only these layers, separated by commas")
      ->type_name("N")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--ops", arguments->ops,
                   "Check only ops with these names (q_proj, softmax, attn_norm ...), separated by commas")
      ->type_name("OP")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option(
          "--adapter", arguments->adapter,
          "The LoRA adapter that the server merged: a folder with adapter_config.json and adapter_model.safetensors")
      ->type_name("DIR");
  command
      ->add_option("--prompt", arguments->prompt,
                   "The prompt's text: check that the checkpoint's tokenizer gives the dumped token ids")
      ->type_name("PROMPT");
#ifdef NANSCOPE_GUI
  CLI::Option* gui =
      command->add_flag("--gui", arguments->gui, "Check the dump in the window, which shows each output");
#endif
  command->add_flag("--brief", arguments->brief, "Print only the verdict and its explanation");
  command->add_flag("--json", arguments->json, "Print everything as JSON: nanscope.verification/1");
  command->add_option("--junit", arguments->junit, "Write a test case for each output to a JUnit XML file")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force, "Replace an existing file of --junit");
  command
      ->add_option("--resume", arguments->resume, "Save each result to this file, and continue from it the next time")
      ->type_name("FILE");
  command
      ->add_option("--min-coverage", arguments->min_coverage,
                   "The least share of the dumped elements that has to be checked, 0 to 1; with less, the exit code "
                   "is 3 (default: 0.95)")
      ->type_name("SHARE")
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag("--no-free-run", arguments->no_free_run, "Do not run the model freely from the dumped token ids");
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  add_follow_links(*command, arguments->follow_links);
#ifdef NANSCOPE_GUI
  for (const char* other : {"--brief", "--json", "--junit", "--resume", "--prompt"})
    gui->excludes(command->get_option(other));
#endif
  command->footer(
      "verify recomputes every dumped op from its dumped inputs and the checkpoint's weights, as config.json says, and "
      "compares the result with the dumped output. It reports differences beyond rounding, and names what the server "
      "may have computed instead.\n"
      "\n"
      "Examples:\n"
      "  nanscope verify dump/ --model ~/models/Llama-3.2-1B\n"
      "  nanscope verify dump/ --model ~/models/Llama-3.2-1B --layers 0,1 --ops q_proj,softmax\n"
      "  nanscope verify dump/ --model ~/models/Llama-3.2-1B --resume check.jsonl --junit verify.xml\n"
      "\n"
      "Exit codes: 0 every output is the model's; 1 an output is not, or the report has a Note; 2 bad usage, or an "
      "unreadable dump or checkpoint; 3 no difference found, but too little was checked (--min-coverage) or the free "
      "run "
      "leaves the model; 130 interrupted.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) {
#ifdef NANSCOPE_GUI
      if (arguments->gui) return show(*arguments, interrupt);
#endif
      return verify_dump(*arguments, interrupt);
    };
  });
}

}  // namespace nanscope::cli
