#include <fmt/format.h>

#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include "cli/build_commit.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/reserve_stack.h"
#include "cli/standard_streams.h"
#include "core/system_reason.h"
#include "scenarios/version.h"

namespace {

/// "nanscope 0.2.0 (91d8e9adeda7, 2026-11-28)"
std::string version_text() {
  constexpr std::string_view prefix = "@commit: ";
  std::string_view commit = nanscope::cli::kBuildCommit;
  commit.remove_prefix(prefix.size());
  commit.remove_suffix(1);
  return fmt::format("nanscope {} ({})", nanscope::scenarios::kVersion, commit);
}

int run(int argc, char** argv, nanscope::cli::Interrupt& interrupt) {
  using namespace nanscope::cli;
  CLI::App app{"nanscope finds out why a transformer's numbers went wrong, and replays the run.", "nanscope"};
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->label("Positionals", "Arguments");
  formatter->label("SUBCOMMAND", "COMMAND");
  app.formatter(formatter);
  app.footer(
      "Start here:\n"
      "  nanscope run kv-scale-lock              run a scenario, record it, explain it\n"
      "  nanscope diagnose kv-scale-lock.nanscope --counterfactuals\n"
      "  nanscope diagnose dump/                 diagnose tensors that a server dumped\n"
      "  nanscope why dump/ --brief              trace the first NaN back to its origin\n"
      "  nanscope bits 430 -f e4m3               show the anatomy of a number\n"
      "\n"
      "Environment: NANSCOPE_SCENARIOS names a folder of scenarios that replaces the library. NANSCOPE_CUPTI names the "
      "libcupti.so that records GPU activity. NO_COLOR turns colours off. COLUMNS sets the width of texts, from 60 to "
      "140; without it, texts are as wide as the terminal.\n"
      "\n"
      "Exit codes: 0 clean or as expected, 1 a fault or a missed expectation, 2 bad usage or bad input, 130 "
      "interrupted (Ctrl-C), 141 the reader of standard output closed it, 143 ended by SIGTERM. Each command's help "
      "gives their meaning for that command.");
  Action action;
  add_run_command(app, action);
  add_replay_command(app, action);
  add_diagnose_command(app, action);
  add_why_command(app, action);
  add_diff_command(app, action);
  add_verify_command(app, action);
  add_inspect_command(app, action);
  add_quantize_command(app, action);
  add_scales_command(app, action);
  add_causality_command(app, action);
  add_train_command(app, action);
  add_policies_command(app, action);
  add_loss_command(app, action);
  add_memory_command(app, action);
  add_scan_command(app, action);
  add_merge_command(app, action);
  add_attach_command(app, action);
  add_serve_command(app, action);
  add_probe_command(app, action);
  add_export_command(app, action);
  add_trace_command(app, action);
  add_bits_command(app, action);
  add_tokens_command(app, action);
  add_report_command(app, action);
  add_scenarios_command(app, action);
#ifdef NANSCOPE_GUI
  add_gui_command(app, action);
#endif
  add_help_command(app, action);
  add_manual_command(app, action);
  add_completions_command(app, action);
  add_complete_command(app, action);
  for (CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) command->group("Commands");  // the heading in the help
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    std::ostringstream text;
    const int code = app.exit(wanted, text, text);
    print(text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    return complain(usage_error(app, error, argc, argv));
  }
  return action ? action(interrupt) : kClean;
}

/// Reports an exception, such as a lack of memory, in one line.
int guarded(int argc, char** argv, nanscope::cli::Interrupt& interrupt) {
  using namespace nanscope;
  try {
    return run(argc, argv, interrupt);
  } catch (const std::exception& error) {
    return cli::complain(reason_of(error));
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace nanscope::cli;
  prepare_streams();
  reserve_stack();
  Interrupt interrupt;
  const int code = guarded(argc, argv, interrupt);
  return interrupt.finish(close_output(code));
}
