#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/command.h"
#include "cli/command_spec.h"
#include "cli/complete.h"
#include "cli/help.h"
#include "cli/known_values.h"
#include "cli/manual_page.h"
#include "core/files/output_file.h"
#include "core/system_reason.h"
#include "scenarios/version.h"

// The embedded completion scripts of cli/completions/.
extern "C" {
extern const char nanscope_completion_bash_begin[], nanscope_completion_bash_end[];
extern const char nanscope_completion_zsh_begin[], nanscope_completion_zsh_end[];
extern const char nanscope_completion_fish_begin[], nanscope_completion_fish_end[];
}

namespace nanscope::cli {

namespace {

namespace fs = std::filesystem;

struct ManualOptions {
  std::string command;
  std::string folder;
};

/// Writes a page for the program and one for each command that the help lists.
int write_pages(const CommandSpec& program, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return complain(fmt::format("{}: {}", folder.string(), system_reason(error.value())));
  std::vector<const CommandSpec*> commands{&program};
  for (const CommandSpec& command : program.commands) {
    if (!command.hidden) commands.push_back(&command);
  }
  for (const CommandSpec* command : commands) {
    const fs::path file = folder / (manual_name(program, *command) + ".1");
    const std::string page = manual_page(program, *command, scenarios::kVersion);
    if (const Status written = write_output(file, page); !written) {
      return complain(written.error().message);
    }
  }
  return kClean;
}

int manual(const CLI::App& app, const ManualOptions& options) {
  const CommandSpec program = command_spec(app);
  if (!options.folder.empty()) return write_pages(program, options.folder);
  const CommandSpec* command = options.command.empty() ? &program : program.find(options.command);
  if (command == nullptr) return complain(unknown_command(app, options.command));
  print(manual_page(program, *command, scenarios::kVersion));
  return kClean;
}

std::string_view completion_script(std::string_view shell) {
  if (shell == "zsh") return {nanscope_completion_zsh_begin, nanscope_completion_zsh_end};
  if (shell == "fish") return {nanscope_completion_fish_begin, nanscope_completion_fish_end};
  return {nanscope_completion_bash_begin, nanscope_completion_bash_end};
}

}  // namespace

void add_manual_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ManualOptions>();
  CLI::App* command =
      app.add_subcommand("manual", "Print the manual page of nanscope or of a command, for man")->group("");
  command->add_option("COMMAND", options->command, "A command of nanscope (default: nanscope itself)");
  command->add_option("--into", options->folder, "Write all pages to this folder")->type_name("FOLDER");
  command->footer(
      "Examples:\n"
      "  nanscope manual run | man -l -\n"
      "\n"
      "Exit codes: 0 printed or written; 2 bad usage, an unknown command, or a page that exists or cannot be written.");
  command->callback(
      [&app, options, &action] { action = [&app, options](Interrupt&) { return manual(app, *options); }; });
}

void add_completions_command(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completions", "Print the completion script of a shell")->group("");
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  source <(nanscope completions bash)\n"
      "\n"
      "Exit codes: 0 printed, 2 bad usage.");
  command->callback([shell, &action] {
    action = [shell](Interrupt&) {
      print(completion_script(*shell));
      return kClean;
    };
  });
}

void add_complete_command(CLI::App& app, Action& action) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      app.add_subcommand("complete", "Print the completions of a command line, for the completion scripts: -- WORD...")
          ->group("");
  command->add_option("WORD", *words, "The words of the line after nanscope, up to the cursor; the last may be empty");
  command->footer("Exit codes: 0 printed, 2 bad usage.");
  command->callback([&app, words, &action] {
    action = [&app, words](Interrupt&) {
      print(completion_text(complete(command_spec(app), *words, known_values)));
      return kClean;
    };
  });
}

}  // namespace nanscope::cli
