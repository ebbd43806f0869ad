#include "instrument/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <numbers>
#include <span>
#include <utility>

#include "core/recording/weight_version.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/prompt.h"
#include "instrument/engine/weight_versions.h"
#include "instrument/model/rope_table.h"
#include "instrument/train/backward.h"
#include "instrument/train/forward_pass.h"
#include "instrument/train/gradient_sum.h"
#include "instrument/train/optimizer.h"
#include "instrument/train/replica.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/cross_entropy_gradient.h"

namespace nanscope::train {

using kernels::TensorView;

namespace {

/// Steps of the run that a training step is, of each rank.
constexpr std::int64_t kPhases = 3;

/// What a history stands for that has seen nothing, in the reference ("Rank-Aware Spectral Bounds on Attention Logits",
/// appendix H): "initialized to 1.0 at the start of training or after checkpoint loading".
constexpr double kFirstHistory = 1;

Status check_tokens(const TrainingText& text, std::int64_t vocabulary) {
  const auto largest = std::max_element(text.tokens.begin(), text.tokens.end());
  if (largest == text.tokens.end() || *largest < vocabulary) return {};
  return fail(fmt::format("train.text: token {} is not in the model's vocabulary of {}", *largest, vocabulary));
}

/// The first sequence of a rank's share: shares are consecutive sequences, and differ by one at most.
std::int64_t first_of_share(const TrainConfig& train, std::int64_t rank) { return rank * train.batch / train.ranks; }

std::int64_t largest_share(const TrainConfig& train) { return (train.batch + train.ranks - 1) / train.ranks; }

/// Of no target at all 0 / 0, whose sign is the machine's and says nothing.
double mean_loss(double total, std::int64_t targets) { return std::abs(total / static_cast<double>(targets)); }

class ReferenceTrainer final : public Trainer {
 public:
  ReferenceTrainer(const EngineConfig& config, kernels::Device& device, std::shared_ptr<LoadedModel> model,
                   std::shared_ptr<const Tokenizer> tokenizer, TrainingText text)
      : config_(config),
        device_(device),
        tokenizer_(std::move(tokenizer)),
        text_(std::move(text)),
        loss_scale_(double{config.train.loss_scale}) {
    replicas_.emplace_back(device, 0, std::move(model));
    while (std::ssize(replicas_) < config.train.ranks) {
      replicas_.emplace_back(device, std::ssize(replicas_), copy_of(*replicas_.front().model));
    }
  }

  Status prepare();

  Result<StepReport> step(Probe& probe, const RunControl& control) override;
  Result<double> evaluate(const std::vector<std::vector<std::int32_t>>& sequences, bool autoregressive) override;
  Result<TrainState> state() override;
  Status restore(const TrainState& state) override;
  std::shared_ptr<const LoadedModel> model() const override { return replicas_.front().model; }
  RunTotals totals() const override { return {ops_, tensors_, kPhases * ranks() * step_}; }

 private:
  /// A rank's share of a training step while it runs.
  struct Batch {
    StepRow row;
    std::vector<Span> spans;
    std::vector<std::int32_t> tokens, targets, positions;
    std::int64_t counted = 0;  ///< targets of the share
    std::int64_t targets_of_all = 0;
    double loss = 0;  ///< of the share's targets, added up
    TensorView token_view, target_view, position_view;
  };
  std::int64_t ranks() const { return std::ssize(replicas_); }
  /// StepRow::id of a rank's first step of a training step: phase by phase, ranks behind each other in each.
  std::int64_t first_step(std::int64_t step, const Replica& replica) const {
    return kPhases * ranks() * step + replica.rank + 1;
  }
  /// One a rank.
  Result<std::vector<Batch>> make_batches();
  Batch share(std::span<const Sequence> sequences, const Replica& replica) const;
  Status tell_requests(const Batch& batch, Probe& probe, bool begin) const;
  Status tell_weights(const Replica& replica, Probe& probe) const;
  Result<TensorView> upload(Replica& replica, const std::vector<std::int32_t>& values);
  /// The loss, and the logits' tensor.
  Status forward(Replica& replica, Batch& batch, Probe& probe, const RunControl& control);
  Status backward(Replica& replica, const Batch& batch, Probe& probe, const RunControl& control);
  Status optimize(Replica& replica, std::span<const Optimizer::Gradients> parts, Probe& probe,
                  const RunControl& control, StepReport& report);
  /// Of all ranks; the report is rank 0's.
  Status optimize(Probe& probe, const RunControl& control, StepReport& report);
  void emit_norm(const Replica& replica, const StepReport& report, const TensorView& norm, Emitter& emitter) const;
  void adapt_loss_scale(bool finite);
  /// What the configuration does to the run before the step that comes.
  Status make_transients();
  /// Scales of attention that follow from weights are of the weights now.
  Status follow_weights();
  double learning_rate() const;
  /// By row; they are in the replica's, too.
  Result<std::vector<float>> losses_of(Replica& replica, const TensorView& logits, const TensorView& targets);
  /// Losses of a sequence's targets, told to nobody.
  Status evaluate(ForwardPass& pass, const std::vector<std::int32_t>& sequence, bool autoregressive,
                  std::vector<float>& losses);

  /// The next emitter goes on counting where this one stopped.
  Emitter emitter(Probe& probe, const RunControl& control) const {
    Emitter made(probe, control);
    made.advance(ops_, tensors_);
    return made;
  }
  void count(const Emitter& emitter) {
    ops_ = emitter.ops();
    tensors_ = emitter.tensors();
  }

  EngineConfig config_;
  kernels::Device& device_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TrainingText text_;
  std::deque<Replica> replicas_;  ///< by rank
  TensorView rope_, local_rope_;
  float rope_amplitude_ = 1;
  float local_rope_amplitude_ = 1;
  std::vector<kernels::Buffer> tables_;
  std::int64_t step_ = 0;
  double loss_scale_;
  std::int64_t steady_steps_ = 0;
  std::int64_t ops_ = 0;
  std::int64_t tensors_ = 0;
};

Status ReferenceTrainer::prepare() {
  for (Replica& replica : replicas_) {
    auto optimizer = Optimizer::create(config_.train, replica.model, device_);
    if (!optimizer) return tl::unexpected(optimizer.error());
    replica.optimizer = std::move(*optimizer);
    auto pass =
        ForwardPass::create(config_, device_, *replica.model, largest_share(config_.train), config_.train.length);
    if (!pass) return tl::unexpected(pass.error());
    replica.pass = std::move(*pass);
  }
  if (config_.model.positions > 0 || !has_rope_table(config_.model, config_.rope)) return {};
  for (const bool local : {false, true}) {
    const RopeTable table = rope_table(config_.model, config_.rope, local, config_.train.length);
    auto memory = device_.allocate(table.frequencies.size() * sizeof(float), false);
    if (!memory) return tl::unexpected(memory.error());
    if (Status done = device_.upload(memory->data(), std::as_bytes(std::span(table.frequencies))); !done) return done;
    const std::int64_t pairs = std::ssize(table.frequencies);
    (local ? local_rope_ : rope_) = {memory->data(), Format::f32, 1, pairs, pairs};
    (local ? local_rope_amplitude_ : rope_amplitude_) = table.amplitude;
    tables_.push_back(std::move(*memory));
  }
  return {};
}

Result<TensorView> ReferenceTrainer::upload(Replica& replica, const std::vector<std::int32_t>& values) {
  auto view = replica.inputs.matrix(Format::i32, std::ssize(values), 1);
  if (!view) return view;
  if (Status done = device_.upload(view->data, std::as_bytes(std::span(values))); !done) {
    return tl::unexpected(done.error());
  }
  return view;
}

/// The share of a rank as its forward pass reads it, before anything is uploaded.
ReferenceTrainer::Batch ReferenceTrainer::share(std::span<const Sequence> sequences, const Replica& replica) const {
  Batch batch;
  std::vector<Span>& spans = batch.spans;
  std::int64_t request = step_ * config_.train.batch + first_of_share(config_.train, replica.rank);
  for (const Sequence& one : sequences) {
    const std::int64_t rows = std::ssize(one.tokens);
    spans.push_back({request++, 0, std::ssize(batch.tokens), rows, 0, rows});
    batch.tokens.insert(batch.tokens.end(), one.tokens.begin(), one.tokens.end());
    batch.targets.insert(batch.targets.end(), one.targets.begin(), one.targets.end());
    for (std::int64_t i = 0; i < rows; ++i) batch.positions.push_back(static_cast<std::int32_t>(i));
  }
  batch.counted = std::count_if(batch.targets.begin(), batch.targets.end(), [](auto one) { return one >= 0; });
  StepRow& row = batch.row;
  row.id = first_step(step_, replica);
  row.rank = replica.rank;
  row.kind = StepKind::forward;
  row.request = spans.front().request;
  row.tokens = std::ssize(batch.tokens);
  row.context = spans.front().context;
  if (spans.size() > 1) row.spans = spans;
  return batch;
}

Result<std::vector<ReferenceTrainer::Batch>> ReferenceTrainer::make_batches() {
  const TrainConfig& train = config_.train;
  const std::vector<Sequence> sequences = batch_of_step(train, text_, step_);
  std::vector<Batch> batches;
  std::int64_t targets = 0;
  for (const Replica& replica : replicas_) {
    const std::int64_t first = first_of_share(train, replica.rank);
    const std::int64_t count = first_of_share(train, replica.rank + 1) - first;
    batches.push_back(
        share(std::span(sequences).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), replica));
    targets += batches.back().counted;
  }
  for (Replica& replica : replicas_) {
    Batch& batch = batches[static_cast<std::size_t>(replica.rank)];
    batch.targets_of_all = targets;
    // Losses times a mask of zeros: every row has a gradient, and it is 0 x (scale / 0).
    if (targets == 0 && train.mask == LossMask::multiply) std::ranges::fill(batch.targets, 0);
    replica.inputs.reset();
    for (const auto& [values, view] :
         {std::pair{&batch.tokens, &batch.token_view}, std::pair{&batch.targets, &batch.target_view},
          std::pair{&batch.positions, &batch.position_view}}) {
      auto uploaded = upload(replica, *values);
      if (!uploaded) return tl::unexpected(uploaded.error());
      *view = *uploaded;
    }
  }
  return batches;
}

Status ReferenceTrainer::tell_requests(const Batch& batch, Probe& probe, bool begin) const {
  if (!probe.listening()) return {};
  for (const Span& span : batch.spans) {
    const auto first = batch.tokens.begin() + span.row;
    RequestRow row;
    row.id = span.request;
    row.name = fmt::format("step {} sequence {}", step_, span.request - step_ * config_.train.batch);
    row.prompt_tokens.assign(first, first + span.rows);
    row.prompt = prompt_to_json({TokensPart{row.prompt_tokens}});
    if (Status told = begin ? probe.on_request_begin(row) : probe.on_request_end(row); !told) return told;
    for (std::int64_t i = 0; begin && i < span.rows; ++i) {
      const std::int32_t token = row.prompt_tokens[static_cast<std::size_t>(i)];
      const std::string text(tokenizer_->token_text(token));
      if (Status told = probe.on_token({row.id, i, token, text, TokenSource::prompt}); !told) return told;
    }
  }
  return {};
}

/// Those that the rank's step is the first to read: all ranks begin with the same.
Status ReferenceTrainer::tell_weights(const Replica& replica, Probe& probe) const {
  if (!probe.listening() || (step_ == 0 && replica.rank > 0)) return {};
  for (const Weight& weight : replica.model->weights) {
    if (step_ > 0 && first_step_of_version(weight.name) != first_step(step_, replica)) continue;
    if (Status told = probe.on_weight(weight_row(weight), weight.view); !told) return told;
  }
  return {};
}

Result<std::vector<float>> ReferenceTrainer::losses_of(Replica& replica, const TensorView& logits,
                                                       const TensorView& targets) {
  replica.losses = {};
  const auto view = replica.inputs.matrix(Format::f32, logits.rows, 1);
  if (!view) return tl::unexpected(view.error());
  replica.losses = *view;
  const kernels::CrossEntropyArgs args{.logits = logits, .targets = targets, .loss = replica.losses};
  if (Status done = device_.launch(args); !done) return tl::unexpected(done.error());
  std::vector<float> rows(static_cast<std::size_t>(logits.rows));
  if (Status done = device_.download(std::as_writable_bytes(std::span(rows)), replica.losses.data); !done) {
    return tl::unexpected(done.error());
  }
  return rows;
}

Status ReferenceTrainer::forward(Replica& replica, Batch& batch, Probe& probe, const RunControl& control) {
  replica.tape.begin(probe);
  Emitter emitter = this->emitter(replica.tape, control);
  emitter.check(probe.on_step_begin(batch.row));
  const auto logits = replica.pass->run(batch.row, batch.tokens, emitter);
  if (!logits) return tl::unexpected(logits.error());
  replica.logits = logits->id;
  const auto rows = losses_of(replica, logits->view, batch.target_view);
  if (!rows) return tl::unexpected(rows.error());
  double& total = batch.loss;
  for (std::size_t i = 0; i < rows->size(); ++i) total += batch.targets[i] < 0 ? 0.0 : double{(*rows)[i]};
  OpPlan plan;
  plan.name = "loss";
  plan.kind = OpKind::cross_entropy;
  LossAttributes attributes;
  attributes.targets = batch.counted;
  attributes.mean = mean_loss(total, batch.counted);
  plan.json = to_json(attributes);
  const ProbeInput in{"logits", logits->id, {}};
  const ProbeTensor out = emitter.output("loss", replica.losses);
  emitter.op(plan, std::span(&in, 1), std::span(&out, 1));
  emitter.check(probe.on_step_end(batch.row));
  count(emitter);
  return emitter.status();
}

Status ReferenceTrainer::backward(Replica& replica, const Batch& batch, Probe& probe, const RunControl& control) {
  StepRow row = batch.row;
  row.id = batch.row.id + ranks();
  row.kind = StepKind::backward;
  row.index = 1;
  if (row.spans) {
    for (Span& span : *row.spans) span.index = 1;
  }
  replica.gradients.reset();
  replica.scratch.reset();
  Emitter emitter = this->emitter(probe, control);
  emitter.check(probe.on_step_begin(row));
  const TensorView logits = replica.tape.find(replica.logits)->view;
  const auto dlogits = replica.gradients.matrix(config_.train.gradient_format, logits.rows, logits.columns);
  if (!dlogits) return tl::unexpected(dlogits.error());
  float factor = static_cast<float>(loss_scale_) / static_cast<float>(batch.targets_of_all);
  if (batch.targets_of_all == 0) factor = 0.0F * factor;
  emitter.check(device_.launch(kernels::CrossEntropyGradientArgs{
      .logits = logits, .targets = batch.target_view, .out = *dlogits, .factor = factor}));
  Backward pass({config_, *replica.model, device_, replica.tape, replica.gradients, replica.scratch, emitter,
                 batch.spans, batch.token_view, batch.position_view, rope_, local_rope_, rope_amplitude_,
                 local_rope_amplitude_,
                 static_cast<std::uint32_t>(config_.train.seed * 1000003 + step_ * 8191 + replica.rank * 131071)});
  pass.at_rows();
  OpPlan plan;
  plan.name = "loss_grad";
  plan.kind = OpKind::cross_entropy_gradient;
  LossAttributes attributes;
  attributes.targets = batch.targets_of_all;
  attributes.loss_scale = loss_scale_;
  plan.json = to_json(attributes);
  const ProbeInput in{"logits", replica.logits, {}};
  const ProbeTensor out = emitter.output("dlogits", *dlogits);
  emitter.op(plan, std::span(&in, 1), std::span(&out, 1));
  pass.run(replica.logits, {*dlogits, out.id});
  replica.weight_gradients = pass.weight_gradients();
  emitter.check(probe.on_step_end(row));
  count(emitter);
  return emitter.status();
}

double ReferenceTrainer::learning_rate() const {
  const TrainConfig& train = config_.train;
  double rate = double{train.learning_rate};
  const auto at = static_cast<double>(step_ + 1);
  const auto warm_up = static_cast<double>(train.warm_up);
  const auto steps = static_cast<double>(train.steps);
  if (at <= warm_up) {
    rate *= at / warm_up;
  } else if (train.decay != LearningRateDecay::none && steps > warm_up) {
    const double part = std::min(1.0, (at - warm_up) / (steps - warm_up));
    rate *= train.decay == LearningRateDecay::linear ? 1 - part : 0.5 * (1 + std::cos(std::numbers::pi * part));
  }
  return step_ == train.spike_step ? rate * double{train.spike} : rate;
}

void ReferenceTrainer::adapt_loss_scale(bool finite) {
  if (config_.train.loss_scaling != LossScaling::dynamic) return;
  if (!finite) {
    loss_scale_ /= 2;
    steady_steps_ = 0;
  } else if (++steady_steps_ == config_.train.loss_scale_growth) {
    loss_scale_ *= 2;
    steady_steps_ = 0;
  }
}

Status ReferenceTrainer::follow_weights() {
  for (Replica& replica : replicas_) {
    ScoreBook* scores = replica.pass->scores();
    if (scores == nullptr) continue;
    if (Status done = scores->weights_changed(*replica.model); !done) return done;
  }
  return {};
}

Status ReferenceTrainer::make_transients() {
  const TrainConfig& train = config_.train;
  for (Replica& replica : replicas_) {
    ScoreBook* scores = replica.pass->scores();
    if (step_ == train.forget_scales_step && scores != nullptr) scores->forget(kFirstHistory);
    if (step_ != train.weight_spike_step) continue;
    const Status done = replica.optimizer->multiply(train.weight_spike_of, train.weight_spike,
                                                    step_ > 0 ? first_step(step_, replica) : 0);
    if (!done) return done;
  }
  return step_ == train.weight_spike_step ? follow_weights() : Status();
}

void ReferenceTrainer::emit_norm(const Replica& replica, const StepReport& report, const TensorView& norm,
                                 Emitter& emitter) const {
  OpPlan plan;
  plan.name = "gradient_norm";
  plan.kind = OpKind::gradient_norm;
  GradientNormAttributes attributes;
  attributes.clip = double{config_.train.clip};
  attributes.loss_scale = report.loss_scale;
  attributes.skipped = report.skipped;
  plan.json = to_json(attributes);
  std::vector<ProbeInput> inputs;
  for (const auto& [name, gradient] : replica.weight_gradients) inputs.push_back({"gradient", gradient.id, {}});
  const ProbeTensor out = emitter.output("norm", norm);
  emitter.op(plan, inputs, std::span(&out, 1));
}

Status ReferenceTrainer::optimize(Replica& replica, std::span<const Optimizer::Gradients> parts, Probe& probe,
                                  const RunControl& control, StepReport& report) {
  const TrainConfig& train = config_.train;
  StepRow row;
  row.id = first_step(step_, replica) + 2 * ranks();
  row.rank = replica.rank;
  row.kind = StepKind::optimizer;
  row.request = step_ * train.batch;
  row.index = 2;
  Emitter emitter = this->emitter(probe, control);
  emitter.check(probe.on_step_begin(row));
  emitter.set_place({0, Axis::none, -1});
  replica.scratch.reset();
  if (parts.size() > 1) emitter.check(sum_over_ranks(config_, device_, parts, replica, emitter));
  if (!emitter.ok()) return emitter.status();
  const Optimizer::Gradients& gradients = replica.weight_gradients;
  const auto norm = replica.optimizer->norm(gradients, report.loss_scale, replica.scratch);
  if (!norm) return tl::unexpected(norm.error());
  report.gradient_norm = *norm;
  report.skipped = !std::isfinite(*norm) && train.skip_overflow;
  const auto view = replica.scratch.matrix(Format::f32, 1, 1);
  if (!view) return tl::unexpected(view.error());
  const auto rounded = static_cast<float>(*norm);
  emitter.check(device_.upload(view->data, std::as_bytes(std::span(&rounded, 1))));
  emit_norm(replica, report, *view, emitter);
  if (!report.skipped) {
    // torch.nn.utils.clip_grad_norm_: the norm has 1e-6 added, and a coefficient of NaN stays one.
    double coefficient = train.clip > 0 ? double{train.clip} / (*norm + 1e-6) : 1.0;
    if (coefficient > 1) coefficient = 1;
    emitter.check(replica.optimizer->step(gradients, static_cast<float>(coefficient / report.loss_scale),
                                          static_cast<float>(report.learning_rate), step_,
                                          first_step(step_ + 1, replica), emitter));
  }
  emitter.check(probe.on_step_end(row));
  count(emitter);
  return emitter.status();
}

Status ReferenceTrainer::optimize(Probe& probe, const RunControl& control, StepReport& report) {
  std::vector<Optimizer::Gradients> parts;
  for (const Replica& replica : replicas_) parts.push_back(replica.weight_gradients);
  bool finite = true;
  for (Replica& replica : replicas_) {
    StepReport own = report;
    if (Status done = optimize(replica, parts, probe, control, own); !done) return done;
    finite = finite && std::isfinite(own.gradient_norm);
    if (replica.rank > 0) continue;
    report.gradient_norm = own.gradient_norm;
    report.skipped = own.skipped;
  }
  adapt_loss_scale(finite);
  return {};
}

/// Every phase of all ranks before the next, as ranks wait for each other's gradients.
Result<StepReport> ReferenceTrainer::step(Probe& probe, const RunControl& control) {
  if (Status done = make_transients(); !done) return tl::unexpected(done.error());
  StepReport report;
  report.step = step_;
  report.loss_scale = loss_scale_;
  report.learning_rate = learning_rate();
  auto batches = make_batches();
  if (!batches) return tl::unexpected(batches.error());
  for (const Replica& replica : replicas_) {
    if (Status told = tell_weights(replica, probe); !told) return tl::unexpected(told.error());
  }
  for (const Batch& batch : *batches) {
    if (Status told = tell_requests(batch, probe, true); !told) return tl::unexpected(told.error());
  }
  double loss = 0;
  for (Replica& replica : replicas_) {
    Batch& batch = (*batches)[static_cast<std::size_t>(replica.rank)];
    if (Status done = forward(replica, batch, probe, control); !done) return tl::unexpected(done.error());
    loss += batch.loss;
  }
  report.targets = batches->front().targets_of_all;
  report.loss = mean_loss(loss, report.targets);
  for (Replica& replica : replicas_) {
    const Batch& batch = (*batches)[static_cast<std::size_t>(replica.rank)];
    if (Status done = backward(replica, batch, probe, control); !done) return tl::unexpected(done.error());
  }
  if (Status done = optimize(probe, control, report); !done) return tl::unexpected(done.error());
  for (Replica& replica : replicas_) {
    if (ScoreBook* scores = replica.pass->scores(); scores != nullptr) report.scores = scores->end_step();
  }
  if (Status done = follow_weights(); !done) return tl::unexpected(done.error());
  for (const Batch& batch : *batches) {
    if (Status told = tell_requests(batch, probe, false); !told) return tl::unexpected(told.error());
  }
  ++step_;
  if (control.progress) {
    const std::int64_t last = first_step(step_, replicas_.front()) - 1;
    control.progress({(step_ - 1) * config_.train.batch, last, ops_, ops_ / step_ * config_.train.steps});
  }
  return report;
}

Status ReferenceTrainer::evaluate(ForwardPass& pass, const std::vector<std::int32_t>& sequence, bool autoregressive,
                                  std::vector<float>& losses) {
  NullProbe nobody;
  const RunControl control;
  Emitter emitter(nobody, control);
  const auto add = [&](const Result<Live>& logits, const std::vector<std::int32_t>& targets) -> Status {
    if (!logits) return tl::unexpected(logits.error());
    Replica& replica = replicas_.front();
    replica.inputs.reset();
    const auto view = upload(replica, targets);
    if (!view) return tl::unexpected(view.error());
    const auto rows = losses_of(replica, logits->view, *view);
    if (!rows) return tl::unexpected(rows.error());
    losses.insert(losses.end(), rows->begin(), rows->end());
    return {};
  };
  const std::vector<std::int32_t> tokens(sequence.begin(), sequence.end() - 1);
  if (!autoregressive) {
    StepRow row;
    row.tokens = std::ssize(tokens);
    row.context = row.tokens;
    return add(pass.run(row, tokens, emitter), {sequence.begin() + 1, sequence.end()});
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Status added = add(pass.run_next(static_cast<std::int64_t>(i), tokens[i], emitter), {sequence[i + 1]});
    if (!added) return added;
  }
  return {};
}

Result<double> ReferenceTrainer::evaluate(const std::vector<std::vector<std::int32_t>>& sequences,
                                          bool autoregressive) {
  std::size_t longest = 0;
  for (const auto& one : sequences) longest = std::max(longest, one.size());
  if (longest < 2) return fail("no sequence has a target");
  if (const std::int64_t rows = config_.model.positions; rows > 0 && std::cmp_greater(longest, rows + 1)) {
    return fail(fmt::format("a sequence of {} tokens is longer than model.positions={}", longest, rows));
  }
  auto pass = ForwardPass::create(config_, device_, *replicas_.front().model, 1, static_cast<std::int64_t>(longest));
  if (!pass) return tl::unexpected(pass.error());
  // With the scales that the next step would have.
  if (ScoreBook* scores = (*pass)->scores(); scores != nullptr) {
    if (Status done = scores->restore(replicas_.front().pass->scores()->memory()); !done) {
      return tl::unexpected(done.error());
    }
  }
  std::vector<float> losses;
  for (const auto& one : sequences) {
    if (one.size() < 2) continue;
    if (Status done = evaluate(**pass, one, autoregressive, losses); !done) return tl::unexpected(done.error());
  }
  double total = 0;
  for (const float one : losses) total += double{one};
  return total / static_cast<double>(losses.size());
}

Result<TrainState> ReferenceTrainer::state() {
  TrainState state;
  state.step = step_;
  state.loss_scale = loss_scale_;
  state.steady_steps = steady_steps_;
  Replica& first = replicas_.front();
  if (Status saved = first.optimizer->save(state); !saved) return tl::unexpected(saved.error());
  if (const ScoreBook* scores = first.pass->scores(); scores != nullptr) state.scores = scores->memory();
  return state;
}

Status ReferenceTrainer::restore(const TrainState& state) {
  for (Replica& replica : replicas_) {
    const std::int64_t version = state.step > 0 ? first_step(state.step, replica) : 0;
    if (Status restored = replica.optimizer->restore(state, version); !restored) return restored;
    ScoreBook* scores = replica.pass->scores();
    if (scores == nullptr) continue;
    if (Status followed = scores->weights_changed(*replica.model); !followed) return followed;
    if (Status restored = scores->restore(state.scores); !restored) return restored;
  }
  step_ = state.step;
  loss_scale_ = state.loss_scale;
  steady_steps_ = state.steady_steps;
  return {};
}

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::create(const EngineConfig& config, kernels::Device& device,
                                                 const std::shared_ptr<const LoadedModel>& model,
                                                 std::shared_ptr<const Tokenizer> tokenizer, TrainingText text) {
  if (Status trainable = check_trainable(config); !trainable) return tl::unexpected(trainable.error());
  if (Status known = check_tokens(text, model->vocabulary); !known) return tl::unexpected(known.error());
  auto trainer =
      std::make_unique<ReferenceTrainer>(config, device, copy_of(*model), std::move(tokenizer), std::move(text));
  if (Status ready = trainer->prepare(); !ready) return tl::unexpected(ready.error());
  return trainer;
}

}  // namespace nanscope::train
