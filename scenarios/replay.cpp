#include "scenarios/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/place.h"
#include "instrument/probe.h"
#include "instrument/recorder/observation_queue.h"
#include "scenarios/tensor_core_replay.h"

namespace nanscope::scenarios {

namespace {

/// What a probe returns to end a run early; told apart from real errors by a flag of the probe.
constexpr const char* kEnough = "replay: seen enough";

std::string shape_text(Format format, std::int64_t tokens, std::int64_t channels) {
  return fmt::format("{} {} x {}", name(format), tokens, channels);
}

/// Compares a run with a recording as it goes.
class VerifyProbe final : public Probe {
 public:
  /// `products`: where those are compared that have bits of another kind of device; null where there are none.
  VerifyProbe(const Recording& recording, Workbench& workbench, TensorCoreReplay* products)
      : recording_(recording),
        products_(products),
        facts_(workbench.weights()),
        queue_(workbench.device(), [this](const Observation& observation) { return compare(observation.hash); }, {}) {}

  Status load() {
    auto weights = recording_.weights();
    if (!weights) return tl::unexpected(weights.error());
    for (const WeightRow& weight : *weights) weights_.emplace(weight.name, weight.hash);
    auto hashes = recording_.tensor_hashes();
    if (!hashes) return tl::unexpected(hashes.error());
    expected_ = std::move(*hashes);
    return {};
  }

  Status on_weight(const WeightRow& weight, const kernels::TensorView& view) override {
    if (products_ != nullptr) products_->on_weight(weight.name, view);
    const auto recorded = weights_.find(weight.name);
    if (recorded == weights_.end()) return {};
    const auto found = facts_.of(weight, view);
    if (!found) return tl::unexpected(found.error());
    if (found->hash != recorded->second) {
      return diverge(fmt::format("weight {}", weight.name), fmt::format("{:016x}", recorded->second),
                     fmt::format("{:016x}", found->hash));
    }
    ++report.weights;
    return {};
  }

  Status on_op(const ProbeOp& op) override {
    if (products_ != nullptr) products_->on_outputs(op);
    for (const ProbeTensor& tensor : op.outputs) {
      if (next_ == expected_.size()) return {};  // past the end of an interrupted recording
      if (Status same = compare_shape(op, tensor, expected_[next_]); !same) return same;
      // The configuration tells the form of them all; the attribute kernel_form is for who reads the recording.
      if (products_ != nullptr && op.kind == name(OpKind::gemm)) {
        if (Status same = compare_product(op, tensor); !same) return same;
        ++next_;
        continue;
      }
      asked_.push_back(next_++);
      if (Status asked = queue_.observe({.view = tensor.view, .health = false}); !asked) return asked;
    }
    return {};
  }
  Status on_step_end(const StepRow&) override {
    if (products_ != nullptr) products_->on_step_end();
    return queue_.finish();
  }
  Status on_request_end(const RequestRow&) override { return queue_.finish(); }

  /// Whether the run went through everything that was recorded.
  void finish() {
    if (report.divergence || next_ == expected_.size()) return;
    report.divergence = Divergence{place(expected_[next_].id), "a tensor", "the end of the run"};
  }

  std::int64_t tensors() const { return static_cast<std::int64_t>(expected_.size()); }
  ReplayReport report;

 private:
  std::string place(std::int64_t tensor) const {
    const auto row = recording_.tensor(tensor);
    const auto found = row ? place_of(recording_, *row) : fail("");
    return found ? to_string(*found) : fmt::format("tensor {}", tensor);
  }

  Status diverge(std::string where, std::string expected, std::string found) {
    report.divergence = Divergence{std::move(where), std::move(expected), std::move(found)};
    return fail(kEnough);
  }

  Status compare_shape(const ProbeOp& op, const ProbeTensor& tensor, const TensorHash& expected) {
    const kernels::TensorView& view = tensor.view;
    const bool same_shape =
        view.format == expected.format && view.rows == expected.tokens && view.columns == expected.channels;
    if (tensor.id == expected.id && same_shape) return {};
    // What was asked for before may differ before.
    if (Status before = queue_.finish(); !before) return before;
    if (tensor.id != expected.id) {
      return diverge(place(expected.id), fmt::format("tensor {}", expected.id),
                     fmt::format("tensor {} ({}.{})", tensor.id, op.name, tensor.role));
    }
    return diverge(place(expected.id), shape_text(expected.format, expected.tokens, expected.channels),
                   shape_text(view.format, view.rows, view.columns));
  }

  Status compare_product(const ProbeOp& op, const ProbeTensor& tensor) {
    // What was asked for before may differ before.
    if (Status before = queue_.finish(); !before) return before;
    const auto compared = products_->product(op, tensor);
    if (!compared) return tl::unexpected(compared.error());
    if (!compared->within) {
      const auto row = recording_.tensor(expected_[next_].id);
      const auto at = row ? place_of(recording_, *row, compared->row * row->channels + compared->column) : fail("");
      return diverge(at ? to_string(*at) : place(expected_[next_].id), compared->expected,
                     fmt::format("{}, beyond the bound of tensor cores", compared->found));
    }
    ++(compared->equal ? report.verified : report.within);
    report.share = std::max(report.share, compared->share);
    return {};
  }

  /// The next hash that was asked for.
  Status compare(std::uint64_t hash) {
    const TensorHash& expected = expected_[asked_.front()];
    asked_.pop_front();
    if (hash != expected.hash) {
      return diverge(place(expected.id), fmt::format("{:016x}", expected.hash), fmt::format("{:016x}", hash));
    }
    ++report.verified;
    return {};
  }

  const Recording& recording_;
  TensorCoreReplay* products_;
  WeightFacts& facts_;
  std::unordered_map<std::string, std::uint64_t> weights_;
  std::vector<TensorHash> expected_;
  std::size_t next_ = 0;           ///< of expected_, to be asked for
  std::deque<std::size_t> asked_;  ///< of expected_, whose hashes are to come
  ObservationQueue queue_;
};

/// Whether the outputs of the requests are those recorded.
std::optional<Divergence> compare_outputs(const Recording& recording, const RunResult& result) {
  const auto recorded = recording.requests();
  if (!recorded) return std::nullopt;
  for (const RequestRow& expected : *recorded) {
    for (const RequestRow& found : result.requests) {
      if (found.id != expected.id || found.output_tokens == expected.output_tokens) continue;
      return Divergence{fmt::format("output of request {}", expected.id), expected.output_text, found.output_text};
    }
  }
  return std::nullopt;
}

/// The first tensor of the step that made `tensor`: a walk back stays within its step mostly.
std::int64_t step_start(const Recording& recording, std::int64_t tensor) {
  const auto row = recording.tensor(tensor);
  if (!row) return tensor;
  const auto op = recording.op(row->op);
  if (!op) return tensor;
  TensorFilter filter;
  filter.step = op->step;
  filter.limit = 1;
  const auto first = recording.tensors(filter);
  return first && !first->empty() ? first->front().id : tensor;
}

/// Whether products of the run have bits that this device does not make.
bool of_other_tensor_cores(const RunSpec& spec, const Recording& recording, const kernels::Device& device) {
  return spec.config.kernel_form == KernelForm::tensor_core &&
         device_kind(recording.info().isa) != device_kind(device.info().isa);
}

}  // namespace

Result<RunSpec> run_spec_of(const Recording& recording) {
  const RunInfo& info = recording.info();
  if (info.config.empty()) {
    return fail(fmt::format("{}: holds no configuration, so it cannot be replayed", recording.path().string()));
  }
  auto spec = run_spec_from_json(info.config, info.scenario);
  if (!spec) return fail(fmt::format("{}: {}", recording.path().string(), spec.error().message));
  return spec;
}

Result<ReplayReport> replay(Workbench& workbench, const Recording& recording, const RunControl& control) {
  const auto spec = run_spec_of(recording);
  if (!spec) return tl::unexpected(spec.error());
  const auto state = recording.state();
  if (!state) return tl::unexpected(state.error());
  auto engine = workbench.engine(spec->config, control.stop);
  if (!engine) return tl::unexpected(engine.error());
  std::optional<TensorCoreReplay> products;
  if (of_other_tensor_cores(*spec, recording, workbench.device())) products.emplace(recording, workbench.device());
  VerifyProbe probe(recording, workbench, products ? &*products : nullptr);
  if (Status loaded = probe.load(); !loaded) return tl::unexpected(loaded.error());
  const auto start = std::chrono::steady_clock::now();
  const auto result = (*engine)->run(spec->requests, spec->transients, probe, control);
  ReplayReport report = std::move(probe.report);
  if (!result && !report.divergence) return tl::unexpected(result.error());
  report.whole = *state == RunState::complete;
  report.tensors = probe.tensors();
  if (products) report.recorded_on = recording.info().isa;
  if (result) {
    probe.report = report;
    probe.finish();
    report = std::move(probe.report);
    if (!report.divergence && report.whole) report.divergence = compare_outputs(recording, *result);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

tl::unexpected<NotKnown> ReplayTensors::stopped_or_unreadable(const Error& error) const {
  return stop_.stop_requested() ? absent("stopped") : unreadable(error.message);
}

Fact<void> ReplayTensors::start(std::int64_t first) {
  auto spec = run_spec_of(recording_);
  if (!spec) return unreadable(spec.error().message);
  if (of_other_tensor_cores(*spec, recording_, workbench_.device())) {
    return absent(fmt::format(
        "{}: recorded on {} with engine.kernel_form=tensor_core, whose bits {} does not make: "
        "what it does not hold can be made on {} alone",
        recording_.path().string(), recording_.info().isa, workbench_.device().info().isa, recording_.info().isa));
  }
  run_.reset();  // first: both together would be twice the budget
  auto engine = workbench_.engine(spec->config, stop_);
  if (!engine) return stopped_or_unreadable(engine.error());
  run_ = std::make_unique<PausedRun>(workbench_, std::move(*spec), std::move(*engine), first, budget_, stop_);
  ++replays_;
  return {};
}

Fact<const MadeTensor*> ReplayTensors::made(std::int64_t tensor) {
  if (run_) {
    if (const MadeTensor* held = run_->find(tensor)) return held;
  }
  if (failed_) return tl::unexpected(*failed_);
  if (!run_ || !run_->may_make(tensor)) {
    if (Fact<void> started = start(step_start(recording_, tensor)); !started) {
      // The next tensor would need the same run, and take as long.
      failed_ = started.error();
      return tl::unexpected(*failed_);
    }
  }
  if (Status reached = run_->reach(tensor); !reached) {
    const tl::unexpected<NotKnown> why = stopped_or_unreadable(reached.error());
    failed_ = why.value();
    return why;
  }
  if (const MadeTensor* held = run_->find(tensor)) return held;
  return unreadable(fmt::format("replay made no tensor {}: the run is not the recorded one", tensor));
}

Fact<TensorData> ReplayTensors::fetch(std::int64_t tensor) {
  const auto row = recording_.tensor(tensor);
  if (!row) return unreadable(row.error().message);
  const Fact<const MadeTensor*> held = made(tensor);
  if (!held) return tl::unexpected(held.error());
  const auto& [data, hash] = **held;
  const bool same_shape = data.format == row->format && data.tokens == row->tokens && data.channels == row->channels;
  if (same_shape && hash == row->hash) return data;
  return unreadable(fmt::format("tensor {}: replay makes {} {:016x}, the recording has {} {:016x}", tensor,
                                shape_text(data.format, data.tokens, data.channels), hash,
                                shape_text(row->format, row->tokens, row->channels), row->hash));
}

Fact<TensorData> RecordingTensors::fetch(std::int64_t tensor) {
  auto stored = stored_.fetch(tensor);
  // Damaged elements are not replaced by a replay: the recording is damaged, and says so.
  if (stored || stored.error().why != Unknown::absent) return stored;
  if (no_replay_) return tl::unexpected(*no_replay_);
  if (!replay_) {
    // An import cannot be run again: its elements were not dumped. Everything else that prevents a replay is an error.
    const auto spec = run_spec_of(recording_);
    if (!spec) {
      no_replay_ =
          NotKnown{recording_.info().config.empty() ? Unknown::absent : Unknown::unreadable, spec.error().message};
      return tl::unexpected(*no_replay_);
    }
    auto workbench = Workbench::open(spec->config, limits_);
    if (!workbench) {
      no_replay_ = NotKnown{Unknown::unreadable, workbench.error().message};
      return tl::unexpected(*no_replay_);
    }
    workbench_ = std::move(*workbench);
    replay_ = std::make_unique<ReplayTensors>(*workbench_, recording_, budget_, stop_);
  }
  return replay_->fetch(tensor);
}

Fact<TensorData> RecordingTensors::fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) {
  auto stored = stored_.fetch_rows(tensor, first, count);
  return stored || stored.error().why != Unknown::absent ? std::move(stored)
                                                         : TensorSource::fetch_rows(tensor, first, count);
}

}  // namespace nanscope::scenarios
