#include "scenarios/export_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/files/output_file.h"
#include "instrument/weights/safetensors.h"

namespace nanscope::scenarios {
namespace {

/// An op's output and what a hook calls it: below its layer, or of the whole model.
struct HookName {
  std::string_view op;
  std::string_view role;
  std::string_view name;
};

constexpr std::array kHookNames = {
    HookName{"patch_embed", "out", "visual.patch_embed.output"},
    HookName{"embed", "out", "model.embed_tokens.output"},
    HookName{"attn_norm", "out", "input_layernorm.output"},
    HookName{"q_proj", "out", "self_attn.q_proj.output"},
    HookName{"k_proj", "out", "self_attn.k_proj.output"},
    HookName{"v_proj", "out", "self_attn.v_proj.output"},
    HookName{"q_rope", "out", "self_attn.attn.q"},
    HookName{"k_rope", "out", "self_attn.attn.k"},
    HookName{"kv_store", "k_codes", "self_attn.attn.k_codes"},
    HookName{"kv_store", "v_codes", "self_attn.attn.v_codes"},
    HookName{"kv_read", "k_read", "self_attn.attn.k_read"},
    HookName{"kv_read", "v_read", "self_attn.attn.v_read"},
    HookName{"scores", "out", "self_attn.attn.scores"},
    HookName{"softmax", "probs", "self_attn.attn.probs"},
    HookName{"attn_mix", "out", "self_attn.attn.output"},
    HookName{"inner_norm", "out", "self_attn.inner_norm.output"},
    HookName{"o_proj", "out", "self_attn.o_proj.output"},
    HookName{"o_proj", "partial", "self_attn.o_proj.partial"},
    HookName{"o_proj_all_reduce", "out", "self_attn.o_proj.output"},
    HookName{"attn_residual", "out", "post_attention_layernorm.input"},
    HookName{"mlp_norm", "out", "post_attention_layernorm.output"},
    HookName{"gate_proj", "out", "mlp.gate_proj.output"},
    HookName{"up_proj", "out", "mlp.up_proj.output"},
    HookName{"mlp_act", "out", "mlp.act_fn.output"},
    HookName{"down_proj", "out", "mlp.down_proj.output"},
    HookName{"down_proj", "partial", "mlp.down_proj.partial"},
    HookName{"down_proj_all_reduce", "out", "mlp.down_proj.output"},
    HookName{"router", "out", "mlp.gate.output"},
    HookName{"route", "weights", "mlp.topk_weights"},
    HookName{"route", "ids", "mlp.topk_ids"},
    HookName{"expert_mix", "out", "mlp.output"},
    HookName{"mlp_all_reduce", "out", "mlp.output"},
    HookName{"mlp_residual", "out", "output"},
    HookName{"final_norm", "out", "model.norm.output"},
    HookName{"lm_head", "logits", "lm_head.output"},
    HookName{"argmax", "token", "next_token"},
};

/// "expert3_up_proj" as "mlp.experts.3.up_proj"; empty for what is no expert's op.
std::string expert_name(std::string_view op) {
  constexpr std::string_view kExpert = "expert";
  const std::size_t end = op.find('_');
  if (!op.starts_with(kExpert) || end == std::string_view::npos || end == kExpert.size()) return {};
  const std::string_view number = op.substr(kExpert.size(), end - kExpert.size());
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return {};
  const std::string_view part = op.substr(end + 1);
  return fmt::format("mlp.experts.{}.{}", number, part == "mlp_act" ? std::string_view("act_fn") : part);
}

/// Empty for what no hook sees: statistics within an op, and the blocks that products and attention quantise their
/// inputs to.
std::string hook_name(const OpRow& op, const TensorRow& tensor) {
  if (tensor.role == "stats" || op.kind == "block_quantise" || op.kind == "quantise_columns") return {};
  const auto known = std::find_if(kHookNames.begin(), kHookNames.end(),
                                  [&](const HookName& one) { return one.op == op.name && one.role == tensor.role; });
  const std::string expert = expert_name(op.name);
  const std::string name = !expert.empty()             ? fmt::format("{}.output", expert)
                           : known != kHookNames.end() ? std::string(known->name)
                           : tensor.role == "out"      ? op.name + ".output"
                                                       : op.name + '.' + tensor.role;
  return op.layer < 0 ? name : fmt::format("model.layers.{}.{}", op.layer, name);
}

/// Scores and probabilities as attention has them: heads, queries, keys.
bool heads_first(const TensorRow& tensor) { return tensor.role == "probs"; }

struct Held {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

Held hooked(std::string name, const OpRow& op, const TensorRow& tensor, TensorData data) {
  Held held{std::move(name), std::string(safetensors_dtype(tensor.format)), {}, {}};
  const bool by_head =
      (heads_first(tensor) || op.kind == "attention_scores") && tensor.heads > 0 && tensor.channels % tensor.heads == 0;
  if (!by_head) {
    held.shape = tensor.role == "token" ? std::vector{tensor.tokens * tensor.channels}
                                        : std::vector{tensor.tokens, tensor.channels};
    held.bytes = std::move(data.bytes);
    return held;
  }
  const std::int64_t width = tensor.channels / tensor.heads;
  const std::size_t run = static_cast<std::size_t>(width) * info(tensor.format).storage_bytes();
  held.shape = {tensor.heads, tensor.tokens, width};
  held.bytes.resize(data.bytes.size());
  for (std::int64_t token = 0; token < tensor.tokens; ++token) {
    for (std::int64_t head = 0; head < tensor.heads; ++head) {
      const auto from =
          data.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(token * tensor.heads + head) * run);
      const auto to = held.bytes.begin() +
                      static_cast<std::ptrdiff_t>(static_cast<std::size_t>(head * tensor.tokens + token) * run);
      std::copy_n(from, run, to);
    }
  }
  return held;
}

/// Adds it, or its rows to what has its name: a vision tower sees the images of a prompt as one batch.
void add(std::vector<Held>& all, Held held) {
  const auto known = std::find_if(all.begin(), all.end(), [&](const Held& one) { return one.name == held.name; });
  if (known == all.end() || known->shape.size() != 2 || held.shape.size() != 2 || known->shape[1] != held.shape[1]) {
    all.push_back(std::move(held));
    return;
  }
  known->shape[0] += held.shape[0];
  known->bytes.insert(known->bytes.end(), held.bytes.begin(), held.bytes.end());
}

/// The ledger's scales of a step, for caches that are stored in codes; casts within attention have theirs beside them.
Status add_scales(const Recording& recording, const StepRow& step, std::vector<Held>& out) {
  ScaleFilter filter;
  filter.step = step.id;
  const auto scales = recording.scales(filter);
  if (!scales) return tl::unexpected(scales.error());
  for (const ScaleRow& row : *scales) {
    const bool of_cache = row.target == "k" || row.target == "v";
    if (!of_cache || info(row.format).bits > 8 || std::isnan(row.scale)) continue;
    const auto scale = static_cast<float>(row.scale);
    const auto bytes = std::as_bytes(std::span(&scale, 1));
    out.push_back({fmt::format("model.layers.{}.self_attn.attn.{}_scale", row.layer, row.target),
                   "F32",
                   {1},
                   {bytes.begin(), bytes.end()}});
  }
  return {};
}

/// The scales that a block-scaled product read, which its module keeps beside its output.
Status add_input_scales(const Recording& recording, TensorSource& tensors, const OpRow& op, const std::string& output,
                        std::vector<Held>& out) {
  const auto inputs = recording.inputs_of(op.id);
  if (!inputs) return tl::unexpected(inputs.error());
  for (const InputRow& input : *inputs) {
    if (input.role != "scales") continue;
    auto data = tensors.fetch(input.tensor);
    if (!data) return fail(std::move(data.error()));
    const std::string module = output.substr(0, output.rfind('.'));
    out.push_back({module + ".input_scale",
                   std::string(safetensors_dtype(data->format)),
                   {data->tokens, data->channels},
                   std::move(data->bytes)});
  }
  return {};
}

/// The ids of a step's tokens. A step with padding, images or several requests has none.
Status add_token_ids(const Recording& recording, const StepRow& step, std::vector<Held>& out) {
  const std::vector<Span> spans = step.all_spans();
  if (spans.size() != 1 || spans.front().rows != step.tokens || spans.front().request < 0) return {};
  const auto tokens = recording.tokens(spans.front().request);
  if (!tokens) return tl::unexpected(tokens.error());
  std::vector<std::int32_t> ids;
  for (const TokenRow& token : *tokens) {
    const std::int64_t row = token.position - spans.front().first_token;
    if (row >= 0 && row < step.tokens && token.token >= 0) ids.push_back(token.token);
  }
  if (std::ssize(ids) != step.tokens) return {};
  const auto bytes = std::as_bytes(std::span(ids));
  out.push_back({"input_ids", "I32", {step.tokens}, {bytes.begin(), bytes.end()}});
  return {};
}

Result<std::vector<Held>> hooked_step(const Recording& recording, TensorSource& tensors, const StepRow& step) {
  std::vector<Held> out;
  OpFilter filter;
  filter.step = step.id;
  const auto ops = recording.ops(filter);
  if (!ops) return tl::unexpected(ops.error());
  for (const OpRow& op : *ops) {
    const auto rows = recording.tensors_of(op.id);
    if (!rows) return tl::unexpected(rows.error());
    for (const TensorRow& row : *rows) {
      std::string name = hook_name(op, row);
      if (name.empty()) continue;
      if (safetensors_dtype(row.format).empty())
        return fail(fmt::format("{}: safetensors has no dtype for {}", name, nanscope::name(row.format)));
      auto data = tensors.fetch(row.id);
      if (!data) return fail(std::move(data.error()));
      if (op.kind == "block_gemm") {
        if (Status scales = add_input_scales(recording, tensors, op, name, out); !scales) {
          return tl::unexpected(scales.error());
        }
      }
      add(out, hooked(std::move(name), op, row, std::move(*data)));
    }
  }
  if (Status scales = add_scales(recording, step, out); !scales) return tl::unexpected(scales.error());
  if (Status ids = add_token_ids(recording, step, out); !ids) return tl::unexpected(ids.error());
  return out;
}

Status write_step(OutputFolder& folder, const std::filesystem::path& place, const std::vector<Held>& held) {
  std::vector<SafetensorsInput> inputs;
  inputs.reserve(held.size());
  for (const Held& one : held) inputs.push_back({one.name, one.dtype, one.shape, one.bytes});
  const auto bytes = encode_safetensors(inputs);
  if (!bytes) return tl::unexpected(bytes.error());
  return folder.write(place / "tensors.safetensors", *bytes);
}

}  // namespace

Result<std::int64_t> export_dump(const Recording& recording, TensorSource& tensors, const std::filesystem::path& folder,
                                 const ExportOptions& options) {
  const auto steps = recording.steps();
  if (!steps) return tl::unexpected(steps.error());
  auto output = OutputFolder::create(folder, options.output);
  if (!output) return tl::unexpected(output.error());
  std::int64_t count = 0;
  const bool ranks = std::any_of(steps->begin(), steps->end(), [](const StepRow& step) { return step.rank != 0; });
  for (std::size_t i = 0; i < steps->size(); ++i) {
    const StepRow& step = (*steps)[i];
    if (options.stop.stop_requested()) return fail("stopped");
    if (options.progress) options.progress(static_cast<std::int64_t>(i), static_cast<std::int64_t>(steps->size()));
    const auto held = hooked_step(recording, tensors, step);
    if (!held) return tl::unexpected(held.error());
    const std::string who = step.request == kDummyRequest ? std::string("dummy_batch")
                            : step.request < 0            ? std::string("warm_up")
                                                          : fmt::format("request_{}", step.request);
    std::string place = fmt::format("{}/step_{}", who, step.index);
    if (ranks) place += fmt::format("/rank{}", step.rank);
    if (Status written = write_step(*output, place, *held); !written) return tl::unexpected(written.error());
    count += static_cast<std::int64_t>(held->size());
  }
  if (Status committed = output->commit(); !committed) return tl::unexpected(committed.error());
  return count;
}

}  // namespace nanscope::scenarios
