#include "instrument/engine/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "instrument/engine/weight_versions.h"

namespace nanscope {

Result<std::unique_ptr<Session>> Session::create(const EngineParts& parts, std::span<Workspace> workspaces,
                                                 Probe& probe, const RunControl& control, std::int64_t expected_ops,
                                                 std::span<const Transient> transients) {
  std::unique_ptr<Session> session(new Session(parts, probe, control, expected_ops));
  session->transients_ = transients;
  for (std::size_t rank = 0; rank < parts.shards.size(); ++rank) {
    const EngineConfig& config = parts.shards[rank].config;
    Result<kernels::Buffer> memory = make_kv_memory(parts);
    if (!memory) return tl::unexpected(memory.error());
    Result<KvPool> pool = KvPool::create(config, *parts.device, std::move(*memory));
    if (!pool) return tl::unexpected(pool.error());
    Result<ScaleBook> scales = ScaleBook::create(config, *parts.device);
    if (!scales) return tl::unexpected(scales.error());
    session->ranks_.push_back({&workspaces[rank], std::move(*pool), std::move(*scales), std::nullopt, std::nullopt,
                               HeldStep(*parts.device, session->emitter_.listening())});
    if (quantizes_attention(config.scores)) {
      Result<ScoreBook> scores = ScoreBook::create(config, *parts.device, *parts.shards[rank].model);
      if (!scores) return tl::unexpected(scores.error());
      session->ranks_.back().scores = std::move(*scores);
    }
    if (kv_schemes(config, 0)) session->ranks_.back().schemes.emplace(config, *parts.device);
  }
  return session;
}

Session::Session(const EngineParts& parts, Probe& probe, const RunControl& control, std::int64_t expected_ops)
    : parts_(parts),
      control_(control),
      expected_ops_(expected_ops),
      emitter_(probe, control),
      allocator_(parts.config.kv.blocks, parts.config.kv.reuse),
      end_tokens_(end_tokens(parts.config.model, *parts.tokenizer)),
      slot_format_(parts.config.kv.format) {
  if (parts.config.kv.table_blocks > 0) allocator_.share(kNullBlock);
  if (const auto schemes = kv_schemes(parts.config, parts.config.model.layers - 1)) slot_format_ = schemes->k.format;
  keeps_rows_ = keeps_rows(parts.config);
}

Status Session::tell_weights() {
  if (!emitter_.listening()) return {};
  for (const Weight& weight : parts_.model->weights) {
    if (Status status = tell_weight(weight); !status) return status;
  }
  return {};
}

Status Session::tell_weight(const Weight& weight) {
  const Result<DecodedWeight> decoded = decoded_weight(*parts_.model, weight, *parts_.device);
  if (!decoded) return tl::unexpected(decoded.error());
  return emitter_.probe().on_weight(weight_row(weight), decoded->view);
}

Status Session::make_transients() {
  const bool changes = std::any_of(transients_.begin(), transients_.end(),
                                   [&](const Transient& one) { return one.changes_weights_before(passes_); });
  RankState& state = ranks_.front();
  if (changes) {
    const LoadedModel& before = changed_model_ ? *changed_model_ : *parts_.model;
    Result<ModelVersion> version = remembered_version(*parts_.model, before, transients_, passes_, *parts_.device);
    if (!version) return tl::unexpected(version.error());
    changed_model_ = version->model;
    for (const Weight* weight : version->changed) {
      if (!emitter_.listening()) break;
      if (Status status = tell_weight(*weight); !status) return status;
    }
    if (state.scores) {
      if (Status status = state.scores->weights_changed(*changed_model_); !status) return status;
    }
  }
  for (const Transient& one : transients_) {
    if (one.kind == TransientKind::forget_scores && one.step == passes_ && state.scores) {
      state.scores->forget(one.start > 0 ? one.start : double{parts_.config.scores.start});
    }
  }
  return {};
}

Status Session::warm_up() {
  const Prompt prompt = warm_up_prompt(parts_.config.kv.block_size);
  Sequence sequence;
  sequence.row.id = kWarmUpRequest;
  sequence.row.name = "warm_up";
  sequence.row.prompt = prompt_to_json({});
  sequence.prompt = &prompt;
  const Result<RequestRow> row = generate(sequence, 1);
  return row ? Status() : Status(tl::unexpected(row.error()));
}

Status Session::sleep_and_wake() {
  const KvConfig& kv = parts_.config.kv;
  KvRow row;
  row.request = -1;
  row.slot_end = kv.block_size;
  row.action = KvAction::scrubbed;
  row.writer = "wake_up";
  row.format = slot_format_;
  for (row.block = 0; row.block < kv.blocks; ++row.block) {
    cache_.forget(row.block);
    for (RankState& rank : ranks_) {
      if (Status status = rank.pool.scrub(row.block); !status) return status;
    }
    tell_kv(row);
  }
  if (kv.wake == WakeScales::restored) return emitter_.status();
  const Result<kernels::Buffer> memory = make_recycled_memory(parts_);
  if (!memory) return tl::unexpected(memory.error());
  std::vector<float> scales(
      std::min(memory->bytes() / sizeof(float), 2 * static_cast<std::size_t>(parts_.config.model.layers)));
  if (Status status = parts_.device->download(std::as_writable_bytes(std::span(scales)), memory->data()); !status) {
    return status;
  }
  ranks_.front().scales.overwrite(scales);
  return emitter_.status();
}

Status Session::dummy_batch() {
  if (dummy_.steps == 0) {
    dummy_prompt_ = warm_up_prompt(1);
    dummy_prompt_.padding = 1;  // its own key included, nothing is visible
    dummy_.row.id = kDummyRequest;
    dummy_.row.name = "dummy_batch";
    dummy_.row.prompt = prompt_to_json({});
    dummy_.row.prompt_tokens = dummy_prompt_.tokens;
    dummy_.prompt = &dummy_prompt_;
    dummy_.blocks = {kNullBlock};
    dummy_.stores = parts_.config.dummy_batch == DummyBatch::slot_0;
    emitter_.check(emitter_.probe().on_request_begin(dummy_.row));
    tell_prompt(dummy_);
  }
  const StepKind kind = dummy_.steps == 0 ? StepKind::prefill : StepKind::decode;
  const Result<std::int32_t> token = step(dummy_, kind, dummy_prompt_.tokens, 0);
  if (!token) return tl::unexpected(token.error());
  if (dummy_.state_block >= 0) allocator_.give_back(std::span(&dummy_.state_block, 1));
  dummy_.state_block = -1;
  emitter_.check(emitter_.probe().on_request_end(dummy_.row));
  return emitter_.status();
}

Result<RequestRow> Session::run(std::int64_t id, const RequestSpec& spec, const Prompt& prompt) {
  Sequence sequence;
  sequence.row.id = id;
  sequence.row.name = spec.name;
  if (emitter_.listening()) sequence.row.prompt = prompt_to_json(spec.parts);
  sequence.prompt = &prompt;
  sequence.fresh = spec.fresh;
  Result<RequestRow> row = generate(sequence, spec.max_tokens);
  if (!row && row.error().message.find(spec.name) == std::string::npos && row.error().message != "stopped") {
    return fail(fmt::format("request '{}': {}", spec.name, row.error().message));
  }
  return row;
}

Result<RequestRow> Session::generate(Sequence& sequence, int max_tokens) {
  RequestRow& row = sequence.row;
  const Prompt& prompt = *sequence.prompt;
  sequence.keys = prompt.keys;
  row.prompt_tokens = prompt.tokens;
  if (caches_prefixes() && row.id >= 0 && !sequence.fresh) share_prefix(sequence);
  emitter_.check(emitter_.probe().on_request_begin(row));
  tell_prompt(sequence);
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.tokens.size());
  std::vector<std::int32_t> pending(prompt.tokens.begin() + row.cached_tokens, prompt.tokens.end());
  std::int64_t position = row.cached_tokens;
  for (int i = 0; i < max_tokens; ++i) {
    const Result<std::int32_t> token = step(sequence, i == 0 ? StepKind::prefill : StepKind::decode, pending, position);
    if (!token) return tl::unexpected(token.error());
    if (*token < 0) {
      row.output_text = "[refused: NaN in logits]";
      break;
    }
    position = prompt_tokens + i;
    row.output_tokens.push_back(*token);
    sequence.keys.push_back(static_cast<std::uint64_t>(*token));
    sequence.answer += parts_.tokenizer->token_text(*token);
    if (ends(*token)) break;
    pending = {*token};
  }
  row.output_text = text_of(row.output_tokens) + row.output_text;
  release(sequence);
  emitter_.check(emitter_.probe().on_request_end(row));
  if (!emitter_.ok()) return tl::unexpected(emitter_.status().error());
  return row;
}

bool Session::ends(std::int32_t token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

/// Without a tokenizer, the ids.
std::string Session::text_of(std::span<const std::int32_t> tokens) const {
  if (parts_.tokenizer->vocab_size() == 0) return fmt::format("{}", fmt::join(tokens, " "));
  return parts_.tokenizer->decode(tokens, true);
}

void Session::tell_prompt(const Sequence& sequence) {
  if (!emitter_.listening()) return;
  const std::vector<std::int32_t>& tokens = sequence.prompt->tokens;
  for (std::size_t i = 0; i < tokens.size() && emitter_.ok(); ++i) {
    TokenRow row;
    row.request = sequence.row.id;
    row.position = static_cast<std::int64_t>(i);
    row.token = tokens[i];
    row.source = tokens[i] < 0 ? TokenSource::image : TokenSource::prompt;
    const bool padding = row.position < sequence.prompt->padding;
    if (row.source == TokenSource::prompt && !padding) row.text = parts_.tokenizer->token_text(row.token);
    emitter_.check(emitter_.probe().on_token(row));
  }
}

/// By token, 1 where what the request has answered so far may go on with it; empty without a grammar.
std::vector<std::int32_t> Session::legal_tokens(const Sequence& sequence) const {
  const std::string_view grammar = parts_.config.grammar;
  if (grammar.empty()) return {};
  std::vector<std::int32_t> legal(static_cast<std::size_t>(parts_.model->vocabulary), 0);
  const std::string_view left = grammar.substr(std::min(grammar.size(), sequence.answer.size()));
  for (std::size_t token = 0; token < legal.size(); ++token) {
    const auto id = static_cast<std::int32_t>(token);
    const std::string_view text = parts_.tokenizer->token_text(id);
    const bool last = ends(id);
    if (left.empty() ? last && parts_.config.grammar_stop : !last && !text.empty() && left.starts_with(text)) {
      legal[token] = 1;
    }
  }
  return legal;
}

Result<std::int32_t> Session::step(Sequence& sequence, StepKind kind, std::span<const std::int32_t> tokens,
                                   std::int64_t first) {
  const EngineConfig& config = parts_.config;
  const bool padded = config.dummy_batch != DummyBatch::none && config.dummy_at == DummyAt::decode;
  if (padded && kind == StepKind::decode && sequence.row.id >= 0) {
    if (Status status = dummy_batch(); !status) return tl::unexpected(status.error());
  }
  const Part part{&sequence, kind, tokens, first};
  const Result<std::vector<std::int32_t>> chosen = step(std::span(&part, 1), false);
  if (!chosen) return tl::unexpected(chosen.error());
  return chosen->front();
}

StepRow Session::step_row(std::span<const Part> parts, bool batched) {
  StepRow row;
  row.id = step_id();
  std::vector<Span> spans;
  row.kind = StepKind::decode;
  for (const Part& part : parts) {
    Span span{part.sequence->row.id, part.sequence->steps++, row.tokens, std::ssize(part.tokens), part.first, 0};
    span.context = span.first_token + span.rows;
    row.tokens += span.rows;
    if (part.kind == StepKind::prefill) row.kind = StepKind::prefill;
    spans.push_back(span);
  }
  row.request = spans.front().request;
  row.index = spans.front().index;
  row.first_token = spans.front().first_token;
  row.context = spans.front().context;
  if (!batched) return row;
  const std::int64_t whole = std::max<std::int64_t>(1, parts_.config.batch.pad_to);
  row.tokens = (row.tokens + whole - 1) / whole * whole;
  row.spans = std::move(spans);
  return row;
}

/// Of a prompt's images those that the step has a token of; a chunk of a prompt may have none.
void Session::give_images(const Part& part, SpanInput& input) {
  const Prompt& prompt = *part.sequence->prompt;
  const auto end = std::min(part.first + std::ssize(part.tokens), std::ssize(prompt.patch_rows));
  const std::span<const std::int32_t> known = std::span(prompt.tokens);
  bool any = false;
  for (std::int64_t i = part.first; i < end; ++i) any = any || known[static_cast<std::size_t>(i)] < 0;
  const bool in_a_batch = !part.sequence->tokens.empty();
  if (in_a_batch && !any) return;
  input.images = prompt.images;
  if (part.first < end) input.patch_rows = std::span(prompt.patch_rows).subspan(static_cast<std::size_t>(part.first));
}

Result<SpanInput> Session::span_input(const Part& part, const Span& span) {
  Sequence& sequence = *part.sequence;
  SpanInput input;
  input.span = span;
  if (part.kind == StepKind::prefill) {
    const std::int64_t block_size = parts_.config.kv.block_size;
    for (std::size_t i = 0; sequence.tells_shared && i < sequence.blocks.size(); ++i) {
      tell_kv({0, span.request, -1, sequence.blocks[i], 0, block_size, static_cast<std::int64_t>(i) * block_size,
               span.request == kDummyRequest ? KvAction::allocated : KvAction::shared, std::string(writer(sequence)),
               slot_format_});
    }
    sequence.tells_shared = false;
    give_images(part, input);
  }
  if (Status status = take_blocks(sequence, span); !status) return tl::unexpected(status.error());
  input.blocks = block_table(sequence);
  input.state_block = state_block(sequence, part.kind);
  input.first_key = sequence.prompt->padding;
  input.legal = legal_tokens(sequence);
  input.stores = sequence.stores;
  return input;
}

Result<std::vector<std::int32_t>> Session::step(std::span<const Part> parts, bool batched) {
  ++passes_;
  if (Status made = make_transients(); !made) return tl::unexpected(made.error());
  in_pass_ = true;
  StepInput input;
  input.batched = batched;
  input.row = step_row(parts, batched);
  const StepRow& row = input.row;
  const std::vector<Span> spans = row.all_spans();
  emitter_.check(emitter_.probe().on_step_begin(row));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Result<SpanInput> span = span_input(parts[i], spans[i]);
    if (!span) return tl::unexpected(span.error());
    input.spans.push_back(std::move(*span));
    input.tokens.insert(input.tokens.end(), parts[i].tokens.begin(), parts[i].tokens.end());
  }
  input.tokens.resize(static_cast<std::size_t>(row.tokens), 0);
  if (parts_.config.kv.state_index == StateIndex::unit_stride) read_states_with_unit_stride(input.spans);
  std::vector<StepInput> inputs(ranks_.size(), input);
  for (std::int64_t rank = 1; rank < ranks(); ++rank) {
    inputs[static_cast<std::size_t>(rank)].row.id = step_id(rank);
    inputs[static_cast<std::size_t>(rank)].row.rank = rank;
  }
  std::vector<Emitter> emitters;
  for (std::size_t rank = 1; rank < ranks_.size(); ++rank) emitters.emplace_back(ranks_[rank].held, control_);
  Result<std::vector<std::int32_t>> tokens = forward(inputs, emitters);
  if (!tokens) return tokens;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Sequence& sequence = *parts[i].sequence;
    const Span& span = spans[i];
    tell_written(sequence, span, input.spans[i].state_block);
    if (caches_prefixes() && sequence.row.id >= 0) remember_full_blocks(sequence, span.context);
    // A part that ends before what is known of its sequence asks for no token.
    const bool wanted = !batched || span.context == std::ssize(sequence.tokens);
    if (wanted && (*tokens)[i] >= 0 && emitter_.listening()) {
      const std::string text(parts_.tokenizer->token_text((*tokens)[i]));
      emitter_.check(
          emitter_.probe().on_token({span.request, span.context, (*tokens)[i], text, TokenSource::generated}));
    }
  }
  end_step(inputs, emitters);
  if (control_.progress) control_.progress({row.request, row.id, emitter_.ops(), expected_ops_});
  if (!emitter_.ok()) return tl::unexpected(emitter_.status().error());
  return tokens;
}

/// Ranks run in turn up to where their parts are summed, and wait for each other there.
Result<std::vector<std::int32_t>> Session::forward(std::span<const StepInput> inputs, std::span<Emitter> others) {
  const std::int64_t rows = inputs.front().row.tokens;
  kernels::TensorView parts;
  if (ranks() > 1) {
    const Result<kernels::TensorView> memory = ranks_.front().workspace->matrix(
        Slot::parts, parts_.config.activation_format, ranks() * rows, parts_.config.model.width);
    if (!memory) return tl::unexpected(memory.error());
    parts = *memory;
  }
  std::vector<Forward> passes;
  passes.reserve(ranks_.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Shard& shard = parts_.shards[i];
    RankState& state = ranks_[i];
    const auto rank = static_cast<std::int64_t>(i);
    passes.emplace_back(
        ForwardParts{shard.config, changed_model_ ? *changed_model_ : *shard.model, shard.plan, *parts_.device,
                     *state.workspace, state.pool, state.scales, i == 0 ? emitter_ : others[i - 1], rank,
                     parts.given() ? slice(parts, rank * rows, rows) : parts, state.schemes ? &*state.schemes : nullptr,
                     state.scores ? &*state.scores : nullptr},
        inputs[i]);
  }
  for (Forward& pass : passes) pass.begin();
  const auto layers = static_cast<std::size_t>(parts_.config.model.layers);
  for (std::size_t layer = 0; layer < layers && emitter_.ok(); ++layer) {
    for (const Branch which : {Branch::attention, Branch::mlp}) {
      for (Forward& pass : passes) {
        if (parts_.config.kv.rank_scales == RankScales::rank_0 && &pass != passes.data())
          pass.read_with(passes.front().read_scales());
        pass.branch(layer, which);
      }
      for (Forward& pass : passes) {
        if (ranks() > 1) pass.reduce(layer, which, parts);
        pass.add(layer, which);
      }
    }
  }
  Result<std::vector<std::int32_t>> tokens = passes.front().finish();
  for (std::size_t i = 1; i < passes.size(); ++i) {
    if (const auto own = passes[i].finish(); !own && tokens) tokens = own;
  }
  return tokens;
}

/// Steps of all ranks are told one after another.
void Session::end_step(std::span<const StepInput> inputs, std::span<const Emitter> others) {
  in_pass_ = false;
  emitter_.check(emitter_.probe().on_step_end(inputs.front().row));
  for (std::size_t i = 0; i < others.size(); ++i) {
    const StepRow& row = inputs[i + 1].row;
    emitter_.check(emitter_.probe().on_step_begin(row));
    emitter_.check(ranks_[i + 1].held.tell(others[i], emitter_));
    emitter_.check(emitter_.probe().on_step_end(row));
  }
}

std::uint64_t Session::kv_bytes() const {
  std::uint64_t bytes = 0;
  for (const RankState& rank : ranks_) bytes += rank.pool.bytes();
  return bytes;
}

std::string_view Session::writer(const Sequence& sequence) const {
  if (sequence.row.id == kDummyRequest) return "dummy_batch";
  return sequence.row.id < 0 ? "warm_up" : "attention";
}

void Session::tell_kv(KvRow row) {
  if (!emitter_.listening()) return;
  for (std::int64_t rank = 0; rank < ranks() && emitter_.ok(); ++rank) {
    row.step = step_id(rank);
    const bool held = in_pass_ && rank > 0;
    emitter_.check(held ? ranks_[static_cast<std::size_t>(rank)].held.on_kv(row) : emitter_.probe().on_kv(row));
  }
}

}  // namespace nanscope
