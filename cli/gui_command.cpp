#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "gui/app.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {

namespace {

struct GuiOptions {
  gui::AppOptions app;
  std::string screenshot;
  std::string csv;
  std::string script;
  std::string size;
  std::string model;
  std::string adapter;
};

int show(GuiOptions options, const Interrupt& interrupt) {
  options.app.stop = interrupt.token();
  options.app.check.model = options.model;
  options.app.check.adapter = options.adapter;
  options.app.check.follow_links = options.app.follow_links;
  if (options.model.empty() && !options.adapter.empty()) return complain("--adapter is for --model");
  if (!options.model.empty() && !options.app.file.empty()) {
    if (!options.app.beside.empty()) return complain("--model stands beside, leave one of --model and --beside out");
    if (Status taken = scenarios::check_target(options.app.file, scenarios::Takes::dumps); !taken)
      return complain(taken.error().message);
  }
  for (const auto& target : {options.app.file, options.app.beside}) {
    if (target.empty()) continue;
    if (Status taken = scenarios::check_target(target, scenarios::Takes::runs); !taken)
      return complain(taken.error().message);
  }
  if (!options.size.empty()) {
    const Result<gui::Extent> size = gui::parse_size(options.size);
    if (!size) return complain(size.error().message);
    options.app.size = *size;
  }
  if (!options.screenshot.empty()) options.app.screenshot = options.screenshot;
  if (!options.csv.empty()) options.app.csv = options.csv;
  if (!options.script.empty()) {
    options.app.script = options.script;
    const Result<gui::ScriptEnd> end = gui::run_script(options.app, [](std::string_view text) { print_now(text); });
    if (!end) return complain(end.error().message);
    if (end->failure.empty()) return kClean;
    complain(end->failure);
    return kFound;
  }
  if (options.app.on_screen) return complain("--on-screen is for a --script");
  const Status shown = gui::run_app(options.app);
  return shown ? kClean : complain(shown.error().message);
}

}  // namespace

void add_gui_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<GuiOptions>();
  CLI::App* command = app.add_subcommand("gui", "Show a recording or a dump in a window, or take its picture");
  command->add_option("TARGET", options->app.file,
                      "A recording, or a dump; without one, recent ones and the scenarios to run");
  CLI::Option* screenshot =
      command->add_option("--screenshot", options->screenshot, "Draw into this PNG; needs no screen")
          ->type_name("FILE");
  CLI::Option* csv = command
                         ->add_option("--csv", options->csv,
                                      "Write the table of the view that --view names into this file; needs no screen")
                         ->type_name("FILE");
  command
      ->add_option("--script", options->script,
                   "Do what this file says, a step a line: click, key, type, picture, expect ...; needs no screen")
      ->type_name("FILE")
      ->excludes(screenshot)
      ->excludes(csv);
  command->add_flag("--on-screen", options->app.on_screen, "Play the script in a window that is seen");
  command->add_flag("--force", options->app.force, "Replace the picture or the table when it exists");
  command->add_option("--view", options->app.view, fmt::format("One view alone: {}", fmt::join(gui::all_views(), ", ")))
      ->type_name("VIEW");
  command->add_option("--tab", options->app.tab, "The view that the whole window shows below the front")
      ->type_name("VIEW");
  command
      ->add_option("--beside", options->app.beside,
                   "Another recording or dump to compare it with, such as a healthy run")
      ->type_name("TARGET");
  command
      ->add_option("--model", options->model,
                   "Check a dump against the checkpoint that was served, as `verify` does: a folder with config.json "
                   "and *.safetensors")
      ->type_name("DIR");
  command
      ->add_option("--adapter", options->adapter, "With --model: a LoRA adapter that was served merged, as of `verify`")
      ->type_name("DIR");
  add_follow_links(*command, options->app.follow_links);
  command->add_option("--at", options->app.place, "The place that is selected at the start")->type_name("PLACE");
  command->add_option("--size", options->size, "In pixels; else as the last window was left, at first 1600x1000")
      ->type_name("WxH");
  command->add_option("--scale", options->app.scale, "Of text and everything else; else the screen's, 1 without one")
      ->type_name("NUMBER")
      ->check(CLI::Range(0.5, 4.0));
  command->add_option("--theme", options->app.theme, "dark or light; else as in the last window, at first dark")
      ->type_name("THEME");
  command->footer(
      "Examples:\n"
      "  nanscope gui\n"
      "  nanscope gui kv-scale-lock.nanscope\n"
      "  nanscope gui dump/\n"
      "  nanscope gui dump/ --model ~/models/Llama-3.2-1B\n"
      "  nanscope gui kv-scale-lock.nanscope --screenshot front.png --view front --theme light\n"
      "  nanscope gui kv-scale-lock.nanscope --csv scales.csv --view scales\n"
      "  nanscope gui kv-scale-lock.nanscope --beside healthy.nanscope\n"
      "  nanscope gui kv-scale-lock.nanscope --script steps.txt\n"
      "\n"
      "Exit codes: 0 closed, or the script found what it expected; 1 it did not; 2 bad usage or bad input.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return show(*options, interrupt); }; });
}

}  // namespace nanscope::cli
