#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/help.h"

namespace nanscope::cli {

void add_help_command(CLI::App& app, Action& action) {
  auto name = std::make_shared<std::string>();
  CLI::App* help = app.add_subcommand("help", "Print the help of nanscope or of a command");
  help->add_option("COMMAND", *name, "A command of nanscope (default: nanscope itself)");
  help->footer(
      "Examples:\n"
      "  nanscope help\n"
      "  nanscope help diagnose\n"
      "\n"
      "Exit codes: 0 printed, 2 bad usage or an unknown command.");
  help->callback([&app, name, &action] {
    action = [&app, name](Interrupt&) {
      if (name->empty()) {
        // app.help() would print the help of the chosen command, which is this one.
        print(app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
        return kClean;
      }
      const auto found = app.get_subcommands([&name](const CLI::App* one) { return one->get_name() == *name; });
      if (found.empty()) return complain(unknown_command(app, *name));
      print(found.front()->help(app.get_name()));
      return kClean;
    };
  });
}

}  // namespace nanscope::cli
