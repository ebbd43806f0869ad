#include <algorithm>

#include "tests/corpus/server.h"

/// Weights as a checkpoint's files hold them.
namespace nanscope::corpus {
namespace {

/// GPT-2's layers hold theirs as in x out.
Linear turned(const Linear& linear) {
  Linear out = linear;
  std::swap(out.out, out.in);
  for (std::int64_t r = 0; r < linear.out; ++r) {
    for (std::int64_t c = 0; c < linear.in; ++c) {
      out.codes[static_cast<std::size_t>(c * linear.out + r)] =
          linear.codes[static_cast<std::size_t>(r * linear.in + c)];
    }
  }
  return out;
}

Linear joined(const Linear& q, const Linear& k, const Linear& v) {
  Linear out = q;
  out.out = q.out + k.out + v.out;
  for (const Linear* part : {&k, &v}) {
    out.codes.insert(out.codes.end(), part->codes.begin(), part->codes.end());
    out.bias.insert(out.bias.end(), part->bias.begin(), part->bias.end());
  }
  return out;
}

}  // namespace

void Server::dump_norm(Tape& tape, std::string_view part, int layer, const Norm& norm) const {
  const auto width = static_cast<std::int64_t>(norm.weight.size());
  const std::string tag(part);
  tape.add(kWeights, tag + ".weight", name(part, layer, "weight"), model.shape.dtype, {width}, norm.weight);
  if (norm.bias.empty()) return;
  tape.add(kWeights, tag + ".bias", name(part, layer, "bias"), model.shape.dtype, {width}, norm.bias);
}

void Server::dump_linear(Tape& tape, std::string_view part, int layer, const Linear& linear) const {
  const std::string tag(part);
  const bool conv = model.shape.family == Family::gpt2 && part != "lm_head";
  const Linear held = conv ? turned(linear) : linear;
  const std::string_view dtype = held.format == Format::f32    ? "F32"
                                 : held.format == Format::f16  ? "F16"
                                 : held.format == Format::bf16 ? "BF16"
                                                               : "F8_E4M3";
  tape.add_codes(kWeights, tag + ".weight", name(part, layer, "weight"), dtype, {held.out, held.in}, held.codes);
  if (held.scale) {
    tape.add(kScales, tag + ".weight_scale", name(part, layer, "weight_scale"), Format::f32, {1},
             std::vector{*held.scale});
  }
  if (held.bias.empty()) return;
  tape.add(kWeights, tag + ".bias", name(part, layer, "bias"), model.shape.dtype, {linear.out}, held.bias);
}

void Server::dump_weights(Tape& tape, const std::string& folder) const {
  tape.enter(folder);
  const Shape& shape = model.shape;
  if (shape.family != Family::vit) {
    tape.add(kWeights, "embed.weight", name("embed", -1, "weight"), shape.dtype, {shape.vocabulary, shape.width},
             model.embed.values);
  }
  for (int l = 0; l < shape.layers; ++l) {
    const Layer& layer = model.layers[static_cast<std::size_t>(l)];
    dump_norm(tape, "attn_norm", l, layer.attn_norm);
    if (shape.fused_qkv()) {
      dump_linear(tape, "qkv", l, joined(layer.q, layer.k, layer.v));
    } else {
      dump_linear(tape, "q", l, layer.q);
      dump_linear(tape, "k", l, layer.k);
      dump_linear(tape, "v", l, layer.v);
    }
    dump_linear(tape, "o", l, layer.o);
    dump_norm(tape, "mlp_norm", l, layer.mlp_norm);
    if (shape.experts > 0) {
      dump_linear(tape, "router", l, layer.router);
    } else {
      if (shape.gated()) dump_linear(tape, "gate", l, layer.gate);
      dump_linear(tape, "up", l, layer.up);
      dump_linear(tape, "down", l, layer.down);
    }
  }
  dump_norm(tape, "final_norm", -1, model.final_norm);
  dump_linear(tape, "lm_head", -1, model.lm_head);
}

}  // namespace nanscope::corpus
