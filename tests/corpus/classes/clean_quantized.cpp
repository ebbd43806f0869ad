#include <fmt/format.h>

#include "tests/corpus/corpus.h"
#include "tests/corpus/stale_bytes.h"

/// Clean dumps of quantized servers: scales by absmax touch the largest code, and that is as it should be.
namespace nanscope::corpus::classes {
namespace {

constexpr unsigned kCacheGroups = kOutputs | kScales | kCodes | kRead | kHeads;

/// Two requests over a cache of fp8, or int8 in one of the shapes.
Case shared_scales(int index, std::uint64_t seed, Sharing sharing, unsigned groups) {
  const Shape shape = decoder_shape(index, seed);
  Settings settings;
  settings.kv_scales = KvScales::dynamic;
  settings.kv_cast.format = index == 1 ? Format::int8 : index == 2 ? Format::e5m2 : Format::e4m3;
  settings.kv_cast.sharing = sharing;
  settings.k_divisor = settings.v_divisor = info(settings.kv_cast.format).max_finite;
  Server server(make_model(shape, seed), settings);
  Tape tape({.groups = groups});
  for (int request = 0; request < 2; ++request) {
    server.forget();
    server.run(tape, fmt::format("request_{}", request),
               server.prompt(seed + static_cast<std::uint64_t>(request), "prompt", shape.tokens));
  }
  return clean(std::move(tape));
}

}  // namespace

Case clean_scale_a_tensor(int index, std::uint64_t seed) {
  return shared_scales(index, seed, Sharing::tensor, kCacheGroups);
}

Case clean_scale_a_token(int index, std::uint64_t seed) {
  return shared_scales(index, seed, Sharing::row, kCodes | kOutputs | (seed % 2 == 0 ? kScales | kHeads : 0U));
}

/// A scale a channel of what goes into a projection, and a scale a block, with blocks of zeros.
Case clean_scale_a_block(int index, std::uint64_t seed) {
  const Shape shape = any_shape(index, seed);
  Server server(make_model(shape, seed), settings_for(shape));
  for (Layer& layer : server.model.layers) {
    layer.o.input = Cast{.sharing = seed % 3 == 0 ? Sharing::channel : Sharing::block,
                         .block = 16,
                         .given = {},
                         .power_of_two = seed % 3 == 1};
    // A head that training switched off.
    Matrix w = layer.v.values();
    for (std::int64_t r = 0; r < shape.head_width; ++r) {
      for (float& v : w.row(r)) v = 0;
      if (!layer.v.bias.empty()) layer.v.bias[static_cast<std::size_t>(r)] = 0;
    }
    layer.v.set(w, layer.v.format);
  }
  Tape tape({.groups = kInputs | kOutputs | kScales | kCodes | kWeights});
  server.dump_weights(tape, weights_folder(seed, pass_folder(seed)));
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
  return clean(std::move(tape));
}

/// A scale that the first request set, and that later ones stay within.
Case clean_locked_scale(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Settings settings;
  settings.kv_scales = KvScales::locked;
  settings.k_divisor = 200;
  settings.v_divisor = 100;
  Server server(make_model(shape, seed), settings);
  Tape tape({.groups = kCacheGroups});
  for (int request = 0; request < 3; ++request) {
    server.forget();
    server.run(tape, fmt::format("request_{}", request),
               server.prompt(seed + static_cast<std::uint64_t>(request), "prompt", shape.tokens));
  }
  Case made = clean(std::move(tape));
  if (!server.clips.empty()) made.doubt = "something clips";
  return made;
}

/// Weights and inputs in fp8, with their scales applied once each.
Case clean_quantized_linear(int index, std::uint64_t seed) {
  const Shape shape = any_shape(index, seed);
  Server server(make_model(shape, seed), settings_for(shape));
  for (Layer& layer : server.model.layers) {
    for (Linear* linear : {&layer.o, &layer.down, &layer.up}) {
      if (linear->codes.empty()) continue;
      linear->quantize_weight(Format::e4m3);
      linear->input = Cast{};
    }
  }
  Tape tape({.groups = kInputs | kOutputs | kScales | kCodes | kWeights});
  server.dump_weights(tape, weights_folder(seed, pass_folder(seed)));
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
  return clean(std::move(tape));
}

/// Scores that are cast with a scale of the last steps', which has settled.
Case clean_delayed_scale(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  server.settings.scores = Cast{};
  server.settings.history_margin = 0.5F;
  Tape tape({.groups = kScales | kCodes | kScores | kOutputs});
  for (int step = 0; step < 22; ++step) {
    tape.record(step > 18);
    if (step == 19) server.clips.clear();
    server.forget();
    server.run(tape, fmt::format("step_{:03}", step),
               server.prompt(seed + static_cast<std::uint64_t>(step) * 31, "prompt", shape.tokens));
  }
  Case made = clean(std::move(tape));
  if (!server.clips.empty()) made.doubt = "something clips";
  return made;
}

/// Slots behind the last token hold NaN, and no kernel reads them.
Case clean_unread_tail(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  server.settings.slots = shape.tokens + 8;
  if (index == 0) {
    server.settings.kv_scales = KvScales::dynamic;
    server.settings.k_divisor = server.settings.v_divisor = 200;
  }
  server.fill_cache(shape.dtype == Format::f32 ? index_bytes(seed, 4096) : state_bytes(seed, 8192));
  Tape tape({.groups = kCodes | kScales | kOutputs | (seed % 2 == 0 ? kMasks | kScores : 0U)});
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
  Case made = clean(std::move(tape));
  if (made.doubt.find("scores") != std::string::npos) made.doubt.clear();
  return made;
}

}  // namespace nanscope::corpus::classes
