#include "instrument/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "core/blocks/presets.h"
#include "core/recording/weight_version.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/prompt.h"
#include "instrument/engine/score_book.h"
#include "instrument/engine/weight_versions.h"
#include "instrument/model/rope_table.h"
#include "instrument/train/backward.h"
#include "instrument/train/forward_pass.h"
#include "instrument/train/optimizer.h"
#include "kernels/ops/column_scales.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/cross_entropy_gradient.h"

namespace nanscope::train {

using kernels::TensorView;

namespace {

/// Steps of the run that a training step is.
constexpr std::int64_t kPhases = 3;

Status check_tokens(const TrainingText& text, std::int64_t vocabulary) {
  const auto largest = std::max_element(text.tokens.begin(), text.tokens.end());
  if (largest == text.tokens.end() || *largest < vocabulary) return {};
  return fail(fmt::format("train.text: token {} is not in the model's vocabulary of {}", *largest, vocabulary));
}

class ReferenceTrainer final : public Trainer {
 public:
  ReferenceTrainer(const EngineConfig& config, kernels::Device& device, std::shared_ptr<LoadedModel> model,
                   std::shared_ptr<const Tokenizer> tokenizer, TrainingText text)
      : config_(config),
        device_(device),
        model_(std::move(model)),
        tokenizer_(std::move(tokenizer)),
        text_(std::move(text)),
        tape_(device),
        inputs_(device),
        gradients_(device),
        scratch_(device),
        loss_scale_(double{config.train.loss_scale}) {}

  Status prepare();

  Result<StepReport> step(Probe& probe, const RunControl& control) override;
  Result<double> evaluate(const std::vector<std::vector<std::int32_t>>& sequences, bool autoregressive) override;
  Result<TrainState> state() override;
  Status restore(const TrainState& state) override;
  std::shared_ptr<const LoadedModel> model() const override { return model_; }
  RunTotals totals() const override { return {ops_, tensors_, kPhases * step_}; }

 private:
  /// A training step while it runs.
  struct Batch {
    StepRow row;
    std::vector<Span> spans;
    std::vector<std::int32_t> tokens, targets, positions;
    std::int64_t counted = 0;  ///< targets
    TensorView token_view, target_view, position_view;
  };
  Result<Batch> make_batch();
  Status tell_requests(const Batch& batch, Probe& probe, bool begin) const;
  Status tell_weights(Probe& probe) const;
  Result<TensorView> upload(const std::vector<std::int32_t>& values);
  /// The loss, and the logits' tensor.
  Result<double> forward(const Batch& batch, Probe& probe, const RunControl& control);
  Status backward(const Batch& batch, Probe& probe, const RunControl& control);
  Status optimize(const Batch& batch, Probe& probe, const RunControl& control, StepReport& report);
  void emit_norm(const StepReport& report, const TensorView& norm, Emitter& emitter) const;
  void adapt_loss_scale(bool finite);
  double learning_rate() const;
  /// By row; they are in losses_, too.
  Result<std::vector<float>> losses_of(const TensorView& logits, const TensorView& targets);
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
  std::shared_ptr<LoadedModel> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TrainingText text_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<ForwardPass> pass_;
  Tape tape_;
  Arena inputs_, gradients_, scratch_;
  TensorView rope_, local_rope_;
  float rope_amplitude_ = 1;
  float local_rope_amplitude_ = 1;
  std::vector<kernels::Buffer> tables_;
  std::int64_t logits_ = 0;  ///< tensor of the forward pass
  TensorView losses_;
  Optimizer::Gradients weight_gradients_;
  std::int64_t step_ = 0;
  double loss_scale_;
  std::int64_t steady_steps_ = 0;
  std::int64_t ops_ = 0;
  std::int64_t tensors_ = 0;
};

Status ReferenceTrainer::prepare() {
  auto optimizer = Optimizer::create(config_.train, model_, device_);
  if (!optimizer) return tl::unexpected(optimizer.error());
  optimizer_ = std::move(*optimizer);
  auto pass = ForwardPass::create(config_, device_, *model_, config_.train.batch, config_.train.length);
  if (!pass) return tl::unexpected(pass.error());
  pass_ = std::move(*pass);
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

Result<TensorView> ReferenceTrainer::upload(const std::vector<std::int32_t>& values) {
  auto view = inputs_.matrix(Format::i32, std::ssize(values), 1);
  if (!view) return view;
  if (Status done = device_.upload(view->data, std::as_bytes(std::span(values))); !done) {
    return tl::unexpected(done.error());
  }
  return view;
}

Result<ReferenceTrainer::Batch> ReferenceTrainer::make_batch() {
  const TrainConfig& train = config_.train;
  Batch batch;
  std::vector<Span>& spans = batch.spans;
  std::int64_t request = step_ * train.batch;
  for (const Sequence& one : batch_of_step(train, text_, step_)) {
    const std::int64_t rows = std::ssize(one.tokens);
    spans.push_back({request++, 0, std::ssize(batch.tokens), rows, 0, rows});
    batch.tokens.insert(batch.tokens.end(), one.tokens.begin(), one.tokens.end());
    batch.targets.insert(batch.targets.end(), one.targets.begin(), one.targets.end());
    for (std::int64_t i = 0; i < rows; ++i) batch.positions.push_back(static_cast<std::int32_t>(i));
  }
  batch.counted = std::count_if(batch.targets.begin(), batch.targets.end(), [](auto one) { return one >= 0; });
  // Losses times a mask of zeros: every row has a gradient, and it is 0 x (scale / 0).
  if (batch.counted == 0 && train.mask == LossMask::multiply) std::ranges::fill(batch.targets, 0);
  StepRow& row = batch.row;
  row.id = kPhases * step_ + 1;
  row.kind = StepKind::forward;
  row.request = spans.front().request;
  row.tokens = std::ssize(batch.tokens);
  row.context = spans.front().context;
  if (spans.size() > 1) row.spans = spans;
  inputs_.reset();
  for (const auto& [values, view] :
       {std::pair{&batch.tokens, &batch.token_view}, std::pair{&batch.targets, &batch.target_view},
        std::pair{&batch.positions, &batch.position_view}}) {
    auto uploaded = upload(*values);
    if (!uploaded) return tl::unexpected(uploaded.error());
    *view = *uploaded;
  }
  return batch;
}

Status ReferenceTrainer::tell_requests(const Batch& batch, Probe& probe, bool begin) const {
  if (!probe.listening()) return {};
  std::int64_t sequence = 0;
  for (const Span& span : batch.spans) {
    const auto first = batch.tokens.begin() + span.row;
    RequestRow row;
    row.id = span.request;
    row.name = fmt::format("step {} sequence {}", step_, sequence++);
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

/// Those that the step is the first to read.
Status ReferenceTrainer::tell_weights(Probe& probe) const {
  if (!probe.listening()) return {};
  for (const Weight& weight : model_->weights) {
    if (step_ > 0 && first_step_of_version(weight.name) != kPhases * step_ + 1) continue;
    WeightRow row;
    row.name = weight.name;
    row.format = weight.view.format;
    row.rows = weight.view.rows;
    row.columns = weight.view.columns;
    if (Status told = probe.on_weight(row, weight.view); !told) return told;
  }
  return {};
}

Result<std::vector<float>> ReferenceTrainer::losses_of(const TensorView& logits, const TensorView& targets) {
  losses_ = {};
  const auto view = inputs_.matrix(Format::f32, logits.rows, 1);
  if (!view) return tl::unexpected(view.error());
  losses_ = *view;
  const kernels::CrossEntropyArgs args{.logits = logits, .targets = targets, .loss = losses_};
  if (Status done = device_.launch(args); !done) return tl::unexpected(done.error());
  std::vector<float> rows(static_cast<std::size_t>(logits.rows));
  if (Status done = device_.download(std::as_writable_bytes(std::span(rows)), losses_.data); !done) {
    return tl::unexpected(done.error());
  }
  return rows;
}

Result<double> ReferenceTrainer::forward(const Batch& batch, Probe& probe, const RunControl& control) {
  tape_.begin(probe);
  Emitter emitter = this->emitter(tape_, control);
  emitter.check(probe.on_step_begin(batch.row));
  const auto logits = pass_->run(batch.row, batch.tokens, emitter);
  if (!logits) return tl::unexpected(logits.error());
  logits_ = logits->id;
  const auto rows = losses_of(logits->view, batch.target_view);
  if (!rows) return tl::unexpected(rows.error());
  double total = 0;
  for (std::size_t i = 0; i < rows->size(); ++i) total += batch.targets[i] < 0 ? 0.0 : double{(*rows)[i]};
  // Of no target at all 0 / 0, whose sign is the machine's and says nothing.
  const double mean = std::abs(total / static_cast<double>(batch.counted));
  OpPlan plan;
  plan.name = "loss";
  plan.kind = OpKind::cross_entropy;
  LossAttributes attributes;
  attributes.targets = batch.counted;
  attributes.mean = mean;
  plan.json = to_json(attributes);
  const ProbeInput in{"logits", logits->id, {}};
  const ProbeTensor out = emitter.output("loss", losses_);
  emitter.op(plan, std::span(&in, 1), std::span(&out, 1));
  emitter.check(probe.on_step_end(batch.row));
  count(emitter);
  if (!emitter.ok()) return tl::unexpected(emitter.status().error());
  return mean;
}

Status ReferenceTrainer::backward(const Batch& batch, Probe& probe, const RunControl& control) {
  StepRow row = batch.row;
  row.id = kPhases * step_ + 2;
  row.kind = StepKind::backward;
  row.index = 1;
  if (row.spans) {
    for (Span& span : *row.spans) span.index = 1;
  }
  gradients_.reset();
  scratch_.reset();
  Emitter emitter = this->emitter(probe, control);
  emitter.check(probe.on_step_begin(row));
  const TensorView logits = tape_.find(logits_)->view;
  const auto dlogits = gradients_.matrix(config_.train.gradient_format, logits.rows, logits.columns);
  if (!dlogits) return tl::unexpected(dlogits.error());
  float factor = static_cast<float>(loss_scale_) / static_cast<float>(batch.counted);
  if (batch.counted == 0) factor = 0.0F * factor;
  emitter.check(device_.launch(kernels::CrossEntropyGradientArgs{
      .logits = logits, .targets = batch.target_view, .out = *dlogits, .factor = factor}));
  Backward pass({config_, *model_, device_, tape_, gradients_, scratch_, emitter, batch.spans, batch.token_view,
                 batch.position_view, rope_, local_rope_, rope_amplitude_, local_rope_amplitude_,
                 static_cast<std::uint32_t>(config_.train.seed * 1000003 + step_ * 8191)});
  pass.at_rows();
  OpPlan plan;
  plan.name = "loss_grad";
  plan.kind = OpKind::cross_entropy_gradient;
  LossAttributes attributes;
  attributes.targets = batch.counted;
  attributes.loss_scale = loss_scale_;
  plan.json = to_json(attributes);
  const ProbeInput in{"logits", logits_, {}};
  const ProbeTensor out = emitter.output("dlogits", *dlogits);
  emitter.op(plan, std::span(&in, 1), std::span(&out, 1));
  pass.run(logits_, {*dlogits, out.id});
  weight_gradients_ = pass.weight_gradients();
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

void ReferenceTrainer::emit_norm(const StepReport& report, const TensorView& norm, Emitter& emitter) const {
  OpPlan plan;
  plan.name = "gradient_norm";
  plan.kind = OpKind::gradient_norm;
  GradientNormAttributes attributes;
  attributes.clip = double{config_.train.clip};
  attributes.loss_scale = report.loss_scale;
  attributes.skipped = report.skipped;
  plan.json = to_json(attributes);
  std::vector<ProbeInput> inputs;
  for (const auto& [name, gradient] : weight_gradients_) inputs.push_back({"gradient", gradient.id, {}});
  const ProbeTensor out = emitter.output("norm", norm);
  emitter.op(plan, inputs, std::span(&out, 1));
}

Status ReferenceTrainer::optimize(const Batch& batch, Probe& probe, const RunControl& control, StepReport& report) {
  const TrainConfig& train = config_.train;
  StepRow row;
  row.id = kPhases * step_ + 3;
  row.kind = StepKind::optimizer;
  row.request = batch.row.request;
  row.index = 2;
  Emitter emitter = this->emitter(probe, control);
  emitter.check(probe.on_step_begin(row));
  emitter.set_place({0, Axis::none, -1});
  scratch_.reset();
  const auto norm = optimizer_->norm(weight_gradients_, report.loss_scale, scratch_);
  if (!norm) return tl::unexpected(norm.error());
  report.gradient_norm = *norm;
  const bool finite = std::isfinite(*norm);
  report.skipped = !finite && train.skip_overflow;
  const auto view = scratch_.matrix(Format::f32, 1, 1);
  if (!view) return tl::unexpected(view.error());
  const auto rounded = static_cast<float>(*norm);
  emitter.check(device_.upload(view->data, std::as_bytes(std::span(&rounded, 1))));
  emit_norm(report, *view, emitter);
  if (!report.skipped) {
    // torch.nn.utils.clip_grad_norm_: the norm has 1e-6 added, and a coefficient of NaN stays one.
    double coefficient = train.clip > 0 ? double{train.clip} / (*norm + 1e-6) : 1.0;
    if (coefficient > 1) coefficient = 1;
    emitter.check(optimizer_->step(weight_gradients_, static_cast<float>(coefficient / report.loss_scale),
                                   static_cast<float>(report.learning_rate), step_, row.id + 1, emitter));
  }
  adapt_loss_scale(finite);
  emitter.check(probe.on_step_end(row));
  count(emitter);
  return emitter.status();
}

Result<StepReport> ReferenceTrainer::step(Probe& probe, const RunControl& control) {
  StepReport report;
  report.step = step_;
  report.loss_scale = loss_scale_;
  report.learning_rate = learning_rate();
  const auto batch = make_batch();
  if (!batch) return tl::unexpected(batch.error());
  report.targets = batch->counted;
  if (Status told = tell_weights(probe); !told) return tl::unexpected(told.error());
  if (Status told = tell_requests(*batch, probe, true); !told) return tl::unexpected(told.error());
  const auto loss = forward(*batch, probe, control);
  if (!loss) return tl::unexpected(loss.error());
  report.loss = *loss;
  if (Status done = backward(*batch, probe, control); !done) return tl::unexpected(done.error());
  if (Status done = optimize(*batch, probe, control, report); !done) return tl::unexpected(done.error());
  if (Status told = tell_requests(*batch, probe, false); !told) return tl::unexpected(told.error());
  ++step_;
  if (control.progress) control.progress({batch->row.request, batch->row.id, ops_, ops_ / step_ * config_.train.steps});
  return report;
}

Status ReferenceTrainer::evaluate(ForwardPass& pass, const std::vector<std::int32_t>& sequence, bool autoregressive,
                                  std::vector<float>& losses) {
  NullProbe nobody;
  const RunControl control;
  Emitter emitter(nobody, control);
  const auto add = [&](const Result<Live>& logits, const std::vector<std::int32_t>& targets) -> Status {
    if (!logits) return tl::unexpected(logits.error());
    inputs_.reset();
    const auto view = upload(targets);
    if (!view) return tl::unexpected(view.error());
    const auto rows = losses_of(logits->view, *view);
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
  auto pass = ForwardPass::create(config_, device_, *model_, 1, static_cast<std::int64_t>(longest));
  if (!pass) return tl::unexpected(pass.error());
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
  if (Status saved = optimizer_->save(state); !saved) return tl::unexpected(saved.error());
  return state;
}

Status ReferenceTrainer::restore(const TrainState& state) {
  if (Status restored = optimizer_->restore(state, state.step > 0 ? kPhases * state.step + 1 : 0); !restored) {
    return restored;
  }
  step_ = state.step;
  loss_scale_ = state.loss_scale;
  steady_steps_ = state.steady_steps;
  return {};
}

}  // namespace

Status check_trainable(const EngineConfig& config) {
  const ModelConfig& model = config.model;
  const auto refuse = [](std::string_view what) { return fail(fmt::format("{}: it cannot be trained", what)); };
  if (!model.recurrent_layers.empty()) return refuse("model.recurrent_layers has recurrent layers");
  if (model.experts > 0) return refuse(fmt::format("model.experts={} is a mixture of experts", model.experts));
  if (model.attention_sinks) return refuse("model.attention_sinks=true");
  if (config.ranks.count > 1) return refuse(fmt::format("engine.ranks={}", config.ranks.count));
  if (config.attention.mask != kernels::MaskMode::select) return fail("training needs attention.mask=select");
  if (config.attention.fused) return fail("training needs attention.fused=false");
  if (config.attention.causal == CausalMask::block) {
    return fail("training needs attention.causal=exact, off_by_one or none");
  }
  if (!config.kv.scheme.empty()) return refuse("kv.scheme=" + config.kv.scheme);
  if (quantizes_attention(config.scores)) return fail("training needs scores.format=f32 and scores.qk_format=f32");
  if (config.blocks.format != ActivationBlocks::none) {
    return refuse("activation.blocks=" + get_knob(config, "activation.blocks"));
  }
  if (model.positions > 0 && config.train.length > model.positions) {
    return fail(fmt::format("train.length={} is longer than the model's table of model.positions={}",
                            config.train.length, model.positions));
  }
  const AttentionBlocks& blocks = config.attention.blocks;
  if (blocks.any() && config.train.attention_blocks && config.train.length % blocks.tile != 0) {
    return fail(fmt::format("train.length={} is no multiple of attention.tile={}, which gradients on blocks need",
                            config.train.length, blocks.tile));
  }
  if (reads_exact_scores(blocks)) {
    return fail("training with attention.diagonal=exact needs attention.blocks_axis_k=channels");
  }
  if (config.train.blocks.empty()) return {};
  const BlockPreset* preset = find_block_preset(config.train.blocks);
  if (preset == nullptr || preset->format.block.rows != 1 || !kernels::rounds_elementwise(preset->format)) {
    return fail(fmt::format("train.blocks={} is no block format of one row that is rounded element by element",
                            config.train.blocks));
  }
  return {};
}

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
