/// The weight of another layer, expert or projection in the place of an op's own.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "instrument/verify/alternative.h"

namespace nanscope {
namespace {

constexpr std::size_t kMost = 96;  ///< weights that are tried: of the same place in other layers, then whatever fits

/// How far a weight is from being the same: in other layers, then of its own, then of others.
int distance(const Op& own, const Op& other) {
  if (own.name == other.name) return 0;
  return own.layer == other.layer ? 1 : 2;
}

}  // namespace

std::vector<OpForm> propose_other_weight(const TriedOp& subject);

std::vector<OpForm> propose_other_weight(const TriedOp& subject) {
  RunView& run = subject.run();
  const OpKind kind = subject.op.kind;
  const Tensor* own = run.input(subject.op, "weight");
  if ((kind != OpKind::gemm && kind != OpKind::layer_norm) || own == nullptr || subject.form.variant == kNotNormed)
    return {};
  const Op* maker = run.maker(*own);
  std::vector<std::pair<int, const Tensor*>> found;
  for (const Tensor& other : run.content(kBeforeSteps).tensors) {
    const Op* from = run.maker(other);
    const bool fits = from != nullptr && maker != nullptr && from->kind == OpKind::parameter && other.id != own->id &&
                      other.role == own->role && other.tokens == own->tokens && other.channels == own->channels;
    if (fits) found.emplace_back(distance(*maker, *from), &other);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() > kMost) found.resize(kMost);
  Proposals made(subject);
  for (const auto& [far, other] : found) {
    static_cast<void>(far);
    const auto id = other->id;
    const std::string name = other->name.substr(other->name.find('/') + 1);
    const std::string own_name = own->name.substr(own->name.find('/') + 1);
    made.add(name == own_name ? std::string("the checkpoint's weight without the adapter")
                              : fmt::format("the weight {} instead of {}", name, own_name),
             [id, kind](OpForm& form) {
               form.other = id;
               if (kind == OpKind::gemm) form.variant = kAsDumped;
             });
  }
  return made.take();
}

}  // namespace nanscope
