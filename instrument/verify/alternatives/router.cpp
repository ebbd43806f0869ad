/// The chosen experts' weights normalised where the model does not, or the other way round; another score; without the
/// model's factor.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_router(const TriedOp& subject);

namespace {

/// The same where neither the choice nor its weights were dumped, by the outputs of the mixture.
std::vector<OpForm> of_mixture(const TriedOp& subject) {
  Proposals made(subject);
  const int own = subject.form.routed;
  made.add((own & kNormed) != 0 ? "the weights of the chosen experts not normalised"
                                : "the weights of the chosen experts normalised",
           [&](OpForm& form) { form.routed = own ^ kNormed; });
  made.add((own & kSigmoid) != 0 ? "a softmax instead of sigmoids" : "sigmoids instead of a softmax",
           [&](OpForm& form) { form.routed = own ^ kSigmoid; });
  made.add("the logits of the router as weights", [](OpForm& form) { form.routed = kAsGiven; });
  for (const std::int64_t top : {subject.form.top - 1, subject.form.top + 1}) {
    if (top < 1 || top > subject.config().experts) continue;
    made.add(fmt::format("{} experts of each token instead of {}", top, subject.form.top),
             [&](OpForm& form) { form.top = top; });
  }
  return made.take();
}

}  // namespace

std::vector<OpForm> propose_router(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind == OpKind::expert_mix && subject.form.top > 0) return of_mixture(subject);
  if (subject.op.kind != OpKind::route || subject.out.role != "router_weights") return {};
  const int own = subject.form.variant;
  made.add((own & kNormed) != 0 ? "the weights of the chosen experts not normalised"
                                : "the weights of the chosen experts normalised",
           [&](OpForm& form) { form.variant = own ^ kNormed; });
  if (const double factor = subject.form.number; factor != 1) {
    made.add(fmt::format("the factor of {:.6g} on the weights left out", factor),
             [](OpForm& form) { form.number = 1; });
  }
  if ((own & kAsGiven) != 0) return made.take();
  made.add((own & kSigmoid) != 0 ? "a softmax instead of sigmoids" : "sigmoids instead of a softmax",
           [&](OpForm& form) { form.variant = own ^ kSigmoid; });
  made.add((own & kSigmoid) != 0 ? "a softmax instead of sigmoids, and the sum otherwise"
                                 : "sigmoids instead of a softmax, and the sum otherwise",
           [&](OpForm& form) { form.variant = own ^ kSigmoid ^ kNormed; });
  return made.take();
}

}  // namespace nanscope
