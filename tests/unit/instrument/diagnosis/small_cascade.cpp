#include "tests/unit/instrument/diagnosis/small_cascade.h"

#include <cmath>
#include <vector>

namespace nanscope::testing {
namespace {

constexpr std::int64_t kWidth = 4;
constexpr std::int64_t kBlock = 2;

float text_value(std::int64_t row, std::int64_t channel) {
  return 0.25F * static_cast<float>(1 + (row * 3 + channel * 5) % 4);
}

}  // namespace

struct SmallCascade::Step {
  std::int64_t request = 0;
  std::int64_t first = 0;
  std::int64_t tokens = 1;
  std::vector<std::int64_t> blocks;
  bool wide = false;  ///< its values exceed the calibrated range

  std::int64_t context() const { return first + tokens; }
  std::int64_t keys() const { return static_cast<std::int64_t>(blocks.size()) * kBlock; }
  Shape shape(std::int64_t channels = kWidth) const { return {tokens, channels, first, 1}; }
};

std::int64_t SmallCascade::note(const Step& step, std::int64_t layer, const std::string& name, std::int64_t id) {
  tensor[std::to_string(step.request) + "/" + std::to_string(layer) + "/" + name] = id;
  return id;
}

SmallCascade::SmallCascade(const CascadeOptions& options) : options_(options) {
  RunBuilder& b = builder;
  b.weight("embed.weight");
  b.weight("layers.0.q_proj.weight");
  const bool bad = options.image && options.one_pass;
  const std::vector<std::int32_t> output = bad ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{3};
  const auto begin = [&](const Step& step, std::vector<std::int32_t> prompt, const std::vector<std::int32_t>& out) {
    b.request(step.request, std::move(prompt), out);
    b.step(step.request, 0, step.first, step.tokens);
  };
  const Step calibrating{0, 0, 2, {0}, false};
  begin(calibrating, {1, 2}, {3});
  b.kv(0, 0, 0, kBlock, 0, KvAction::allocated);
  forward(calibrating);
  b.kv(0, 0, 0, 2, 0, KvAction::written, "attention", options.format);

  const Step exceeding{1, 0, 3, {1, 2}, options.image};
  begin(exceeding, {-1, -1, 2}, output);
  b.kv(1, 1, 0, kBlock, 0, KvAction::allocated);
  b.kv(1, 2, 0, kBlock, 2, KvAction::allocated);
  forward(exceeding);
  b.kv(1, 1, 0, 2, 0, KvAction::written, "attention", options.format);
  b.kv(1, 2, 0, 1, 2, KvAction::written, "attention", options.format);
  b.kv(1, 1, 0, kBlock, 0, KvAction::freed);
  b.kv(1, 2, 0, kBlock, 2, KvAction::freed);

  const Step sharing{2, 2, 1, {1, 3}, false};
  begin(sharing, {-1, -1, 3}, output);
  b.kv(2, 1, 0, kBlock, 0, KvAction::shared);
  b.kv(2, 3, 0, kBlock, 2, KvAction::allocated);
  forward(sharing);
  b.kv(2, 3, 0, 1, 2, KvAction::written, "attention", options.format);
  b.kv(2, 1, 0, kBlock, 0, KvAction::freed);
  b.kv(2, 3, 0, kBlock, 2, KvAction::freed);
  if (!options.last_request) return;

  const Step recycling{3, 0, 1, {1}, false};
  begin(recycling, {1}, output);
  b.kv(3, 1, 0, kBlock, 0, KvAction::allocated);
  forward(recycling);
  b.kv(3, 1, 0, 1, 0, KvAction::written, "attention", options.format);
}

/// Whether NaN reaches the step: request 1 makes it, the later ones read it.
bool SmallCascade::poisons(const Step& step) const { return options_.image && options_.one_pass && step.request >= 1; }

void SmallCascade::forward(const Step& step) {
  RunBuilder& b = builder;
  // Request 1's own NaN rows after layer 0; the others become NaN at layer 1, where the cache is poisoned.
  const bool born = step.wide && options_.one_pass;
  const bool poisoned = poisons(step);
  const auto hidden = [&](bool rows_bad, bool all_bad) -> Fill {
    return [=](std::int64_t row, std::int64_t channel) {
      return all_bad || (rows_bad && row < 2) ? kNan : text_value(row, channel);
    };
  };
  b.op(-1, "embed", "embedding", {{"weight", 0, "embed.weight"}});
  std::int64_t x = note(step, -1, "embed.out", b.output("out", step.shape(), text_value));
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const bool in_bad = layer == 1 && born;
    const bool out_bad = layer == 0 ? born : poisoned;
    const bool out_all = layer == 1 && poisoned;
    b.op(layer, "attn_norm", "layer_norm", {{"x", x}}, R"({"eps":1e-5,"clamp":false,"groups":1})");
    const std::int64_t normed =
        note(step, layer, "attn_norm.out", b.output("out", step.shape(), hidden(in_bad, false)));
    b.output("stats", step.shape(3), [&](std::int64_t row, std::int64_t i) {
      return in_bad && row < 2 ? kNan : (i == 0 ? 0.5F : i == 1 ? 0.04F : 5.0F);
    });
    attention(step, layer, normed);
    const std::int64_t branch =
        tensor.at(std::to_string(step.request) + "/" + std::to_string(layer) + "/inner_norm.out");
    b.op(layer, "o_proj", "gemm", {{"x", branch}, {"weight", 0, "layers.0.q_proj.weight"}});
    const std::int64_t o = note(step, layer, "o_proj.out", b.output("out", step.shape(), hidden(out_bad, out_all)));
    b.op(layer, "attn_residual", "residual_add", {{"a", x}, {"b", o}});
    x = note(step, layer, "attn_residual.out", b.output("out", step.shape(), hidden(out_bad, out_all)));
  }
  b.op(-1, "lm_head", "gemm", {{"x", x}, {"weight", 0, "embed.weight"}});
  const std::int64_t logits =
      note(step, -1, "lm_head.logits", b.output("logits", step.shape(5), hidden(poisoned, poisoned)));
  b.op(-1, "argmax", "argmax", {{"logits", logits}});
  note(step, -1, "argmax.token", b.output("token", step.shape(1), constant(poisoned ? 0.0F : 3.0F), Format::i32));
}

ScaleRow SmallCascade::scale_for(const Step& step) const {
  ScaleRow scale;
  scale.format = options_.format;
  scale.policy = options_.format == Format::bf16 ? "auto" : options_.locked ? "locked" : "per_request";
  if (options_.format == Format::bf16) return scale;
  const bool own = !options_.locked;
  scale.source = ScaleSource::calibrated;
  scale.scale = own && step.wide ? 1.0 : 0.01;
  scale.calibrated_request = own ? step.request : 0;
  scale.calibrated_step = own ? builder.current_step : 1;
  scale.calibrated_tokens = 2;
  scale.calibrated_absmax = own && step.wide ? 100 : 1;
  scale.locked = options_.locked;
  return scale;
}

std::int64_t SmallCascade::project(const Step& step, std::int64_t layer, std::int64_t normed, const std::string& name) {
  RunBuilder& b = builder;
  const bool born = layer == 1 && step.wide && options_.one_pass;
  b.op(layer, name, "gemm", {{"x", normed}, {"weight", 0, "layers.0.q_proj.weight"}});
  return note(step, layer, name + ".out", b.output("out", step.shape(), [&](std::int64_t row, std::int64_t channel) {
    if (born && row < 2) return kNan;
    // In layer 0 the image tokens' values are far beyond what request 0 calibrated.
    const bool far = name == "v_proj" && layer == 0 && step.wide && row < 2;
    return far ? 40.0F + static_cast<float>(row * 4 + channel) : text_value(row, channel);
  }));
}

/// Reads what the slots hold: request 1's collapsed and NaN rows where they lie in this request's blocks.
void SmallCascade::read(const Step& step, std::int64_t layer, std::int64_t v_codes) {
  RunBuilder& b = builder;
  const bool poisoned = poisons(step) && layer == 1;
  const auto scale = static_cast<float>(scale_for(step).scale);
  const Fill value = [&](std::int64_t key, std::int64_t channel) {
    if (poisoned && (step.request == 3 ? key == 1 : key < 2)) return kNan;
    if (layer == 0 && step.request == 2 && key < 2 && options_.image && options_.locked) return 4.48F;
    const std::int64_t row = key - step.first;
    return row >= 0 && row < step.tokens ? b.value(v_codes, row, channel) * scale : 0.0F;
  };
  const Fill key_value = [&](std::int64_t key, std::int64_t channel) {
    return std::isnan(value(key, channel)) ? kNan : 0.5F;
  };
  const Shape shape{step.keys(), kWidth, 0, 1};
  b.op(layer, "kv_read", "kv_read", {{"pool"}});
  note(step, layer, "kv_read.k_read", b.output("k_read", shape, key_value));
  note(step, layer, "kv_read.v_read", b.output("v_read", shape, value));
}

void SmallCascade::attention(const Step& step, std::int64_t layer, std::int64_t normed) {
  RunBuilder& b = builder;
  const std::int64_t q = project(step, layer, normed, "q_proj");
  const std::int64_t k = project(step, layer, normed, "k_proj");
  const std::int64_t v = project(step, layer, normed, "v_proj");
  b.op(layer, "kv_store", "kv_store", {{"k", k}, {"v", v}});
  note(step, layer, "kv_store.k_codes", b.store("k", k, scale_for(step)));
  const std::int64_t v_codes = note(step, layer, "kv_store.v_codes", b.store("v", v, scale_for(step)));
  read(step, layer, v_codes);
  const std::int64_t v_read = v_codes + 2;  // after k_read
  const std::int64_t k_read = v_codes + 1;

  const std::int64_t keys = step.keys();
  const Fill score = [&](std::int64_t row, std::int64_t key) {
    return std::isnan(b.value(k_read, key, 0)) || std::isnan(b.value(q, row, 0)) ? kNan : 0.5F;
  };
  b.op(layer, "scores", "attention_scores", {{"q", q}, {"k", k_read}}, R"({"heads":1,"kv_heads":1})");
  const std::int64_t scores = note(step, layer, "scores.out", b.output("out", step.shape(keys), score));
  b.op(layer, "softmax", "softmax", {{"scores", scores}},
       R"({"mask":"additive","heads":1,"first_position":)" + std::to_string(step.first) + R"(,"first_key":0})");
  const Fill prob = [&](std::int64_t row, std::int64_t key) {
    if (poisons(step) && layer == 1) return kNan;
    // The image rows attend to the first key alone, so that their mix is one clipped row.
    const std::int64_t seen = step.wide && row < 2 ? 1 : step.first + row + 1;
    return key < seen ? 1.0F / static_cast<float>(seen) : 0.0F;
  };
  const std::int64_t probs = note(step, layer, "softmax.probs", b.output("probs", step.shape(keys), prob));
  b.op(layer, "attn_mix", "attention_mix", {{"probs", probs}, {"v", v_read}},
       R"({"heads":1,"kv_heads":1,"visible_only":false})");
  const Fill mix = [&](std::int64_t row, std::int64_t channel) {
    float sum = 0;
    for (std::int64_t key = 0; key < keys; ++key) sum += b.value(probs, row, key) * b.value(v_read, key, channel);
    return sum + (step.wide && row < 2 ? 0.0F : 0.125F * static_cast<float>(channel));
  };
  inner_norm(step, layer, note(step, layer, "attn_mix.out", b.output("out", step.shape(), mix)));
}

void SmallCascade::inner_norm(const Step& step, std::int64_t layer, std::int64_t mixed) {
  RunBuilder& b = builder;
  const auto constant_row = [&](std::int64_t row) { return b.value(mixed, row, 0) == b.value(mixed, row, 3); };
  b.op(layer, "inner_norm", "layer_norm", {{"x", mixed}}, R"({"eps":1e-5,"clamp":false,"groups":1})");
  note(step, layer, "inner_norm.out", b.output("out", step.shape(), [&](std::int64_t row, std::int64_t channel) {
    const bool dead = constant_row(row) && options_.one_pass;
    return dead || std::isnan(b.value(mixed, row, channel)) ? kNan : text_value(row, channel);
  }));
  note(step, layer, "inner_norm.stats", b.output("stats", step.shape(3), [&](std::int64_t row, std::int64_t i) {
    if (std::isnan(b.value(mixed, row, 0))) return kNan;
    if (!constant_row(row)) return i == 0 ? 0.5F : i == 1 ? 0.02F : 7.0F;
    if (i == 0) return b.value(mixed, row, 0);
    const float variance = options_.one_pass ? -3.448e-3F : 0.0F;
    return i == 1 ? variance : options_.one_pass ? kNan : 316.2F;
  }));
}

}  // namespace nanscope::testing
