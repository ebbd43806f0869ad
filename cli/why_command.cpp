#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "instrument/diagnosis/why.h"
#include "core/recording/reader.h"
#include "scenarios/replay.h"
#include "scenarios/report/run_json.h"
#include "scenarios/report/why_report.h"

namespace nanscope::cli {

namespace {

struct WhyOptions {
  std::string file;
  std::string place;
  std::string format = "text";
};

int explain(const WhyOptions& options) {
  const auto recording = Recording::open(options.file);
  if (!recording) return complain(recording.error().message);
  scenarios::RecordingTensors tensors(*recording);
  const auto path = why(*recording, tensors, options.place);
  if (!path) return complain(path.error().message);
  if (options.format == "json") {
    print(report::dump_json(to_json(*path)));
    return kClean;
  }
  const report::Terminal terminal = output_terminal();
  print(report::heading(fmt::format("nanscope why {} {}", report::printable(options.file, terminal),
                                    report::printable(options.place, terminal)),
                        terminal));
  print(report::why_text(*path, terminal));
  return kClean;
}

}  // namespace

void add_why_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<WhyOptions>();
  CLI::App* command = app.add_subcommand("why", "Walk back from one element to where its value was born");
  command->add_option("FILE", options->file, "A recording")->required();
  command->add_option("PLACE", options->place, "request/step/layer/op.role[token,channel]; parts may be left out")
      ->required();
  add_format(*command, options->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope why run.nanscope '4/0/0/logits[0,0]'\n"
      "  nanscope why run.nanscope 2/0/1/inner_norm.out");
  command->callback([options, &action] { action = [options] { return explain(*options); }; });
}

}  // namespace nanscope::cli
