#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/recording/reader.h"
#include "core/recording/writer.h"
#include "core/tensor/content_hash.h"
#include "core/tensor/pyramid.h"
#include "tests/temporary_folder.h"

/// A small recording of made-up numbers, for the tests of core/recording.
namespace nanscope::sample {

/// Health of made-up counts; every field differs from its neighbours.
inline Health health(std::uint64_t seed, std::uint64_t nan = 0) {
  Health h;
  h.count = 1000 + seed;
  h.nan = nan;
  h.pos_inf = seed % 3;
  h.neg_inf = seed % 2;
  h.saturated = seed + 4;
  h.subnormal = seed + 5;
  h.zero = seed + 6;
  h.flushed = seed + 7;
  h.clipped = seed + 8;
  h.first_bad = h.bad() > 0 ? static_cast<std::int64_t>(seed) : -1;
  h.sum = 0.1 * static_cast<double>(seed) + 1e-17;
  h.sum_sq = 1.0 / 3.0 + static_cast<double>(seed);
  h.min = -0.0F;
  h.max = 3.0e38F;
  h.absmax = 1e-45F;
  return h;
}

inline std::vector<Health> many(std::size_t n, std::uint64_t seed) {
  std::vector<Health> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(health(seed + i));
  return all;
}

/// The same of `count` elements: no part of them is more than all.
inline Health health_of(std::uint64_t count, std::uint64_t seed, std::uint64_t nan = 0) {
  Health h = health(seed, std::min(nan, count));
  h.count = count;
  for (std::uint64_t* part : {&h.pos_inf, &h.neg_inf}) *part = std::min(*part, (count - h.nan) / 2);
  for (std::uint64_t* part : {&h.saturated, &h.subnormal, &h.zero, &h.flushed, &h.clipped}) *part %= count + 1;
  h.first_bad = h.bad() > 0 ? static_cast<std::int64_t>(seed % count) : -1;
  return h;
}

/// Rows or tiles of `count` elements each.
inline std::vector<Health> many_of(std::uint64_t count, std::size_t n, std::uint64_t seed) {
  std::vector<Health> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(health_of(count, seed + i));
  return all;
}

/// What a tensor of these rows has: the first bad element lies in it, wherever the made-up rows have theirs.
inline Health sum_of(const std::vector<Health>& rows) {
  Health h = merge_all(rows);
  if (h.bad() > 0) h.first_bad %= static_cast<std::int64_t>(h.count);
  return h;
}

inline std::uint64_t hash_of(std::span<const std::byte> bytes) {
  ContentHash hash;
  hash.add(bytes);
  return hash.finish();
}

inline std::vector<std::byte> noise(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

inline bool same(const Health& a, const Health& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
inline bool same(const std::vector<Health>& a, const std::vector<Health>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Health)) == 0);
}

inline RunInfo run_info() {
  return {"0.1.0", "2024-05-01T12:00:00Z", "kv-scale-lock", R"({"layers":2})", "cpu",
          "avx2",  "g++ 12 -O2",           "avx2 fma",      "nearest, no ftz", "all",
          0};
}

/// One step of `ops` ops with one tensor each, `tokens` x `channels` of f32; ids count from first.
inline void add_step(RecordingWriter& writer, std::int64_t step, std::int64_t request, std::int64_t index, int ops,
                     std::int64_t tokens, std::int64_t channels, bool bytes, std::int64_t bad_op = -1) {
  StepRow row;
  row.id = step;
  row.request = request;
  row.index = index;
  row.kind = index == 0 ? StepKind::prefill : StepKind::decode;
  row.tokens = tokens;
  row.context = tokens;
  writer.add(row);
  for (int i = 0; i < ops; ++i) {
    OpRow op;
    op.id = (step - 1) * ops + i + 1;
    op.step = step;
    op.layer = i < ops - 1 ? i : -1;
    op.name = i < ops - 1 ? "attn_norm" : "lm_head";
    op.kind = "layer_norm";
    op.attributes = R"({"eps":1e-5})";
    const InputRow inputs[] = {{op.id, "x", op.id - 1, ""}, {op.id, "weight", 0, "layers.0.attn_norm.weight"}};
    writer.add(op, inputs);
    TensorRow tensor;
    tensor.id = op.id;
    tensor.op = op.id;
    tensor.role = i < ops - 1 ? "out" : "logits";
    tensor.tokens = tokens;
    tensor.channels = channels;
    const auto width = static_cast<std::size_t>(level_shape(tokens, channels, 0).columns);
    const auto elements = static_cast<std::uint64_t>(channels);
    TensorDetail detail{many_of(elements, static_cast<std::size_t>(tokens), 1), {}};
    if (op.id == bad_op) detail.tokens[0] = health_of(elements, 6, 3);
    tensor.health = sum_of(detail.tokens);
    if (width > 1) detail.tiles = many(static_cast<std::size_t>(tokens) * width, 2);
    const auto size = static_cast<std::size_t>(tokens * channels) * 4;
    auto stored = bytes ? noise(size, static_cast<unsigned>(op.id)) : std::vector<std::byte>{};
    tensor.hash = bytes ? hash_of(stored) : 0xf000000000000000U + static_cast<std::uint64_t>(op.id);
    writer.add(tensor, std::move(detail), std::move(stored));
  }
  ASSERT_TRUE(writer.commit_step());
}

}  // namespace nanscope::sample
