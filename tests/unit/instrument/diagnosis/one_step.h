#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::testing {

/// A step of one layer whose residual stream ends in logits, as a recording has it.
struct OneStep {
  RunBuilder b;
  explicit OneStep(std::int64_t tokens = 2) : tokens_(tokens) {
    b.request(0, std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 1), {7});
    b.step(0, 0, 0, tokens);
    b.op(-1, "embed", "embedding", {{"weight", 0, "embed.weight"}});
    x = b.output("out", {tokens, 4, 0, 1}, constant(1));
  }
  std::int64_t add(const std::string& name, const std::string& kind, const std::vector<In>& inputs, const Fill& values,
                   Format format = Format::f32, const std::string& attributes = "{}") {
    b.op(0, name, kind, inputs, attributes);
    return b.output("out", {tokens_, 4, 0, 1}, values, format);
  }
  std::int64_t add(const std::string& name, const std::string& kind, const std::vector<In>& inputs, float value,
                   Format format = Format::f32, const std::string& attributes = "{}") {
    return add(name, kind, inputs, constant(value), format, attributes);
  }
  std::int64_t head(std::int64_t input, float value, float token) {
    b.op(-1, "lm_head", "gemm", {{"x", input}, {"weight", 0, "embed.weight"}});
    const std::int64_t logits = b.output("logits", {tokens_, 5, 0, 1}, constant(value));
    b.op(-1, "argmax", "argmax", {{"logits", logits}});
    b.output("token", {tokens_, 1, 0, 1}, constant(token), Format::i32);
    return logits;
  }
  std::int64_t x = 0;
  std::int64_t tokens_;
};

/// A scale of the ledger that never changes.
inline ScaleRow fixed_scale(double scale, Format format = Format::e4m3) {
  ScaleRow row;
  row.policy = "static";
  row.source = ScaleSource::fixed;
  row.scale = scale;
  row.format = format;
  row.locked = true;
  return row;
}

/// One that was computed from the values of a step.
inline ScaleRow calibrated_scale(double scale, std::int64_t step, double absmax, Format format = Format::e4m3) {
  ScaleRow row;
  row.format = format;
  row.policy = "some";
  row.scale = scale;
  row.source = ScaleSource::calibrated;
  row.calibrated_step = step;
  row.calibrated_absmax = absmax;
  return row;
}

}  // namespace nanscope::testing
