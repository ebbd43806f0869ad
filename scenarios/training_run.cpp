#include "scenarios/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/recording/capture_policy.h"
#include "core/recording/recording_file.h"
#include "core/recording/writer.h"
#include "instrument/recorder/recorder_probe.h"
#include "instrument/train/checkpoint.h"
#include "scenarios/record.h"

namespace nanscope::scenarios {

namespace {

class RecordedTraining final : public TrainingRun {
 public:
  RecordedTraining(Workbench& workbench, EngineConfig config, std::unique_ptr<train::Trainer> trainer)
      : workbench_(workbench), config_(std::move(config)), trainer_(std::move(trainer)) {}

  Status record(const RunSpec& spec, const TrainingRecord& record) {
    const auto capture = CapturePolicy::parse(record.capture);
    if (!capture) return tl::unexpected(capture.error());
    auto file = create_recording_file(record.path, record.output, true);
    if (!file) return tl::unexpected(file.error());
    auto writer = RecordingWriter::create(std::move(*file), run_info_of(spec, workbench_.device().info(), *capture));
    if (!writer) return tl::unexpected(writer.error());
    writer_ = std::move(*writer);
    recorder_ = std::make_unique<RecorderProbe>(*writer_, workbench_.device(), workbench_.weights(), *capture);
    return {};
  }

  Status resume(const std::filesystem::path& folder) override {
    const auto state = train::load_checkpoint(folder, config_);
    if (!state) return tl::unexpected(state.error());
    if (writer_ != nullptr && state->step > 0) {
      return fail(
          fmt::format("{}: has done {} steps, which a recording begun now would lack; record a run from its "
                      "beginning",
                      folder.string(), state->step));
    }
    if (Status restored = trainer_->restore(*state); !restored) {
      return fail(fmt::format("{}: {}", folder.string(), restored.error().message));
    }
    done_ = state->step;
    return {};
  }

  Result<train::StepReport> step() override {
    NullProbe nobody;
    Probe& probe = recorder_ != nullptr ? static_cast<Probe&>(*recorder_) : nobody;
    auto report = trainer_->step(probe, {});
    if (report) ++done_;
    return report;
  }

  Result<HeldOutLoss> held_out(std::string_view text, std::int64_t most) override {
    const auto tokens = workbench_.tokenizer()->encode(text);
    if (!tokens) return tl::unexpected(tokens.error());
    HeldOutLoss made{.length = config_.train.length};
    std::vector<std::vector<std::int32_t>> sequences;
    const std::int64_t whole = made.length + 1;
    made.sequences = std::min(std::ssize(*tokens) / whole, most);
    if (made.sequences == 0)
      return fail(fmt::format("has {} tokens, less than one sequence of {}", tokens->size(), whole));
    for (std::int64_t i = 0; i < made.sequences; ++i) {
      const auto at = tokens->begin() + i * whole;
      sequences.emplace_back(at, at + whole);
    }
    for (const bool autoregressive : {false, true}) {
      const auto loss = trainer_->evaluate(sequences, autoregressive);
      if (!loss) return tl::unexpected(loss.error());
      (autoregressive ? made.autoregressive : made.parallel) = *loss;
    }
    return made;
  }

  std::int64_t done() const override { return done_; }

  Status save(const std::filesystem::path& folder, bool replace) override {
    const auto state = trainer_->state();
    if (!state) return tl::unexpected(state.error());
    return train::save_checkpoint(folder, config_, *trainer_->model(), workbench_.device(), *state, replace);
  }

  Status finish() override { return writer_ != nullptr ? writer_->finish(trainer_->totals().ops) : Status(); }

 private:
  Workbench& workbench_;
  EngineConfig config_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<RecordingWriter> writer_;
  std::unique_ptr<RecorderProbe> recorder_;
  std::int64_t done_ = 0;
};

}  // namespace

Result<std::unique_ptr<TrainingRun>> TrainingRun::create(Workbench& workbench, const RunSpec& spec,
                                                         const TrainingRecord& record, std::stop_token stop) {
  auto trainer = workbench.trainer(spec.config, std::move(stop));
  if (!trainer) return tl::unexpected(trainer.error());
  auto run = std::make_unique<RecordedTraining>(workbench, spec.config, std::move(*trainer));
  if (!record.path.empty()) {
    if (Status begun = run->record(spec, record); !begun) return tl::unexpected(begun.error());
  }
  return run;
}

}  // namespace nanscope::scenarios
