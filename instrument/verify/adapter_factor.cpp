#include "instrument/verify/adapter_factor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "instrument/recompute/bounds.h"

namespace nanscope {
namespace {

constexpr std::int64_t kRowsFitted = 24;
constexpr std::int64_t kColumnsFitted = 512;
constexpr double kSigmas = 6;  ///< of a sum of independent roundings: one of 5e8 elements is further off

/// The checkpoint's parameter under the name of a weight that an adapter was merged into; null where there is none.
const Tensor* without_adapter(RunView& run, const Tensor& merged) {
  const auto own_name = [](const Tensor& one) { return one.name.substr(one.name.find('/') + 1); };
  for (const Tensor& other : run.content(kBeforeSteps).tensors) {
    const Op* from = run.maker(other);
    if (from == nullptr || from->kind != OpKind::parameter || other.id == merged.id) continue;
    if (own_name(other) == own_name(merged) && other.tokens == merged.tokens && other.channels == merged.channels)
      return &other;
  }
  return nullptr;
}

/// What a product is off by, next to what the adapter adds to it.
struct Parts {
  std::vector<double> actual;   ///< without the checkpoint's own share
  std::vector<double> adapter;  ///< x (W merged - W)
  std::vector<double> bound;    ///< with the rounding of the merged weight to the checkpoint's format

  double factor() const {
    double above = 0;
    double below = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      above += actual[i] * adapter[i];
      below += adapter[i] * adapter[i];
    }
    return below > 0 ? above / below : 1;
  }
};

struct Product {
  const Tensor& x;
  std::span<const float> merged;
  std::span<const float> base;
  double roundoff = 0;  ///< of the checkpoint's format
};

bool add_row(Recomputer& recomputer, const Recomputed& result, const Product& product, std::int64_t row, Parts& into) {
  RunView& run = recomputer.facts().run;
  const Tensor& out = *run.tensor(result.tensor);
  const auto prediction = recomputer.predict(*run.op(result.op), out, result.form, row, 1);
  const auto actual = run.row_values(out, row);
  const auto x = run.row_values(product.x, row);
  if (!prediction || !actual || !x || prediction->columns != out.channels) return false;
  const std::size_t inputs = x->size();
  for (std::int64_t c = 0; c < std::min(out.channels, kColumnsFitted); ++c) {
    const auto at = static_cast<std::size_t>(c);
    if (prediction->bound[at] < 0 || !std::isfinite((*actual)[at]) || !std::isfinite(prediction->value[at]))
      return false;
    double change = 0;
    double squares = 0;
    for (std::size_t i = 0; i < inputs; ++i) {
      const double merged = double{product.merged[at * inputs + i]};
      change += double{(*x)[i]} * (merged - double{product.base[at * inputs + i]});
      squares += std::pow(double{(*x)[i]} * merged * product.roundoff, 2);
    }
    into.actual.push_back(double{(*actual)[at]} - double{prediction->value[at]} + change);
    into.adapter.push_back(change);
    // A rounding is anywhere between its two ends: a third of the square of its largest value.
    into.bound.push_back(double{prediction->bound[at]} + kSigmas * std::sqrt(squares / 3));
  }
  return true;
}

ExplainedBy explained_by(const Parts& parts, double factor, const Op& op) {
  Recomputed healthy;
  Recomputed scaled;
  double squares = 0;
  for (std::size_t i = 0; i < parts.actual.size(); ++i) {
    const double off = std::abs(parts.actual[i] - factor * parts.adapter[i]);
    healthy.distance += std::abs(parts.actual[i] - parts.adapter[i]);
    scaled.distance += off;
    scaled.bounds += parts.bound[i];
    scaled.explained += off <= parts.bound[i] ? 1 : 0;
    squares += parts.bound[i] > 0 ? std::pow(std::min(off / parts.bound[i], 1e3), 2) : 0;
  }
  healthy.elements = scaled.elements = std::ssize(parts.actual);
  measure_chances(healthy, {&scaled, 1}, 1);
  const auto count = static_cast<double>(parts.actual.size());
  return {"adapter-scale",
          fmt::format("the adapter times {:.3g} (lora_alpha / r in the place of lora_alpha / sqrt(r), or another "
                      "lora_alpha, gives such a factor)",
                      factor),
          op.name,
          static_cast<double>(scaled.explained) / count,
          std::sqrt(squares / count),
          scaled.log10_chance};
}

}  // namespace

std::optional<ExplainedBy> adapter_factor(Recomputer& recomputer, const Recomputed& result) {
  RunView& run = recomputer.facts().run;
  const Op& op = *run.op(result.op);
  const Tensor* merged = op.kind == OpKind::gemm ? run.input(op, "weight") : nullptr;
  const Tensor* x = run.input(op, "x");
  const Tensor* base = merged != nullptr && x != nullptr ? without_adapter(run, *merged) : nullptr;
  if (base == nullptr) return std::nullopt;
  const auto merged_values = recomputer.values().all(*merged);
  const auto base_values = recomputer.values().all(*base);
  const Tensor& out = *run.tensor(result.tensor);
  if (merged->channels != x->channels || merged->tokens != out.channels) return std::nullopt;  // (in, out), as GPT-2's
  const auto size = static_cast<std::size_t>(x->channels * out.channels);
  if (!merged_values || !base_values || merged_values->value.size() != size || base_values->value.size() != size)
    return std::nullopt;
  const Product product{*x, merged_values->value, base_values->value, roundoff(recomputer.values().precision(*base))};
  Parts parts;
  const std::int64_t wanted = std::min(out.tokens, kRowsFitted);
  for (std::int64_t i = 0; i < wanted; ++i) {
    if (!add_row(recomputer, result, product, i * out.tokens / wanted, parts)) return std::nullopt;
  }
  // What the rounding of the merged weight explains needs no factor.
  if (explained_by(parts, 1, op).share >= kComesOut) return std::nullopt;
  const ExplainedBy found = explained_by(parts, parts.factor(), op);
  return found.share >= kComesOut && found.log10_chance <= kShownByChance ? std::optional(found) : std::nullopt;
}

}  // namespace nanscope
