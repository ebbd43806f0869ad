#include "instrument/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "instrument/engine/loaded_model.h"
#include "instrument/engine/scheme_book.h"
#include "instrument/engine/session.h"
#include "instrument/engine/weight_versions.h"
#include "instrument/engine/window_cache.h"

namespace nanscope {
namespace {

constexpr std::int64_t kProfileTokens = 256;  // of the pass whose workspace kv.memory=recycled inherits

class ReferenceEngine final : public Engine {
 public:
  ReferenceEngine(EngineParts parts, const RunLimits& limits)
      : parts_(std::move(parts)), limits_(limits), workspaces_(parts_.shards.size(), Workspace(*parts_.device)) {}

  Result<RunResult> run(std::span<const RequestSpec> requests, std::span<const Transient> transients, Probe& probe,
                        const RunControl& control) override;
  Result<std::unique_ptr<LiveRun>> begin(std::span<const Transient> transients, Probe& probe,
                                         const RunControl& control) override;
  Result<ExpectedOps> expected_ops(std::span<const RequestSpec> requests) const override;
  const EngineConfig& config() const override { return parts_.config; }

 private:
  friend class ReferenceRun;
  Result<std::vector<Prompt>> prompts(std::span<const RequestSpec> requests) const;
  /// Of all ranks.
  std::int64_t ops_per_step() const { return parts_.shards.front().plan.ops_per_step * parts_.config.ranks.count; }
  ExpectedOps count_ops(std::span<const RequestSpec> requests, std::span<const Prompt> prompts) const;

  Status check_cost(std::span<const RequestSpec> requests, std::span<const Prompt> prompts) const;
  Status check_transients(std::span<const Transient> transients) const;
  /// What would never happen is refused, too.
  Status check_steps(std::span<const Transient> transients, std::span<const RequestSpec> requests,
                     std::span<const Prompt> prompts) const;

  EngineParts parts_;
  RunLimits limits_;
  std::vector<Workspace> workspaces_;  ///< by rank
};

class ReferenceRun final : public LiveRun {
 public:
  /// `expected_ops` 0: not known.
  static Result<std::unique_ptr<ReferenceRun>> create(ReferenceEngine& engine, std::span<const Transient> transients,
                                                      Probe& probe, const RunControl& control,
                                                      std::int64_t expected_ops);
  Status accepts(const RequestSpec& request) const override;
  Result<std::vector<RequestRow>> run(std::span<const RequestSpec> requests) override;
  std::int64_t now() const override { return session_->now(); }
  Result<RunResult> finish() override;
  Status run(std::span<const RequestSpec> requests, std::span<const Prompt> prompts);

 private:
  ReferenceRun(const ReferenceEngine& engine, std::unique_ptr<Session> session)
      : engine_(engine), session_(std::move(session)) {}
  const ReferenceEngine& engine_;
  std::unique_ptr<Session> session_;
  RunResult result_;
};

Result<std::vector<Prompt>> ReferenceEngine::prompts(std::span<const RequestSpec> requests) const {
  std::vector<Prompt> all;
  for (const RequestSpec& request : requests) {
    Result<Prompt> prompt = make_prompt(request, parts_.config, *parts_.tokenizer);
    if (!prompt) return tl::unexpected(prompt.error());
    const KvConfig& kv = parts_.config.kv;
    const std::int64_t tokens = static_cast<std::int64_t>(prompt->tokens.size()) + request.max_tokens - 1;
    // Who is preempted in a batch has its answer so far computed again.
    const std::int64_t again = parts_.config.batch.requests > 1 ? request.max_tokens : 0;
    const std::int64_t blocks = most_blocks(parts_.config, std::ssize(prompt->tokens) + again, tokens) +
                                (parts_.config.model.recurrent_layers.empty() ? 0 : 1);
    if (kv.table_blocks > 0 && blocks > kv.table_blocks) {
      return fail(fmt::format("request '{}': {} tokens need {} KV blocks, kv.table_blocks is {}", request.name, tokens,
                              blocks, kv.table_blocks));
    }
    if (blocks > kv.blocks - (kv.table_blocks > 0 ? 1 : 0)) {
      return fail(fmt::format("request '{}': {} tokens need {} KV blocks, kv.blocks is {}", request.name, tokens,
                              blocks, kv.blocks));
    }
    const std::int64_t positions = parts_.config.model.positions;
    if (positions > 0 && tokens > positions) {
      return fail(
          fmt::format("request '{}': {} tokens, but the model has {} positions", request.name, tokens, positions));
    }
    for (const std::int32_t token : prompt->tokens) {
      if (token >= parts_.model->vocabulary) {
        return fail(fmt::format("request '{}': token {} is not in the model's vocabulary of {}", request.name, token,
                                parts_.model->vocabulary));
      }
    }
    all.push_back(std::move(*prompt));
  }
  return all;
}

ExpectedOps ReferenceEngine::count_ops(std::span<const RequestSpec> requests, std::span<const Prompt> prompts) const {
  ExpectedOps expected;
  expected.exact = end_tokens(parts_.config.model, *parts_.tokenizer).empty() &&
                   parts_.config.argmax_nan != kernels::ArgmaxNan::refuse;
  if (parts_.config.kv.warm_up) expected.count += ops_per_step();
  const bool dummies = parts_.config.dummy_batch != DummyBatch::none;
  const bool at_start = parts_.config.dummy_at == DummyAt::start;
  if (dummies && at_start) expected.count += ops_per_step();
  const BatchConfig& batch = parts_.config.batch;
  if (keeps_rows(parts_.config)) expected.exact = false;  // not every step has rows that leave a window
  if (batch.requests > 1) expected.exact = false;         // who shares a step, and who is computed twice, turns out
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::int64_t chunks = batch.chunk > 0 ? (std::ssize(prompts[i].tokens) + batch.chunk - 1) / batch.chunk : 1;
    expected.count += (requests[i].max_tokens + chunks - 1) * ops_per_step();
    if (dummies && !at_start) expected.count += (requests[i].max_tokens - 1) * ops_per_step();
    expected.count += std::ssize(prompts[i].images) * parts_.config.ranks.count;
  }
  return expected;
}

Result<ExpectedOps> ReferenceEngine::expected_ops(std::span<const RequestSpec> requests) const {
  const Result<std::vector<Prompt>> all = prompts(requests);
  if (!all) return tl::unexpected(all.error());
  return count_ops(requests, *all);
}

Status ReferenceEngine::check_cost(std::span<const RequestSpec> requests, std::span<const Prompt> prompts) const {
  std::vector<RequestSize> sizes;
  if (parts_.config.kv.warm_up || parts_.config.kv.memory == KvMemory::recycled) sizes.push_back({kProfileTokens, 1});
  for (std::size_t i = 0; i < requests.size(); ++i)
    sizes.push_back({static_cast<std::int64_t>(prompts[i].tokens.size()), requests[i].max_tokens});
  RunCost cost = cost_of_run(parts_.config, parts_.model->vocabulary, sizes, ops_per_step());
  if (parts_.config.batch.requests > 1) {
    RequestSize together;
    for (const RequestSize& size : sizes) {
      together.prompt += size.prompt;
      together.generated = std::max(together.generated, size.generated);
    }
    cost.bytes = cost_of_run(parts_.config, parts_.model->vocabulary, std::span(&together, 1), 0).bytes;
  }
  return within(cost, limits_);
}

Status ReferenceEngine::check_transients(std::span<const Transient> transients) const {
  if (transients.empty()) return {};
  if (Status fitting = check(transients, parts_.config); !fitting) return fitting;
  return check_names(transients, *parts_.model);
}

Status ReferenceEngine::check_steps(std::span<const Transient> transients, std::span<const RequestSpec> requests,
                                    std::span<const Prompt> prompts) const {
  const std::int64_t most = count_ops(requests, prompts).count / ops_per_step();
  for (std::size_t i = 0; i < transients.size(); ++i) {
    if (transients[i].step <= most) continue;
    return fail(fmt::format("transient {}: step {} never comes, the run has {} at most", i, transients[i].step, most));
  }
  return {};
}

Result<RunResult> ReferenceEngine::run(std::span<const RequestSpec> requests, std::span<const Transient> transients,
                                       Probe& probe, const RunControl& control) {
  const Result<std::vector<Prompt>> all = prompts(requests);
  if (!all) return tl::unexpected(all.error());
  if (Status affordable = check_cost(requests, *all); !affordable) return tl::unexpected(affordable.error());
  if (Status fitting = check_transients(transients); !fitting) return tl::unexpected(fitting.error());
  if (Status comes = check_steps(transients, requests, *all); !comes) return tl::unexpected(comes.error());
  const auto run = ReferenceRun::create(*this, transients, probe, control, count_ops(requests, *all).count);
  if (!run) return tl::unexpected(run.error());
  if (Status done = (*run)->run(requests, *all); !done) return tl::unexpected(done.error());
  return (*run)->finish();
}

Result<std::unique_ptr<LiveRun>> ReferenceEngine::begin(std::span<const Transient> transients, Probe& probe,
                                                        const RunControl& control) {
  if (Status fitting = check_transients(transients); !fitting) return tl::unexpected(fitting.error());
  return ReferenceRun::create(*this, transients, probe, control, 0);
}

Result<std::unique_ptr<ReferenceRun>> ReferenceRun::create(ReferenceEngine& engine,
                                                           std::span<const Transient> transients, Probe& probe,
                                                           const RunControl& control, std::int64_t expected_ops) {
  const EngineConfig& config = engine.parts_.config;
  Result<std::unique_ptr<Session>> session =
      Session::create(engine.parts_, engine.workspaces_, probe, control, expected_ops, transients);
  if (!session) return tl::unexpected(session.error());
  if (Status status = (*session)->tell_weights(); !status) return tl::unexpected(status.error());
  if (config.kv.warm_up) {
    if (Status status = (*session)->warm_up(); !status) return tl::unexpected(status.error());
  }
  if (config.dummy_batch != DummyBatch::none && config.dummy_at == DummyAt::start) {
    if (Status status = (*session)->dummy_batch(); !status) return tl::unexpected(status.error());
  }
  return std::unique_ptr<ReferenceRun>(new ReferenceRun(engine, std::move(*session)));
}

Status ReferenceRun::accepts(const RequestSpec& request) const {
  const Result<std::vector<Prompt>> prompt = engine_.prompts(std::span(&request, 1));
  if (!prompt) return tl::unexpected(prompt.error());
  return engine_.check_cost(std::span(&request, 1), *prompt);
}

Result<std::vector<RequestRow>> ReferenceRun::run(std::span<const RequestSpec> requests) {
  const Result<std::vector<Prompt>> all = engine_.prompts(requests);
  if (!all) return tl::unexpected(all.error());
  const auto before = result_.requests.size();
  if (Status done = run(requests, *all); !done) return tl::unexpected(done.error());
  return std::vector<RequestRow>(result_.requests.begin() + static_cast<std::ptrdiff_t>(before),
                                 result_.requests.end());
}

Status ReferenceRun::run(std::span<const RequestSpec> requests, std::span<const Prompt> prompts) {
  const EngineConfig& config = engine_.parts_.config;
  if (config.batch.requests > 1) {
    Result<std::vector<RequestRow>> rows = session_->run_batch(std::ssize(result_.requests), requests, prompts);
    if (!rows) return tl::unexpected(rows.error());
    std::move(rows->begin(), rows->end(), std::back_inserter(result_.requests));
    return {};
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::int64_t id = std::ssize(result_.requests);
    if (id > 0 && id == config.kv.sleep_after) {
      if (Status status = session_->sleep_and_wake(); !status) return status;
    }
    Result<RequestRow> row = session_->run(id, requests[i], prompts[i]);
    if (!row) return tl::unexpected(row.error());
    result_.requests.push_back(std::move(*row));
  }
  return {};
}

Result<RunResult> ReferenceRun::finish() {
  const LoadedModel& model = *engine_.parts_.model;
  if (model.checkpoint != nullptr) {
    if (Status same = model.checkpoint->check_unchanged(); !same) return tl::unexpected(same.error());
  }
  result_.ops = session_->ops();
  result_.tensors = session_->tensors();
  result_.steps = session_->steps();
  result_.kv_bytes = session_->kv_bytes();
  return std::move(result_);
}

/// Runs the largest batch that the pool holds, at most kProfileTokens, with `memory` as workspace.
Status run_profile_pass(const EngineParts& parts, const kernels::Buffer& memory) {
  EngineParts profile = parts;
  profile.config.kv.memory = KvMemory::zeroed;
  profile.config.kv.policy = "unit_scale";
  profile.config.kv.table_blocks = 0;
  profile.shards = make_shards(profile.config, profile.model);
  const KvConfig& kv = profile.config.kv;
  const std::int64_t state_blocks = parts.config.model.recurrent_layers.empty() ? 0 : 1;
  const std::int64_t tokens = std::min(kProfileTokens, (kv.blocks - state_blocks) * kv.block_size);
  Workspace workspace(*parts.device, memory);
  NullProbe nobody;
  const RunControl control;
  Result<std::unique_ptr<Session>> session = Session::create(profile, std::span(&workspace, 1), nobody, control, 0);
  if (!session) return tl::unexpected(session.error());
  const Result<RequestRow> row =
      (*session)->run(-1, {.name = "profile", .parts = {}, .max_tokens = 1}, warm_up_prompt(tokens));
  return row ? Status() : Status(tl::unexpected(row.error()));
}

/// Errors name the knobs that its size follows from.
Result<kernels::Buffer> allocate_pool(kernels::Device& device, const EngineConfig& config) {
  Result<kernels::Buffer> memory = device.allocate(KvPool::bytes_needed(config), true);
  if (memory) return memory;
  return fail(fmt::format("the cache of kv.blocks={} blocks of kv.block_size={} tokens does not fit: {}",
                          config.kv.blocks, config.kv.block_size, memory.error().message));
}

/// Weights of codes and scales have no tensor-core form.
Status check_weights_of(const EngineConfig& config, const LoadedModel& model) {
  if (config.kernel_form == KernelForm::exact) return {};
  const auto scaled = std::find_if(model.weights.begin(), model.weights.end(),
                                   [](const Weight& weight) { return weight.scaled.given(); });
  if (scaled == model.weights.end()) return {};
  return fail(
      fmt::format("engine.kernel_form=tensor_core reads weights of f32, f16 and bf16, and {} is of codes and "
                  "scales; engine.kernel_form must be exact",
                  scaled->name));
}

}  // namespace

Result<kernels::Buffer> make_kv_memory(const EngineParts& parts) {
  if (parts.config.kv.memory == KvMemory::recycled) return make_recycled_memory(parts);
  return allocate_pool(*parts.device, parts.shards.front().config);
}

Result<kernels::Buffer> make_recycled_memory(const EngineParts& parts) {
  Result<kernels::Buffer> memory = allocate_pool(*parts.device, parts.config);
  if (!memory) return memory;
  if (Status status = run_profile_pass(parts, *memory); !status) return tl::unexpected(status.error());
  return memory;
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config, kernels::Device& device,
                                               std::shared_ptr<const LoadedModel> model,
                                               std::shared_ptr<const Tokenizer> tokenizer, const RunLimits& limits) {
  if (Status status = check(config); !status) return tl::unexpected(status.error());
  if (model == nullptr || tokenizer == nullptr) return fail("the engine needs a loaded model and a tokenizer");
  if (!fits(*model, config)) return fail("the loaded model was made for other model.* knobs");
  if (model->device != &device.memory()) return fail("the loaded model is on another device");
  if (Status form = check_weights_of(config, *model); !form) return tl::unexpected(form.error());
  std::vector<Shard> shards = make_shards(config, model);
  EngineParts parts{config, &device, std::move(model), std::move(tokenizer), std::move(shards)};
  return std::make_unique<ReferenceEngine>(std::move(parts), limits);
}

Result<std::shared_ptr<const LoadedModel>> load_model(const EngineConfig& config, kernels::Device& device,
                                                      WeightSource& source, const Tokenizer& tokenizer,
                                                      std::stop_token stop) {
  const auto tokens = static_cast<std::int64_t>(tokenizer.vocab_size());
  const std::int64_t vocabulary = config.model.vocabulary > 0 ? config.model.vocabulary : tokens;
  return load_model(config, device, source, vocabulary, std::move(stop));
}

}  // namespace nanscope
