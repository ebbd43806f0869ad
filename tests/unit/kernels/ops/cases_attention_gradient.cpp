#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_mix_gradient.h"
#include "kernels/ops/softmax.h"
#include "kernels/ops/softmax_gradient.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

/// T queries after `before` keys, S keys of which some may be seen by none; keys before first_key and outside of the
/// window are hidden.
struct Masked {
  std::string name;
  Fill fill;
  Format format;
  std::int64_t queries;
  std::int64_t before;
  std::int64_t keys;
  std::int64_t width;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t first_key;
  std::int64_t window;
};

const Masked kMasked[] = {
    {"prefill", Fill::ordinary, Format::f32, 8, 0, 8, 32, 4, 2, 0, 0},
    {"long", Fill::ordinary, Format::f32, 40, 0, 40, 16, 2, 2, 0, 0},
    {"ragged", Fill::ordinary, Format::bf16, 5, 32, 37, 24, 6, 2, 0, 0},
    {"decode", Fill::ordinary, Format::f32, 1, 70, 80, 64, 4, 4, 3, 0},
    {"sliding", Fill::ordinary, Format::f32, 21, 3, 30, 33, 3, 1, 2, 5},
    {"hidden", Fill::ordinary, Format::f16, 4, 2, 9, 8, 2, 1, 7, 0},
    {"zoo", Fill::zoo, Format::f32, 29, 8, 48, 33, 2, 1, 0, 0},
    {"zoo_sliding", Fill::zoo, Format::f32, 29, 0, 29, 40, 2, 2, 1, 9},
};

/// Of probabilities that sum to 1, as a softmax leaves them, or of any numbers.
void add_softmax_gradient(std::vector<OpCase>& cases, const Masked& size, bool sums_to_one) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = size.heads * size.keys;
    SoftmaxGradientArgs args;
    args.heads = size.heads;
    args.first_position = size.before;
    args.first_key = size.first_key;
    args.window = size.window;
    const auto values = fill(Fill::ordinary, size.format, size.queries, columns, 81, sums_to_one ? 20.0F : 1.0F);
    args.probs = memory.input(size.format, size.queries, columns, values, 3);
    if (sums_to_one) {
      SoftmaxArgs softmax;
      softmax.scores = args.probs;
      softmax.out = args.probs = memory.output("probs", size.format, size.queries, columns, 3);
      softmax.heads = size.heads;
      softmax.first_position = size.before;
      softmax.first_key = size.first_key;
      softmax.window = size.window;
      memory.launch(softmax);
    }
    args.dprobs =
        memory.input(Format::f32, size.queries, columns, fill(size.fill, Format::f32, size.queries, columns, 82), 1);
    args.out = memory.output("out", size.format, size.queries, columns, 2);
    memory.launch(args);
  };
  cases.push_back(
      {std::string("softmax_gradient_") + (sums_to_one ? "" : "any_") + size.name, OpId::SoftmaxGradient, build});
}

/// Beside a sink: one a head, of which some are above all scores and some below.
void add_sink_gradient(std::vector<OpCase>& cases, const Masked& size) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = size.heads * size.keys;
    SoftmaxArgs softmax;
    softmax.scores = memory.input(size.format, size.queries, columns,
                                  fill(size.fill, size.format, size.queries, columns, 91, 9.0F), 3);
    softmax.sinks = memory.input(Format::bf16, 1, size.heads, fill(size.fill, Format::bf16, 1, size.heads, 92, 20.0F));
    softmax.out = memory.output("probs", Format::f32, size.queries, columns, 3);
    softmax.heads = size.heads;
    softmax.first_position = size.before;
    softmax.first_key = size.first_key;
    softmax.window = size.window;
    softmax.mask = MaskMode::select;
    memory.launch(softmax);
    SoftmaxGradientArgs args;
    args.probs = softmax.out;
    args.dprobs = memory.input(Format::f32, size.queries, columns,
                               fill(Fill::ordinary, Format::f32, size.queries, columns, 93), 1);
    args.out = memory.output("out", size.format, size.queries, columns, 2);
    args.heads = size.heads;
    args.first_position = size.before;
    args.first_key = size.first_key;
    args.window = size.window;
    args.sinks = softmax.sinks;
    args.scores = softmax.scores;
    args.sink_out = memory.output("sink", Format::f32, size.queries, size.heads, 1);
    memory.launch(args);
  };
  cases.push_back({"softmax_gradient_sinks_" + size.name, OpId::SoftmaxGradient, build});
}

void add_mix_gradient(std::vector<OpCase>& cases, const Masked& size) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t p_columns = size.heads * size.keys;
    const std::int64_t x_columns = size.heads * size.width;
    AttentionMixGradientArgs args;
    args.weights = memory.input(size.format, size.queries, p_columns,
                                fill(size.fill, size.format, size.queries, p_columns, 83), 3);
    args.x = memory.input(size.format, size.queries, x_columns,
                          fill(size.fill, size.format, size.queries, x_columns, 84), 5);
    args.out = memory.output("out", Format::f32, size.keys, size.kv_heads * size.width, 1);
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.factor = 0.17677669F;
    args.first_position = size.before;
    args.first_key = size.first_key;
    args.window = size.window;
    memory.launch(args);
  };
  cases.push_back({"attention_mix_gradient_" + size.name, OpId::AttentionMixGradient, build});
}

/// Rows 20 to 89 of 90, whose own tile of 32 keys is read from elsewhere.
void add_tiled_mix_gradient(std::vector<OpCase>& cases, Fill kind, const std::string& label) {
  const auto build = [=](CaseMemory& memory) {
    const auto given_rows = [&](Format format, std::int64_t columns, std::uint64_t seed) {
      return memory.input(format, 70, columns, fill(kind, format, 70, columns, seed), 3);
    };
    AttentionMixGradientArgs args;
    args.weights = given_rows(Format::bf16, 2 * 90, 87);
    args.exact_weights = given_rows(Format::f32, 2 * 90, 88);
    args.x = given_rows(Format::f32, 2 * 33, 89);
    args.exact_x = given_rows(Format::f16, 2 * 33, 90);
    args.out = memory.output("out", Format::f32, 90, 33, 1);
    args.heads = 2;
    args.first_position = 20;
    args.own_position = 20;
    args.tile = 32;
    memory.launch(args);
  };
  cases.push_back({"attention_mix_gradient_tiled_" + label, OpId::AttentionMixGradient, build});
}

/// The mix as the gradient of the queries.
void add_scaled_mix(std::vector<OpCase>& cases, const Masked& size) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t p_columns = size.heads * size.keys;
    const std::int64_t v_columns = size.kv_heads * size.width;
    AttentionMixArgs args;
    args.p = memory.input(size.format, size.queries, p_columns,
                          fill(Fill::ordinary, size.format, size.queries, p_columns, 85), 1);
    args.v = memory.input(Format::f32, size.keys, v_columns, fill(size.fill, Format::f32, size.keys, v_columns, 86), 5);
    args.out = memory.output("out", size.format, size.queries, size.heads * size.width, 4);
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.factor = 0.17677669F;
    args.first_position = size.before;
    args.first_key = size.first_key;
    args.window = size.window;
    args.visible_only = true;
    memory.launch(args);
  };
  cases.push_back({"attention_mix_scaled_" + size.name, OpId::AttentionMix, build});
}

}  // namespace

void add_attention_gradient_cases(std::vector<OpCase>& cases) {
  add_tiled_mix_gradient(cases, Fill::ordinary, "ordinary");
  add_tiled_mix_gradient(cases, Fill::zoo, "zoo");
  for (const Masked& size : kMasked) {
    add_softmax_gradient(cases, size, true);
    add_softmax_gradient(cases, size, false);
    add_sink_gradient(cases, size);
    add_mix_gradient(cases, size);
    add_scaled_mix(cases, size);
  }
}

}  // namespace nanscope::kernels::cases
