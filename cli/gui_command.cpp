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
    if (!options.app.beside.empty())
      return complain("--model and --beside exclude each other: leave one of the two out");
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
  CLI::App* command = app.add_subcommand("gui", "Show a recording or a dump in a window, or write a picture of it");
  command->add_option("TARGET", options->app.file,
                      "A recording or a dump; without it, the window lists recent targets and the scenarios");
  CLI::Option* screenshot =
      command->add_option("--screenshot", options->screenshot, "Write the picture to this PNG file; needs no display")
          ->type_name("FILE");
  CLI::Option* csv =
      command->add_option("--csv", options->csv, "Write the table of the --view to this file; needs no display")
          ->type_name("FILE");
  command
      ->add_option("--script", options->script,
                   "Run the steps in this file, one per line: click, key, type, picture, expect ...; needs no display")
      ->type_name("FILE")
      ->excludes(screenshot)
      ->excludes(csv);
  command->add_flag("--on-screen", options->app.on_screen, "Run the --script in a visible window");
  command->add_flag("--force", options->app.force, "Replace an existing picture or table");
  command
      ->add_option("--view", options->app.view,
                   fmt::format("Show only this view: {}", fmt::join(gui::all_views(), ", ")))
      ->type_name("VIEW");
  command->add_option("--tab", options->app.tab, "The view to show below the front view, in the full window")
      ->type_name("VIEW");
  command
      ->add_option("--beside", options->app.beside,
                   "Another recording or dump to compare with TARGET, such as a healthy run")
      ->type_name("TARGET");
  command
      ->add_option("--model", options->model,
                   "Check a dump against its checkpoint, as `verify` does: a folder with config.json and *.safetensors")
      ->type_name("DIR");
  command
      ->add_option("--adapter", options->adapter,
                   "With --model: the LoRA adapter that the server merged, as in `verify`")
      ->type_name("DIR");
  add_follow_links(*command, options->app.follow_links);
  command
      ->add_option("--at", options->app.place,
                   "The place to select at the start: request/step/layer/op.role[token,channel]")
      ->type_name("PLACE");
  command
      ->add_option("--size", options->size,
                   "Window size in pixels (default: that of the last window, at first 1600x1000)")
      ->type_name("WxH");
  command
      ->add_option("--scale", options->app.scale,
                   "Scale of text and all other elements (default: the display's, 1 without a display)")
      ->type_name("NUMBER")
      ->check(CLI::Range(0.5, 4.0));
  command->add_option("--theme", options->app.theme, "dark or light (default: that of the last window, at first dark)")
      ->type_name("THEME");
  command
      ->add_option("--palette", options->app.palette,
                   "Colours for protanopia (protan), deuteranopia (deutan) or tritanopia (tritan), or usual ones "
                   "(default: those of the last window, at first usual)")
      ->type_name("PALETTE");
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
      "Exit codes: 0 closed, or the script succeeded; 1 the script failed; 2 bad usage or bad input; 130 interrupted.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return show(*options, interrupt); }; });
}

}  // namespace nanscope::cli
