#include "instrument/quantize/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/blocks/block_codec.h"
#include "core/text/safe_text.h"
#include "instrument/files/regex.h"
#include "instrument/quantized/module_kinds.h"

namespace nanscope {
namespace {

constexpr RegexLimits kLimits{.pattern_bytes = 4096, .steps = 1'000'000, .heap_kib = 1024};
constexpr std::string_view kWeight = ".weight";

bool is_float(const SafetensorsEntry& entry) {
  return entry.format == Format::f32 || entry.format == Format::bf16 || entry.format == Format::f16;
}

Result<bool> is_ignored(const std::vector<Regex>& ignore, std::string_view module) {
  for (const Regex& one : ignore) {
    Regex::Matcher matcher(one);
    const auto found = matcher.find(module, 0, true);
    if (!found) return tl::unexpected(found.error());
    if (*found) return true;
  }
  return false;
}

/// Why a weight cannot be stored so; empty where it can.
std::string misfit(const QuantizeTarget& target, std::string_view leaf, std::int64_t rows, std::int64_t columns) {
  if (target.whole) return {};
  const std::int64_t high = target.format.block.rows;
  const std::int64_t wide = target.format.block.columns;
  if (columns % wide != 0 && target.layout != "transformers" && target.layout != "vllm") {
    return fmt::format("{} columns are no multiple of the block's {}", columns, wide);
  }
  if (high == 1) return {};
  if (target.layout == "transformers") {
    // It takes rows over scale rows for the height of a block.
    for (const auto& [size, block] : {std::pair{rows, high}, std::pair{columns, wide}}) {
      const std::int64_t count = (size + block - 1) / block;
      if (count > 1 && size % block != 0) {
        return fmt::format(
            "{} rows or columns are no multiple of the block's {}: transformers would take blocks of another "
            "size",
            size, block);
      }
    }
  }
  const auto parts = fused_parts(leaf);
  if (!parts.empty() && leaf != parts.back() && rows % high != 0) {
    return fmt::format("{} rows are no multiple of the block's {}, and servers run it as part of one weight", rows,
                       high);
  }
  return {};
}

Result<std::vector<Regex>> compile(const std::vector<std::string>& expressions) {
  std::vector<Regex> all;
  for (const std::string& one : expressions) {
    auto regex = Regex::compile(one, RegexSyntax::ascii, kLimits);
    if (!regex) return fail(fmt::format("--ignore '{}': {}", one_line(one), regex.error().message));
    all.push_back(std::move(*regex));
  }
  return all;
}

/// Which of its neighbours shares a weight's scale of the whole.
void share(QuantizePlan& plan) {
  for (auto& [name, weight] : plan.weights) {
    const std::string_view module = weight.module;
    const std::size_t dot = module.rfind('.') + 1;
    for (const std::string_view part : fused_parts(module.substr(dot))) {
      const std::string other = std::string(module.substr(0, dot)) + std::string(part) + std::string(kWeight);
      if (plan.weights.contains(other)) weight.shared.push_back(other);
    }
    if (weight.shared.empty()) weight.shared.push_back(name);
  }
}

}  // namespace

Result<QuantizePlan> plan_quantization(const CheckpointFiles& files, const QuantizeOptions& options) {
  const auto ignore = compile(options.ignore);
  if (!ignore) return tl::unexpected(ignore.error());
  QuantizePlan plan;
  std::size_t refused = 0;
  std::string first;
  for (const auto& [name, tensor] : files.tensors()) {
    if (!name.ends_with(kWeight) || tensor.entry->shape.size() != 2 || tensor.entry->count() == 0) continue;
    const std::string module = name.substr(0, name.size() - kWeight.size());
    const std::string_view leaf = std::string_view(module).substr(module.rfind('.') + 1);
    const auto ignored = is_ignored(*ignore, module);
    if (!ignored) return tl::unexpected(ignored.error());
    if (!is_float(*tensor.entry) || is_kept_as_floats(leaf) || *ignored) {
      plan.kept.push_back(module);
      continue;
    }
    const std::string why = misfit(*options.target, leaf, tensor.entry->shape[0], tensor.entry->shape[1]);
    if (!why.empty() && refused++ == 0) first = fmt::format("{}: {}", tensor.where(), why);
    plan.weights.emplace(name, QuantizePlan::Weight{tensor, module, {}});
  }
  if (refused > 0) {
    return fail(fmt::format("{}; {} of {} weights cannot be stored as {} for {}: leave them out with --ignore", first,
                            refused, plan.weights.size(), options.target->to, options.target->layout));
  }
  if (plan.weights.empty()) return fail("there is no weight of floats to quantize");
  if (options.target->needs_inputs && options.inputs.empty()) {
    return fail(
        fmt::format("{} for {} has a scale of what each product reads, which only a text tells: --calibrate FILE",
                    options.target->to, options.target->layout));
  }
  for (const auto& [name, weight] : plan.weights) {
    if (!writes_inputs(options) || options.inputs.contains(weight.module)) continue;
    return fail(
        fmt::format("{}: no product of the model reads it, so that the scale of its inputs is not known: leave it "
                    "out with --ignore",
                    weight.tensor.where()));
  }
  share(plan);
  return plan;
}

BlockFormat format_of(const QuantizeTarget& target, std::int64_t rows, std::int64_t columns) {
  BlockFormat format = target.format;
  if (target.whole) format.block = {static_cast<std::int32_t>(rows), static_cast<std::int32_t>(columns)};
  return format;
}

bool writes_inputs(const QuantizeOptions& options) { return !options.target->input.empty() && !options.inputs.empty(); }

std::vector<SafetensorsSpec> stored_as(const QuantizeOptions& options, const QuantizePlan::Weight& weight) {
  const QuantizeTarget& target = *options.target;
  const std::int64_t rows = weight.tensor.entry->shape[0];
  const std::int64_t columns = weight.tensor.entry->shape[1];
  const std::string before = weight.module + '.';
  std::vector<SafetensorsSpec> all;
  all.push_back(
      {before + std::string(target.codes), std::string(target.codes_dtype), {rows, columns / target.codes_a_byte()}});
  const BlockGrid grid = block_grid(format_of(target, rows, columns), rows, columns);
  std::vector<std::int64_t> shape{grid.rows, grid.columns};
  if (target.grid_of_four) shape = {grid.rows, 1, grid.columns, 1};
  if (target.whole)
    shape = target.layout == "compressed-tensors" ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{};
  all.push_back({before + std::string(target.scale), std::string(target.scale_dtype), std::move(shape)});
  const std::vector<std::int64_t> one =
      target.layout == "modelopt" ? std::vector<std::int64_t>{} : std::vector{INT64_C(1)};
  if (!target.second.empty()) all.push_back({before + std::string(target.second), "F32", one});
  if (writes_inputs(options)) all.push_back({before + std::string(target.input), "F32", one});
  return all;
}

}  // namespace nanscope
