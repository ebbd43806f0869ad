/// Another function between the products of the MLP.
#include <fmt/format.h>

#include <limits>

#include "instrument/recompute/activations.h"
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_activation(const TriedOp& subject);

std::vector<OpForm> propose_activation(const TriedOp& subject) {
  Proposals made(subject);
  const bool mixture = subject.op.kind == OpKind::expert_mix && subject.op.input("expert_down") != 0;
  if (!mixture && (subject.op.kind != OpKind::activation || subject.op.input("product") != 0)) return {};
  const std::span<const Activation> all = activations();
  for (std::size_t i = 0; i < all.size(); ++i)
    made.add(fmt::format("{} instead of {}", all[i].name, activation_at(subject.form.variant).name),
             [&](OpForm& form) { form.variant = static_cast<int>(i); });
  made.add("gate and up in each other's place", [](OpForm& form) { form.shift = kUpFirst; });
  made.add("gate and up in turns", [](OpForm& form) { form.shift = kInterleaved; });
  if (subject.form.shift != kGateFirst)
    made.add("the whole gate before up", [](OpForm& form) { form.shift = kGateFirst; });
  if (is_clamped(activation_at(subject.form.variant)))
    made.add("the clamp left out", [](OpForm& form) { form.limit = std::numeric_limits<double>::max(); });
  return made.take();
}

}  // namespace nanscope
