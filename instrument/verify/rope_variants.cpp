#include "instrument/verify/rope_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

// Defaults in transformers 5.24.0, and Phi-4's 2.5e5.
constexpr std::array kBases = {1e4, 5e5, 1e6, 1e5, 5e6, 1e7, 1.5e5, 8e6, 1e3, 250000.0};

std::shared_ptr<const RopeAngles> of(const ModelSpec& spec, bool local, std::int64_t context) {
  return ModelForms(spec).angles(local, context);
}

}  // namespace

std::vector<RopeVariant> rope_variants(const ModelForms& model, bool local, std::int64_t context) {
  const ModelSpec& own = model.spec();
  const double base = local ? own.model.local_rope_base : own.model.rope_base;
  std::vector<RopeVariant> found;
  const auto add = [&](std::string text, std::shared_ptr<const RopeAngles> angles) {
    const auto same = [&](const RopeVariant& one) { return *one.angles == *angles; };
    if (*angles != *model.angles(local, context) && std::none_of(found.begin(), found.end(), same))
      found.push_back({std::move(text), std::move(angles)});
  };
  ModelSpec changed = own;
  if (own.rope.scaling != RopeScaling::none && !local) {
    changed.rope.scaling = RopeScaling::none;
    auto plain = std::make_shared<RopeAngles>(*of(changed, local, context));
    add("the scaling of the rotary angles left out", plain);
    plain = std::make_shared<RopeAngles>(*plain);
    plain->amplitude = of(own, local, context)->amplitude;
    add("the scaling of the rotary angles left out, its amplitude kept", plain);
    const double factor = double{own.rope.factor};
    auto slowed = std::make_shared<RopeAngles>(*of(changed, local, context));
    for (float& frequency : slowed->frequencies) frequency /= static_cast<float>(factor);
    if (factor > 0) add(fmt::format("all rotary angles divided by {:g}, as linear scaling does", factor), slowed);
  }
  if (own.model.local_rope_base > 0)
    add(local ? "the rotary angles of layers without a window" : "the rotary angles of layers with a window",
        of(own, !local, context));
  if (own.rope.scaling == RopeScaling::longrope) {
    add("the long factors of LongRoPE", of(own, local, own.rope.trained + 1));
    add("the short factors of LongRoPE", of(own, local, 1));
  }
  for (const bool scaled : {true, false}) {
    if (!scaled && (own.rope.scaling == RopeScaling::none || local)) continue;
    for (const double other : kBases) {
      changed = own;
      changed.model.rope_base = other;
      if (local) changed.model.local_rope_base = other;
      if (!scaled) changed.rope.scaling = RopeScaling::none;
      if (other == base) continue;
      add(fmt::format("a base of the rotary angles of {:g} instead of {:g}{}", other, base,
                      scaled ? "" : ", and no scaling"),
          of(changed, local, context));
    }
  }
  changed = own;
  changed.model.rotated = own.model.rotated == 0 ? own.model.head_dim / 2 : 0;
  if (own.model.rotated_from == 0)
    add(own.model.rotated == 0 ? "half of a head rotated" : "all of a head rotated", of(changed, local, context));
  for (const Format format : {Format::bf16, Format::f16}) {
    auto rounded = std::make_shared<RopeAngles>(*of(own, local, context));
    for (float& frequency : rounded->frequencies)
      frequency = decode(format, encode(format, frequency, Overflow::saturate));
    add(fmt::format("frequencies of the rotary angles rounded to {}", name(format)), std::move(rounded));
  }
  for (const double factor : {2.0, 4.0, 8.0, 16.0, 32.0, 0.5}) {
    auto slowed = std::make_shared<RopeAngles>(*of(own, local, context));
    for (float& frequency : slowed->frequencies) frequency /= static_cast<float>(factor);
    add(fmt::format("positions divided by {:g}, as linear scaling does", factor), std::move(slowed));
  }
  auto plain = std::make_shared<RopeAngles>(*of(own, local, context));
  if (plain->amplitude != 1) {
    plain->amplitude = 1;
    add("the amplitude of cosine and sine left out", plain);
  }
  return found;
}

std::int64_t longest_context(const TriedOp& subject) {
  const Step* step = subject.run().step(subject.op.step);
  std::int64_t context = 0;
  for (std::size_t i = 0; step != nullptr && i < step->spans.size(); ++i)
    context = std::max(context, step->spans[i].context);
  return context;
}

}  // namespace nanscope
