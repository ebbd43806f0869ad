#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/training_log.h"
#include "core/files/folder_lock.h"
#include "instrument/files/file.h"
#include "instrument/train/checkpoint.h"
#include "scenarios/library.h"
#include "scenarios/training_run.h"

namespace nanscope::cli {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostHeldOut = std::uint64_t{1} << 30;
constexpr std::int64_t kHeldOutSequences = 64;

struct TrainArguments {
  std::string file;
  std::string output;
  std::vector<std::string> settings;
  std::int64_t steps = 0;
  std::int64_t save_every = 100;
  std::int64_t log_every = 0;
  std::string csv;
  std::string scales_csv;
  std::string record;
  std::string held_out;
  std::string capture = "none";
  std::string device;
  int threads = -1;
  bool resume = false;
  bool force = false;
};

Result<scenarios::RunSpec> spec_of(const TrainArguments& arguments) {
  const auto path = scenarios::find_scenario(arguments.file);
  if (!path) return tl::unexpected(path.error());
  if (fs::is_directory(*path)) return fail(path->string() + ": is a folder; name one file");
  const auto scenario = scenarios::load_training_scenario(*path);
  if (!scenario) return tl::unexpected(scenario.error());
  auto spec = scenarios::resolve(*scenario);
  if (!spec) return spec;
  std::vector<std::string> settings = arguments.settings;
  if (arguments.steps > 0) settings.push_back(fmt::format("train.steps={}", arguments.steps));
  if (Status set = scenarios::apply_settings(spec->config, settings); !set) return tl::unexpected(set.error());
  if (!arguments.device.empty()) spec->config.device = arguments.device;
  if (arguments.threads >= 0) spec->config.threads = arguments.threads;
  if (spec->config.train.steps > 0) return spec;
  return fail(path->string() + ": train.steps is 0, so there is nothing to train; set it there, or give --steps N");
}

/// Checks that the output folder may be written, before training begins.
Status check_folder(const TrainArguments& arguments) {
  std::error_code error;
  const fs::path& folder = arguments.output;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) return {};
  if (!fs::is_directory(status)) return fail(folder.string() + ": exists and is not a folder");
  if (fs::is_empty(folder, error) || arguments.force) return {};
  if (!train::has_checkpoint(folder)) {
    return fail(folder.string() + ": is not empty and holds no checkpoint; name another folder, or give --force");
  }
  if (arguments.resume) return {};
  return fail(folder.string() + ": holds a checkpoint; --resume continues from it, --force starts again");
}

/// One run of the command.
class Training {
 public:
  Training(const TrainArguments& arguments, Interrupt& interrupt) : arguments_(arguments), interrupt_(interrupt) {}

  Result<int> run() {
    auto spec = spec_of(arguments_);
    if (!spec) return tl::unexpected(spec.error());
    if (Status allowed = check_folder(arguments_); !allowed) return tl::unexpected(allowed.error());
    const auto lock = FolderLock::take(arguments_.output, "train");
    if (!lock) return tl::unexpected(lock.error());
    // Another training may have ended between the two.
    if (Status allowed = check_folder(arguments_); !allowed) return tl::unexpected(allowed.error());
    auto workbench = scenarios::Workbench::open(spec->config);
    if (!workbench) return tl::unexpected(workbench.error());
    workbench_ = std::move(*workbench);
    inputs_ = files_read(spec->config);
    inputs_.emplace_back(arguments_.file);
    if (Status read = read_held_out(); !read) return tl::unexpected(read.error());
    const scenarios::TrainingRecord record{.path = arguments_.record,
                                           .output = {.replace = arguments_.force, .inputs = inputs_, .mode = 0644},
                                           .capture = arguments_.capture};
    auto training = scenarios::TrainingRun::create(*workbench_, *spec, record, interrupt_.token());
    if (!training) return tl::unexpected(training.error());
    training_ = std::move(*training);
    if (Status begun = begin(spec->config.train.steps); !begun) return tl::unexpected(begun.error());
    if (Status measured = measure(); !measured) return tl::unexpected(measured.error());
    // After a signal, the current step is finished and saved, which may exceed the usual time limit.
    interrupt_.be_patient();
    const Status trained = train(spec->config);
    if (!trained) return tl::unexpected(trained.error());
    return end(spec->config.train.steps);
  }

 private:
  Status read_held_out() {
    if (arguments_.held_out.empty()) return {};
    const auto bytes = read_file(arguments_.held_out, kMostHeldOut);
    if (!bytes) return tl::unexpected(bytes.error());
    held_out_ = as_text(*bytes);
    inputs_.emplace_back(arguments_.held_out);
    return {};
  }

  Status begin(std::int64_t steps) {
    const bool resumed = arguments_.resume && train::has_checkpoint(arguments_.output);
    if (resumed) {
      if (Status loaded = training_->resume(arguments_.output); !loaded) return loaded;
    }
    replace_ = arguments_.force && !resumed;
    // A run that was killed before its first save left curves of the steps before this save, and no later ones.
    const std::int64_t first_save = arguments_.save_every > 0 ? std::min(arguments_.save_every, steps) : steps;
    const std::int64_t end_step = resumed ? std::numeric_limits<std::int64_t>::max() : first_save;
    for (const auto& [what, path] :
         {std::pair{CurvesOf::steps, arguments_.csv}, std::pair{CurvesOf::scales, arguments_.scales_csv}}) {
      if (path.empty()) continue;
      auto curves = TrainingCurves::open(what, path, training_->done(), end_step, arguments_.resume,
                                         {.replace = arguments_.force, .inputs = inputs_});
      if (!curves) return tl::unexpected(curves.error());
      curves_.push_back(std::move(*curves));
    }
    return {};
  }

  Status train(const EngineConfig& config) {
    const std::int64_t steps = config.train.steps;
    TrainingLog log(training_->done(), steps, arguments_.log_every, config.train.batch * config.train.length);
    first_ = training_->done();
    while (training_->done() < steps && !interrupt_.requested()) {
      const auto start = Clock::now();
      auto report = training_->step();
      if (!report) return tl::unexpected(report.error());
      last_ = *report;
      usage_.add(*last_);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      for (TrainingCurves& curves : curves_) {
        if (Status added = curves.add(*last_, seconds); !added) return added;
      }
      log.show(*last_);
      const bool due = arguments_.save_every > 0 && training_->done() % arguments_.save_every == 0;
      if (due || training_->done() == steps || interrupt_.requested()) {
        if (Status saved = save(); !saved) return saved;
        log.clear();
        if (Status measured = measure(); !measured) return measured;
      }
    }
    // A run that was killed after its last step may have left files that save() removes.
    return !last_ && training_->done() == steps ? save() : Status();
  }

  Status save() {
    if (Status saved = training_->save(arguments_.output, replace_); !saved) return saved;
    replace_ = false;
    return {};
  }

  /// The loss of the held-out text, on standard error.
  Status measure() {
    if (held_out_.empty()) return {};
    const auto loss = training_->held_out(held_out_, kHeldOutSequences);
    if (!loss) return fail(fmt::format("{}: {}", arguments_.held_out, loss.error().message));
    const std::string line = fmt::format(
        "step {}: held-out loss {:.6f} all positions at once, {:.6f} token by token ({} sequences of {} targets)\n",
        training_->done(), loss->parallel, loss->autoregressive, loss->sequences, loss->length);
    std::fwrite(line.data(), 1, line.size(), stderr);
    return {};
  }

  Result<int> end(std::int64_t steps) {
    if (training_->done() < steps) {
      if (last_) {
        complain(fmt::format("stopped after {} of {} steps; the same command with --resume continues from {}",
                             training_->done(), steps, arguments_.output));
      }
      return interrupt_.code();
    }
    if (Status finished = training_->finish(); !finished) return tl::unexpected(finished.error());
    if (!last_) {
      print(fmt::format("{}: all {} steps are done already\n", arguments_.output, steps));
      return kClean;
    }
    print(fmt::format("trained {} steps: {}\n{}The model is in {}; --resume with more --steps continues\n",
                      steps - first_, step_text(*last_), usage_.text(), arguments_.output));
    return std::isfinite(last_->loss) ? kClean : kFound;
  }

  const TrainArguments& arguments_;
  std::vector<std::filesystem::path> inputs_;  ///< what the training reads
  Interrupt& interrupt_;
  std::unique_ptr<scenarios::Workbench> workbench_;
  std::unique_ptr<scenarios::TrainingRun> training_;  ///< uses workbench_
  std::vector<TrainingCurves> curves_;
  ScaleUsage usage_;
  std::optional<train::StepReport> last_;
  std::string held_out_;  ///< the text
  std::int64_t first_ = 0;
  bool replace_ = false;  ///< replace the files of another run in the folder
};

int train_model(TrainArguments arguments, Interrupt& interrupt) {
  if (arguments.output.empty()) arguments.output = fs::path(arguments.file).stem().string() + "-trained";
  if (arguments.resume && arguments.force)
    return complain("--resume continues and --force starts again: leave one of the two out");
  const auto code = Training(arguments, interrupt).run();
  if (code) return *code;
  if (interrupt.requested() && code.error().message == "stopped") return interrupt.code();
  return complain(code.error().message);
}

void add_outputs(CLI::App& command, TrainArguments& arguments) {
  command
      .add_option("-o,--output", arguments.output,
                  "The folder of the trained model and of the run's state (default: TRAIN-trained here)")
      ->type_name("FOLDER");
  command.add_flag("--resume", arguments.resume,
                   "Continue from FOLDER, bit for bit; if FOLDER holds nothing yet, start");
  command
      .add_option("--save-every", arguments.save_every,
                  "Write FOLDER after every N steps, and at the end or when stopped; 0: only then")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000}))
      ->capture_default_str();
  command
      .add_option("--csv", arguments.csv,
                  "Write one row per step: step,loss,gradient_norm,learning_rate,loss_scale,skipped,seconds")
      ->type_name("FILE");
  command
      .add_option("--scales-csv", arguments.scales_csv,
                  "Write one row per step and scale of attention (scores.format, scores.qk_format): "
                  "step,layer,target,head,scale,absmax,used")
      ->type_name("FILE");
  command
      .add_option("--held-out", arguments.held_out,
                  "At the start and after each save, measure the loss of this text: of 64 sequences, all positions at "
                  "once and token by "
                  "token (nanscope loss FOLDER measures more)")
      ->type_name("FILE");
  command
      .add_option("--record", arguments.record, "Record every op of the run, for diagnose, why, replay and the window")
      ->type_name("FILE");
  command
      .add_option("--capture", arguments.capture,
                  "Tensors that --record stores: none, all, ring:N, named:ROLE,...; a replay recomputes the others")
      ->type_name("CAPTURE")
      ->capture_default_str();
  command.add_flag("--force", arguments.force, "Replace another run's files in FOLDER, and other existing files");
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model on a text, step by step");
  command->add_option("TRAIN", arguments->file, "A scenario file with a [train] table, or a name from the library")
      ->required();
  add_outputs(*command, *arguments);
  command->add_option("--steps", arguments->steps, "Total number of steps (train.steps)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  command->add_option("--set", arguments->settings, "Change a setting; repeatable")
      ->type_name("SETTING=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--log-every", arguments->log_every,
                   "If standard error is not a terminal, print a line after every N steps; 0: twenty lines in all")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000}))
      ->capture_default_str();
  command->add_option("--device", arguments->device, "cpu, cpu:avx2, cuda, ... (results are bit-identical)")
      ->type_name("DEVICE");
  command->add_option("--threads", arguments->threads, "Threads of the CPU device; 0: one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  command->footer(
      "After Ctrl-C, train finishes its step, writes FOLDER and ends; a second Ctrl-C ends it at once. FOLDER is "
      "complete at every moment, also after kill -9. `nanscope run --model FOLDER` runs the model.\n"
      "\n"
      "Examples:\n"
      "  nanscope train shakespeare.toml -o model --csv curves.csv\n"
      "  nanscope train shakespeare.toml -o model --csv curves.csv --resume\n"
      "  nanscope train shakespeare.toml --steps 20 --set train.loss_scale=65536 --record run.nanscope\n"
      "\n"
      "Exit codes: 0 trained; 1 trained, but the last loss is NaN or Inf; 2 bad usage, bad input, or a FOLDER of "
      "another "
      "run; 130 interrupted.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) { return train_model(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
