#include "instrument/engine/knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/parse_json.h"
#include "core/text/edit_distance.h"
#include "instrument/engine/knob_entry.h"
#include "instrument/engine/knob_groups.h"
#include "instrument/engine/scale_policies.h"
#include "instrument/engine/scheme_book.h"
#include "instrument/files/near_names.h"

namespace nanscope::knob_entry {

using kernels::ArgmaxNan;
using kernels::MaskMode;
using kernels::NanRule;
using kernels::ScalePacking;
using kernels::ScaleUse;
using kernels::SumOrder;
using kernels::VarianceForm;

template <>
struct Texts<VarianceForm> {
  static constexpr std::array<std::string_view, 3> names{"one_pass", "two_pass", "welford"};
};
template <>
struct Texts<SumOrder> {
  static constexpr std::array<std::string_view, 3> names{"sequential", "warp", "pairwise"};
};
template <>
struct Texts<ScaleUse> {
  static constexpr std::array<std::string_view, 4> names{"once", "none", "twice", "inverse"};
};
template <>
struct Texts<BlockReuse> {
  static constexpr std::array<std::string_view, 2> names{"lifo", "fifo"};
};
template <>
struct Texts<KvTail> {
  static constexpr std::array<std::string_view, 2> names{"read", "skip"};
};
template <>
struct Texts<KvMemory> {
  static constexpr std::array<std::string_view, 2> names{"zeroed", "recycled"};
};
template <>
struct Texts<ResumeState> {
  static constexpr std::array<std::string_view, 3> names{"own", "warm_up", "always"};
};
template <>
struct Texts<WakeScales> {
  static constexpr std::array<std::string_view, 2> names{"restored", "stale"};
};
template <>
struct Texts<MaskMode> {
  static constexpr std::array<std::string_view, 3> names{"additive", "select", "multiply"};
};
template <>
struct Texts<NanRule> {
  static constexpr std::array<std::string_view, 2> names{"propagate", "ignore"};
};
template <>
struct Texts<WindowCache> {
  static constexpr std::array<std::string_view, 3> names{"all", "ring", "rolling"};
};
template <>
struct Texts<StateIndex> {
  static constexpr std::array<std::string_view, 3> names{"own", "minus_one", "unit_stride"};
};
template <>
struct Texts<CausalMask> {
  static constexpr std::array<std::string_view, 4> names{"exact", "off_by_one", "block", "none"};
};
template <>
struct Texts<Padding> {
  static constexpr std::array<std::string_view, 2> names{"none", "left"};
};
template <>
struct Texts<DummyBatch> {
  static constexpr std::array<std::string_view, 3> names{"none", "masked", "slot_0"};
};
template <>
struct Texts<DummyAt> {
  static constexpr std::array<std::string_view, 2> names{"start", "decode"};
};
template <>
struct Texts<PadRows> {
  static constexpr std::array<std::string_view, 2> names{"zero", "masked"};
};
template <>
struct Texts<Preempt> {
  static constexpr std::array<std::string_view, 2> names{"recompute", "stale"};
};
template <>
struct Texts<EmptyRow> {
  static constexpr std::array<std::string_view, 2> names{"keep", "mask"};
};
template <>
struct Texts<ActivationBlocks> {
  static constexpr std::array<std::string_view, 5> names{"none", "mxfp8", "mxfp4", "nvfp4", "fp8"};
};
template <>
struct Texts<BlockOps> {
  static constexpr std::array<std::string_view, 2> names{"mlp", "linears"};
};
template <>
struct Texts<TensorScales> {
  static constexpr std::array<std::string_view, 2> names{"config", "checkpoint"};
};
template <>
struct Texts<ScalePacking> {
  static constexpr std::array<std::string_view, 2> names{"rounded", "unmasked"};
};
template <>
struct Texts<ScaleMemory> {
  static constexpr std::array<std::string_view, 2> names{"zeroed", "recycled"};
};
template <>
struct Texts<ScaleReads> {
  static constexpr std::array<std::string_view, 2> names{"used", "tile"};
};
template <>
struct Texts<KernelForm> {
  static constexpr std::array<std::string_view, 2> names{"exact", "tensor_core"};
};
template <>
struct Texts<ArgmaxNan> {
  static constexpr std::array<std::string_view, 3> names{"first_greater", "propagate", "refuse"};
};

}  // namespace nanscope::knob_entry

namespace nanscope {
namespace {

using knob_entry::kBool;
using knob_entry::kCount;
using knob_entry::knob;

constexpr const char* kMaybeBool = "|false|true";

std::vector<Knob> norm_knobs() {
  return {
      knob(
          "norm.variance", "one_pass|two_pass|welford", "how the variance is computed",
          [](auto& c) -> auto& { return c.norm.variance; }),
      knob(
          "norm.order", "sequential|warp|pairwise", "order of the sums over a row",
          [](auto& c) -> auto& { return c.norm.order; }),
      knob(
          "norm.contract", kBool, "E[x^2]-E[x]^2 is one fma, as nvcc fuses it",
          [](auto& c) -> auto& { return c.norm.contract; }),
      knob(
          "norm.clamp", kBool, "a negative variance becomes 0", [](auto& c) -> auto& { return c.norm.clamp; }),
      knob(
          "norm.mean_by_reciprocal", kBool, "means are sum*(1/n) instead of sum/n",
          [](auto& c) -> auto& { return c.norm.mean_by_reciprocal; }),
      knob(
          "norm.eps", "number", "added to the variance", [](auto& c) -> auto& { return c.norm.eps; }),
      knob(
          "inner_norm.variance", "|one_pass|two_pass|welford", "as norm.variance, for the inner norm",
          [](auto& c) -> auto& { return c.inner_norm.variance; }),
      knob(
          "inner_norm.order", "|sequential|warp|pairwise", "as norm.order, for the inner norm",
          [](auto& c) -> auto& { return c.inner_norm.order; }),
      knob(
          "inner_norm.contract", kMaybeBool, "as norm.contract, for the inner norm",
          [](auto& c) -> auto& { return c.inner_norm.contract; }),
      knob(
          "inner_norm.clamp", kMaybeBool, "as norm.clamp, for the inner norm",
          [](auto& c) -> auto& { return c.inner_norm.clamp; }),
      knob(
          "inner_norm.mean_by_reciprocal", kMaybeBool, "as norm.mean_by_reciprocal, for the inner norm",
          [](auto& c) -> auto& { return c.inner_norm.mean_by_reciprocal; }),
      knob(
          "inner_norm.eps", "number", "as norm.eps, for the inner norm; empty follows it",
          [](auto& c) -> auto& { return c.inner_norm.eps; }),
  };
}

std::vector<Knob> kv_format_knobs() {
  return {
      knob(
          "kv.format", "f32|bf16|f16|e4m3|e5m2|e4m3fnuz|e5m2fnuz|int8", "format of the KV cache",
          [](auto& c) -> auto& { return c.kv.format; }),
      knob(
          "kv.policy", scale_policy_names(), "who computes a KV scale, from what, for how long",
          [](auto& c) -> auto& { return c.kv.policy; }),
      knob(
          "kv.scale_k", "number", "K's scale under kv.policy=static", [](auto& c) -> auto& { return c.kv.scale_k; }),
      knob(
          "kv.scheme", '|' + kv_policy_names(),
          "how K and V are kept, whole, as docs/kv-policies.md lists it; empty: as kv.format and kv.policy say",
          [](auto& c) -> auto& { return c.kv.scheme; }),
      knob(
          "kv.scheme_k", "text", "how K is kept, such as int8,axis=token; empty: as kv.scheme has it",
          [](auto& c) -> auto& { return c.kv.scheme_k; }),
      knob(
          "kv.scheme_v", "text", "how V is kept; empty: as kv.scheme has it",
          [](auto& c) -> auto& { return c.kv.scheme_v; }),
      knob(
          "kv.scale_v", "number", "V's scale under kv.policy=static", [](auto& c) -> auto& { return c.kv.scale_v; }),
      knob(
          "kv.divisor_k", "number", "calibrated K scale = absmax / this",
          [](auto& c) -> auto& { return c.kv.divisor_k; }),
      knob(
          "kv.divisor_v", "number", "calibrated V scale = absmax / this",
          [](auto& c) -> auto& { return c.kv.divisor_v; }),
      knob(
          "kv.history", "1..4096", "steps whose absmax kv.policy=delayed remembers",
          [](auto& c) -> auto& { return c.kv.history; }),
      knob(
          "kv.overflow", "saturate|overflow", "what the cast to the cache does beyond the largest finite value",
          [](auto& c) -> auto& { return c.kv.overflow; }),
      knob(
          "kv.clamp_nan", "propagate|ignore",
          "what the clamp before the cast does with NaN: keeps it, or makes +max of it, as fmax(-max, fmin(x, max)) "
          "does",
          [](auto& c) -> auto& { return c.kv.clamp_nan; }),
      knob(
          "kv.read_scale", "once|none|twice|inverse",
          "how attention applies the scale to the codes that it reads: none drops it (vllm PR #42580, sglang PR "
          "#28144), twice folds it in once more (vllm #39407), inverse divides by it (sglang #23687)",
          [](auto& c) -> auto& { return c.kv.read_scale; }),
      knob(
          "kv.read_format", "|e4m3|e5m2|e4m3fnuz|e5m2fnuz",
          "flavour of fp8 that attention takes the codes for, as where nodes of CUDA and ROCm share a cache; empty: "
          "kv.format",
          [](auto& c) -> auto& { return c.kv.read_format; }),
  };
}

std::vector<Knob> kv_memory_knobs() {
  return {
      knob(
          "kv.block_size", "1..4096", "tokens of a KV block", [](auto& c) -> auto& { return c.kv.block_size; }),
      knob(
          "kv.blocks", kCount, "blocks of the KV pool", [](auto& c) -> auto& { return c.kv.blocks; }),
      knob(
          "kv.reuse", "lifo|fifo", "which freed block is handed out next", [](auto& c) -> auto& { return c.kv.reuse; }),
      knob(
          "kv.scrub", kBool, "blocks are zeroed when they are handed out", [](auto& c) -> auto& { return c.kv.scrub; }),
      knob(
          "kv.prefix_cache", kBool, "full blocks are shared by prompts that begin alike",
          [](auto& c) -> auto& { return c.kv.prefix_cache; }),
      knob(
          "kv.tail", "read|skip", "attention reads the last block whole, or only the written slots",
          [](auto& c) -> auto& { return c.kv.tail; }),
      knob(
          "kv.memory", "zeroed|recycled", "the pool's memory at the start: zeroed, or a warm-up pass's workspace",
          [](auto& c) -> auto& { return c.kv.memory; }),
      knob(
          "kv.warm_up", kBool, "a warm-up request of zero tokens runs before the others",
          [](auto& c) -> auto& { return c.kv.warm_up; }),
      knob(
          "kv.resume_state", "own|warm_up|always",
          "when a recurrent layer starts from what its state block holds, not at zero: once the request has written "
          "it; in a warm-up from the start (vllm #37554); always from the start, as where nothing resets it",
          [](auto& c) -> auto& { return c.kv.resume_state; }),
      knob(
          "kv.sleep_after", "0..1048576",
          "requests after which the server sleeps, its cache and scales freed, and wakes up; 0: never",
          [](auto& c) -> auto& { return c.kv.sleep_after; }),
      knob(
          "kv.wake", "restored|stale",
          "the scales that the server kept, after it woke up: restored, or what was last written into their memory, a "
          "profiling pass's slot numbers (vllm #25800)",
          [](auto& c) -> auto& { return c.kv.wake; }),
      knob(
          "kv.table_blocks", "0..4096",
          "block tables are filled up to this many entries with block 0, which no request gets, as captured graphs "
          "need them; 0: no null block",
          [](auto& c) -> auto& { return c.kv.table_blocks; }),
      knob(
          "kv.window_cache", "all|ring|rolling",
          "positions that have left the window of every layer: they stay, are overwritten in a ring of blocks, or "
          "their "
          "blocks are given back",
          [](auto& c) -> auto& { return c.kv.window_cache; }),
      knob(
          "kv.state_index", "own|minus_one|unit_stride",
          "block of the recurrent states: the request's; in a decode step the one before it in the pool; or of a "
          "batch's row i entry i of the table of all requests' blocks, a column that is read with unit stride (vllm "
          "#55357)",
          [](auto& c) -> auto& { return c.kv.state_index; }),
  };
}

std::vector<Knob> block_knobs() {
  return {
      knob(
          "activation.blocks", "none|mxfp8|mxfp4|nvfp4|fp8",
          "block-scaled format of what the MLP's products read, or e4m3 under one scale; e8m0 scales are rounded up, "
          "as "
          "serving kernels do",
          [](auto& c) -> auto& { return c.blocks.format; }),
      knob(
          "activation.block_preset", "name",
          "the block format itself, by a name of `nanscope bits --block list`, for the one that activation.blocks "
          "means: mxfp8 is OCP's floor, mxfp8-torchao-even ...; empty: that one",
          [](auto& c) -> auto& { return c.blocks.preset; }),
      knob(
          "activation.block_ops", "mlp|linears",
          "whose inputs are block-scaled: the MLP's products, or those of the attention's projections as well",
          [](auto& c) -> auto& { return c.blocks.ops; }),
      knob(
          "activation.tensor_scale", "number", "the scale above those of the blocks, of nvfp4, or the one of fp8",
          [](auto& c) -> auto& { return c.blocks.tensor_scale; }),
      knob(
          "activation.tensor_scales", "config|checkpoint",
          "where that comes from: activation.tensor_scale, or for each product the checkpoint (input_scale, "
          "input_global_scale); a product that has none there reads its inputs as they are",
          [](auto& c) -> auto& { return c.blocks.tensor_scales; }),
      knob(
          "activation.scale_overflow", "saturate|overflow",
          "what the cast of a block's scale does beyond the largest finite value (sglang PR #22927)",
          [](auto& c) -> auto& { return c.blocks.overflow; }),
      knob(
          "activation.scale_packing", "rounded|unmasked",
          "how scales become e8m0: rounded up, or in steps of one token packed with their mantissas (sglang PR #25733)",
          [](auto& c) -> auto& { return c.blocks.packing; }),
      knob(
          "activation.scale_memory", "zeroed|recycled",
          "padding of the table of scales: zeroed, or as a tensor of the same layer left that memory (vllm PR #38148)",
          [](auto& c) -> auto& { return c.blocks.memory; }),
      knob(
          "activation.scale_reads", "used|tile",
          "scales that a product of at most 32 tokens reads: those of its blocks, or whole tiles of 4",
          [](auto& c) -> auto& { return c.blocks.reads; }),
  };
}

std::vector<Knob> engine_knobs() {
  return {
      knob(
          "activation.format", "f32|f16|bf16", "format of every activation that an op stores",
          [](auto& c) -> auto& { return c.activation_format; }),
      knob(
          "activation.partial_sums", "f32|f16",
          "format of a product's sums over 32 inputs each: one f32 chain, or halves that f32 adds up",
          [](auto& c) -> auto& { return c.partial_sums; }),
      knob(
          "attention.mask", "select|additive|multiply", "how masked scores are kept out of the softmax",
          [](auto& c) -> auto& { return c.attention.mask; }),
      knob(
          "attention.causal", "exact|off_by_one|block|none",
          "last key that a token may see: its own, the next one (a mask from diagonal 2 on), the last of its own block "
          "of attention.tile keys (a mask that knows blocks alone, tt-metal #48700), or any (the mask is dropped)",
          [](auto& c) -> auto& { return c.attention.causal; }),
      knob(
          "attention.max_nan", "propagate|ignore", "what the softmax's maximum does with NaN",
          [](auto& c) -> auto& { return c.attention.max_nan; }),
      knob(
          "attention.zero_guard", kBool,
          "a softmax row whose sum is not above 0 becomes zeros, also when the sum is NaN",
          [](auto& c) -> auto& { return c.attention.zero_guard; }),
      knob(
          "attention.fused", kBool,
          "attention reads codes and scales of the cache itself, as servers' kernels do: the same bits with less "
          "memory "
          "traffic; what is recorded as read by kv_read is made for the recording alone",
          [](auto& c) -> auto& { return c.attention.fused; }),
      knob(
          "attention.split", "0..1048576",
          "keys of a block whose softmax statistics and mix are a GPU warp's own, put together block by block in their "
          "order, as flash-decoding does: another order of sums, for long contexts; a multiple of 32, 0: none",
          [](auto& c) -> auto& { return c.attention.split; }),
      knob(
          "engine.pad", "none|left", "prompts are padded on the left to whole KV blocks",
          [](auto& c) -> auto& { return c.pad; }),
      knob(
          "engine.dummy_batch", "none|masked|slot_0",
          "a token without a context runs that no request asked for: its key and value go nowhere, or into slot 0 "
          "because "
          "its slot mapping was left at 0",
          [](auto& c) -> auto& { return c.dummy_batch; }),
      knob(
          "engine.dummy_at", "start|decode",
          "when it runs: before the requests, as graph capture and idle ranks have it, or beside every decoded "
          "token, as a row that pads a graph's batch",
          [](auto& c) -> auto& { return c.dummy_at; }),
      knob(
          "engine.grammar", "text", "every answer must spell this text; empty: answers are free",
          [](auto& c) -> auto& { return c.grammar; }),
      knob(
          "engine.grammar_stop", kBool, "the end token is legal once the grammar's text is spelled",
          [](auto& c) -> auto& { return c.grammar_stop; }),
      knob(
          "engine.grammar_empty", "keep|mask",
          "logits for which the grammar allows no token: kept as they are, or all masked to -Inf like any other",
          [](auto& c) -> auto& { return c.grammar_empty; }),
      knob(
          "engine.argmax_nan", "first_greater|propagate|refuse", "what argmax does with NaN logits",
          [](auto& c) -> auto& { return c.argmax_nan; }),
      knob(
          "engine.kernel_form", "exact|tensor_core",
          "what makes the products of linear layers and of the head: one f32 fma after another, the same bits "
          "everywhere, or tensor cores, whose bits are the hardware's own and on a CPU those of a model of them "
          "(docs/tensor-cores.md)",
          [](auto& c) -> auto& { return c.kernel_form; }),
      knob(
          "engine.device", "text", "cpu, cpu:baseline, cpu:avx2, cpu:avx512, cuda, cuda:N, cuda:nograph",
          [](auto& c) -> auto& { return c.device; }, false),
      knob(
          "engine.threads", "0..1024", "threads of the CPU device; 0: one a core",
          [](auto& c) -> auto& { return c.threads; }, false),
  };
}

std::vector<Knob> batch_knobs() {
  return {
      knob(
          "engine.batch", "1..4096", "requests that a step works on at most; 1: they run one after another",
          [](auto& c) -> auto& { return c.batch.requests; }),
      knob(
          "engine.chunk", "0..1048576", "tokens of a prompt that a step of a batch works on at most; 0: all",
          [](auto& c) -> auto& { return c.batch.chunk; }),
      knob(
          "engine.pad_to", "0..4096",
          "rows of a batch's step are padded to a multiple of this, as captured graphs need it; 0: not at all",
          [](auto& c) -> auto& { return c.batch.pad_to; }),
      knob(
          "engine.pad_rows", "zero|masked",
          "attention of padding rows, which have no key: zeros, or a softmax over nothing, which is NaN",
          [](auto& c) -> auto& { return c.batch.pad_rows; }),
      knob(
          "engine.preempt", "recompute|stale",
          "a request of a batch that lost its blocks to others: computed again, or resumed on new blocks as if they "
          "held what the old ones did",
          [](auto& c) -> auto& { return c.batch.preempt; }),
      knob(
          "sampling.temperature", "number", "of the distribution that tokens are drawn from; 0: the largest logit",
          [](auto& c) -> auto& { return c.sampling.temperature; }),
      knob(
          "sampling.seed", "0..9007199254740991",
          "of the draws, which depend on it, the request and the position alone",
          [](auto& c) -> auto& { return c.sampling.seed; }),
  };
}

std::vector<Knob> all_knobs() {
  std::vector<Knob> all;
  for (std::vector<Knob> group :
       {model_knobs(), rope_knobs(), moe_knobs(), norm_knobs(), kv_format_knobs(), kv_memory_knobs(), block_knobs(),
        engine_knobs(), batch_knobs(), rank_knobs(), score_knobs(), attention_block_knobs(), train_knobs()}) {
    std::move(group.begin(), group.end(), std::back_inserter(all));
  }
  return all;
}

/// Knobs whose name ends like the unknown one, or all groups: what the user may have meant.
std::string suggestion(std::string_view unknown) {
  const std::size_t dot = unknown.find('.');
  std::vector<std::string_view> near;
  for (const Knob& knob : knobs()) {
    const std::string_view group = std::string_view(knob.name).substr(0, knob.name.find('.'));
    if (unknown.substr(0, dot) == group) near.emplace_back(knob.name);
  }
  if (near.empty())
    return "its groups are model, rope, moe, norm, inner_norm, kv, activation, attention, scores, engine, allreduce, "
           "sampling";
  return fmt::format("there are {}", fmt::join(near, ", "));
}

std::vector<std::string> listed_values(std::string_view allowed) {
  std::vector<std::string> values;
  while (allowed.find('|') != std::string_view::npos || !values.empty()) {
    const std::size_t end = allowed.find('|');
    if (end != 0 && !allowed.empty()) values.emplace_back(allowed.substr(0, end));
    if (end == std::string_view::npos) break;
    allowed.remove_prefix(end + 1);
  }
  return values;
}

/// "; did you mean 'e4m3'?" of fp8: the field has many names for a format, and people for a yes.
std::string meant(std::string_view typed, const Knob& knob) {
  const std::vector<std::string> values = listed_values(knob.allowed);
  const std::string lower = lower_case(typed);
  std::string wanted = lower;
  if (const auto format = format_from_name(typed)) wanted = name(*format);
  for (const std::string_view yes : {"yes", "on", "1", "y", "t"}) wanted = lower == yes ? "true" : wanted;
  for (const std::string_view no : {"no", "off", "0", "n", "f"}) wanted = lower == no ? "false" : wanted;
  const bool there = std::find(values.begin(), values.end(), wanted) != values.end();
  const std::string* near = there ? &wanted : nearest(typed, values);
  return near != nullptr ? fmt::format("; did you mean '{}'?", *near) : "";
}

}  // namespace

std::span<const Knob> knobs() {
  static const std::vector<Knob> all = all_knobs();
  return all;
}

const Knob* find_knob(std::string_view name) {
  const auto all = knobs();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Knob& knob) { return knob.name == name; });
  return found == all.end() ? nullptr : &*found;
}

namespace {

/// Values of recordings and scenarios that were written under another name.
struct FormerValue {
  std::string_view knob;
  std::string_view was;
  std::string_view is;
};
constexpr FormerValue kFormerValues[] = {{"kv.policy", "auto", "unit_scale"}};

std::string_view present_value(std::string_view knob, std::string_view value) {
  for (const FormerValue& one : kFormerValues) {
    if (one.knob == knob && one.was == value) return one.is;
  }
  return value;
}

}  // namespace

Status set_knob(EngineConfig& config, std::string_view name, std::string_view value) {
  value = present_value(name, value);
  const Knob* knob = find_knob(name);
  if (knob == nullptr) return fail(fmt::format("no knob '{}'; {}", name, suggestion(name)));
  if (!knob->set(config, value, knob->allowed)) {
    return fail(fmt::format("{}='{}' is refused; allowed: {}{}", name, value, knob->allowed, meant(value, *knob)));
  }
  return {};
}

std::string get_knob(const EngineConfig& config, std::string_view name) {
  const Knob* knob = find_knob(name);
  return knob == nullptr ? std::string() : knob->get(config);
}

std::string config_to_json(const EngineConfig& config) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Knob& knob : knobs()) {
    const std::string text = knob.get(config);
    const bool plain =
        knob.allowed == kBool || knob.allowed == "number" || knob.allowed.find("..") != std::string::npos;
    const auto value = plain ? parse_json_or_none<nlohmann::ordered_json>(text) : nlohmann::ordered_json(text);
    json[knob.name] = value.is_discarded() ? nlohmann::ordered_json(text) : value;
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<EngineConfig> config_from_json(std::string_view text) {
  const auto json = parse_json_or_none(text);
  if (!json.is_object()) return fail("configuration: expected a JSON object of knobs");
  EngineConfig config;
  for (const auto& [name, value] : json.items()) {
    if (value.is_structured() || value.is_null())
      return fail(fmt::format("configuration: '{}' is no plain value", name));
    const std::string plain = value.is_string() ? value.get<std::string>() : value.dump();
    if (Status status = set_knob(config, name, plain); !status) return tl::unexpected(status.error());
  }
  return config;
}

}  // namespace nanscope
