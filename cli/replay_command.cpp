#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/replay_limits.h"
#include "core/files/output_file.h"
#include "core/place.h"
#include "core/recording/reader.h"
#include "core/run/find_place.h"
#include "core/run/recording_view.h"
#include "core/run/tensor_source.h"
#include "scenarios/analysis.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/report/replay_report.h"
#include "scenarios/report/run_json.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {

namespace {

struct ReplayOptions {
  std::string file;
  std::string at;
  std::vector<std::string> set;
  std::string output;
  std::string device;
  bool force = false;
  std::string format = "text";
  RunLimits limits = kReplayLimits;
};

Result<std::unique_ptr<scenarios::Workbench>> open_workbench(const scenarios::RunSpec& spec,
                                                             const ReplayOptions& options) {
  const std::string& device = options.device.empty() ? spec.config.device : options.device;
  return scenarios::Workbench::open(device, spec.config.threads, options.limits);
}

int verify(scenarios::Workbench& bench, const Recording& recording, const ReplayOptions& options,
           const Interrupt& interrupt) {
  Result<scenarios::ReplayReport> report = fail("");
  {
    ProgressLine progress("ops");
    RunControl control;
    control.stop = interrupt.token();
    control.progress = [&](const Progress& now) { progress.show(now.ops, now.expected_ops, "verifying"); };
    report = scenarios::replay(bench, recording, control);
  }
  if (!report) {
    complain(report.error().message);
    return interrupt.requested() ? interrupt.code() : kBadInput;
  }
  print(options.format == "json" ? report::dump_json(report::to_json(*report))
                                 : report::replay_text(*report, options.file, output_terminal()));
  return report->same() ? kClean : kFound;
}

/// The index of the place's element; without one, of the tensor's first bad element, else 0.
std::int64_t element_of(const FoundPlace& place) {
  if (place.row) return *place.row * place.tensor->channels + place.channel.value_or(0);
  return std::max<std::int64_t>(0, place.tensor->health.first_bad);
}

/// Prefers stored elements: another kind of device cannot recompute the bits of tensor-core products.
Fact<TensorData> elements_of(const Recording& recording, const TensorRow& tensor, scenarios::ReplayTensors& remade) {
  return tensor.stored ? StoredTensors(recording).fetch(tensor.id) : remade.fetch(tensor.id);
}

int show_place(scenarios::Workbench& bench, const Recording& recording, const ReplayOptions& options) {
  scenarios::ReplayTensors tensors(bench, recording);
  RecordingRun rows(recording);
  RecordingView run(rows, tensors);
  const auto place = find_place(run, options.at);
  if (!place) return complain(options.file + ": " + place.error().message);
  const auto tensor = recording.tensor(place->tensor->id);
  if (!tensor) return complain(tensor.error().message);
  if (tensor->tokens == 0 || tensor->channels == 0) return complain(options.at + ": the tensor is empty");
  const auto data = elements_of(recording, *tensor, tensors);
  if (!data) return complain(data.error().text);
  const std::int64_t element = element_of(*place);
  const auto full = place_of(recording, *tensor, element);
  if (!full) return complain(full.error().message);
  const std::int64_t row = element / tensor->channels;
  const std::int64_t channel = element % tensor->channels;
  print(options.format == "json"
            ? report::dump_json(report::neighbourhood_json(*tensor, *data, row, channel, to_string(*full)))
            : report::neighbourhood_text(*tensor, *data, row, channel, to_string(*full), output_terminal()));
  return kClean;
}

int change(scenarios::Workbench& bench, const Recording& recording, scenarios::RunSpec spec,
           const ReplayOptions& options, const Interrupt& interrupt) {
  scenarios::RecordOptions record;
  record.path = options.output;
  record.output.replace = options.force;
  record.output.inputs = files_read(spec);
  record.output.inputs.emplace_back(options.file);
  const EngineConfig recorded_config = spec.config;
  if (Status done = scenarios::apply_settings(spec.config, options.set); !done) return complain(done.error().message);
  std::ranges::move(files_read(spec), std::back_inserter(record.output.inputs));
  if (!options.output.empty()) {
    if (Status allowed = check_output(options.output, record.output); !allowed) {
      return complain(allowed.error().message);
    }
  }
  if (Status same = bench.load_recorded(recorded_config, recording, interrupt.token()); !same) {
    complain(fmt::format("{}: {}", options.file, same.error().message));
    return interrupt.requested() ? interrupt.code() : kBadInput;
  }
  record.capture = options.output.empty() ? "all" : "ring:1";
  record.control.stop = interrupt.token();
  const auto recorded = scenarios::record(bench, spec, record);
  if (!recorded) {
    complain(recorded.error().message);
    return interrupt.requested() ? interrupt.code() : kBadInput;
  }
  scenarios::RecordingTensors before_tensors(recording, interrupt.token(), options.limits);
  const auto before = scenarios::analyse(recording, before_tensors, options.file);
  if (!before) return complain(before.error().message);
  scenarios::RecordingTensors after_tensors(recorded->recording, interrupt.token(), options.limits);
  const auto after = scenarios::analyse(recorded->recording, after_tensors, options.file);
  if (!after) return complain(after.error().message);
  const report::RunContext context{.command = "replay", .title = {}, .recording = options.output, .missed = {}};
  print(options.format == "json" ? report::dump_json(report::run_json(*after, context))
                                 : report::change_text(*before, *after, options.set, output_terminal()));
  complain_unread(options.output, after->diagnosis);
  return code_of(after->diagnosis);
}

int replay_file(const ReplayOptions& options, const Interrupt& interrupt) {
  if (Status taken = scenarios::check_target(options.file, scenarios::Takes::recordings); !taken)
    return complain(taken.error().message);
  const auto recording = Recording::open_checked(options.file, interrupt.token());
  if (!recording) return complain(recording.error().message);
  const auto spec = scenarios::run_spec_of(*recording);
  if (!spec) return complain(spec.error().message);
  auto bench = open_workbench(*spec, options);
  if (!bench) return complain(bench.error().message);
  if (!options.set.empty()) return change(**bench, *recording, *spec, options, interrupt);
  if (!options.at.empty()) return show_place(**bench, *recording, options);
  return verify(**bench, *recording, options, interrupt);
}

}  // namespace

void add_replay_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command =
      app.add_subcommand("replay", "Rerun a recording: verify every hash, show a place, or change a setting");
  command->add_option("FILE", options->file, "A recording")->required();
  CLI::Option* at =
      command->add_option("--at", options->at, "Show the elements around request/step/layer/op.role[token,channel]")
          ->type_name("PLACE");
  CLI::Option* set = command->add_option("--set", options->set, "Change a setting; repeatable")
                         ->type_name("SETTING=VALUE")
                         ->take_all()
                         ->excludes(at);
  command->add_option("-o,--output", options->output, "With --set: write the changed run's recording to this file")
      ->type_name("FILE")
      ->needs(set);
  command->add_flag("--force", options->force, "With -o: replace an existing file")->needs(set);
  command
      ->add_option("--device", options->device,
                   "cpu, cpu:avx2, cuda, ... (results are bit-identical, except with engine.kernel_form=tensor_core)")
      ->type_name("DEVICE");
  add_replay_limits(*command, options->limits);
  add_format(*command, options->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope replay run.nanscope\n"
      "  nanscope replay run.nanscope --at '2/0/1/inner_norm.out[3,0]'\n"
      "  nanscope replay run.nanscope --set kv.format=bf16\n"
      "\n"
      "With engine.kernel_form=tensor_core, products have different bits on a kind of device other than the recorded "
      "one. There replay checks each product against a bound. For this, the recording must hold the product's elements "
      "(--capture all).\n"
      "\n"
      "Exit codes: 0 every hash matches (such a product: within its bound), or the changed run is clean; 1 otherwise; "
      "2 bad usage or bad input; 130 interrupted.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return replay_file(*options, interrupt); }; });
}

}  // namespace nanscope::cli
