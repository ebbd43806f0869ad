#include "instrument/train/forward_pass.h"

#include <algorithm>
#include <utility>

namespace nanscope::train {

Result<std::unique_ptr<ForwardPass>> ForwardPass::create(const EngineConfig& config, kernels::Device& device,
                                                         const LoadedModel& model, std::int64_t sequences,
                                                         std::int64_t length) {
  std::unique_ptr<ForwardPass> pass(new ForwardPass(config, device, model));
  KvConfig& kv = pass->config_.kv;
  pass->blocks_each_ = (length + kv.block_size - 1) / kv.block_size;
  kv.blocks = sequences * pass->blocks_each_;
  kv.table_blocks = 0;
  pass->plan_ = make_plan(pass->config_, &model);
  auto memory = device.allocate(KvPool::bytes_needed(pass->config_), true);
  if (!memory) return tl::unexpected(memory.error());
  auto pool = KvPool::create(pass->config_, device, std::move(*memory));
  if (!pool) return tl::unexpected(pool.error());
  pass->pool_.emplace(std::move(*pool));
  auto scales = ScaleBook::create(pass->config_, device);
  if (!scales) return tl::unexpected(scales.error());
  pass->scales_.emplace(std::move(*scales));
  if (quantizes_attention(config.scores)) {
    auto scores = ScoreBook::create(pass->config_, device, model, ScoreSteps::end_step);
    if (!scores) return tl::unexpected(scores.error());
    pass->scores_.emplace(std::move(*scores));
  }
  return pass;
}

std::vector<std::int32_t> ForwardPass::blocks_of(std::size_t sequence, std::int64_t context) const {
  std::vector<std::int32_t> blocks;
  const auto first = static_cast<std::int64_t>(sequence) * blocks_each_;
  for (std::int64_t i = 0; i * config_.kv.block_size < context; ++i) {
    blocks.push_back(static_cast<std::int32_t>(first + i));
  }
  return blocks;
}

/// A step's sequences give their blocks back when it ends: nothing is read of them later.
void ForwardPass::tell_blocks(const StepRow& row, KvAction action, Emitter& emitter) const {
  if (!emitter.listening()) return;
  const std::int64_t size = config_.kv.block_size;
  const std::vector<Span> spans = row.all_spans();
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (std::int64_t token = 0; token < spans[i].context && emitter.ok(); token += size) {
      KvRow kv;
      kv.step = row.id;
      kv.request = spans[i].request;
      kv.block = static_cast<std::int64_t>(i) * blocks_each_ + token / size;
      kv.slot_end = action == KvAction::written ? std::min(size, spans[i].context - token) : size;
      kv.first_token = token;
      kv.action = action;
      kv.writer = "attention";
      kv.format = config_.kv.format;
      emitter.check(emitter.probe().on_kv(kv));
    }
  }
}

Result<Live> ForwardPass::run(StepInput input, Emitter& emitter) {
  ForwardParts parts{config_, model_, plan_, device_, workspace_, *pool_, *scales_, emitter};
  parts.scores = scores();
  Forward pass(parts, input);
  pass.begin();
  for (std::size_t layer = 0; layer < plan_.layers.size() && emitter.ok(); ++layer) {
    for (const Branch which : {Branch::attention, Branch::mlp}) {
      pass.branch(layer, which);
      pass.add(layer, which);
    }
  }
  const Live logits = pass.finish_with_logits();
  if (!emitter.ok()) return tl::unexpected(emitter.status().error());
  return logits;
}

Result<Live> ForwardPass::run(const StepRow& row, const std::vector<std::int32_t>& tokens, Emitter& emitter) {
  StepInput input;
  input.row = row;
  input.tokens = tokens;
  const std::vector<Span> spans = row.all_spans();
  input.batched = spans.size() > 1;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    SpanInput span;
    span.span = spans[i];
    span.blocks = blocks_of(i, spans[i].context);
    input.spans.push_back(std::move(span));
  }
  tell_blocks(row, KvAction::allocated, emitter);
  auto logits = run(std::move(input), emitter);
  tell_blocks(row, KvAction::written, emitter);
  tell_blocks(row, KvAction::freed, emitter);
  return logits;
}

Result<Live> ForwardPass::run_next(std::int64_t first, std::int32_t token, Emitter& emitter) {
  StepInput input;
  input.row.kind = first == 0 ? StepKind::prefill : StepKind::decode;
  input.row.first_token = first;
  input.row.tokens = 1;
  input.row.context = first + 1;
  input.tokens = {token};
  SpanInput span;
  span.span = input.row.all_spans().front();
  span.blocks = blocks_of(0, first + 1);
  input.spans.push_back(std::move(span));
  return run(std::move(input), emitter);
}

}  // namespace nanscope::train
