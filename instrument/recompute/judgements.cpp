/// Which judgements depend on the bytes of a few dumped tensors alone, and what names them.
#include "instrument/recompute/judgements.h"

#include <algorithm>

#include "instrument/recompute/input_cast.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

bool is_dumped(const Tensor* tensor) { return tensor != nullptr && tensor->known && !tensor->stated; }

/// Forms that read nothing but what the op is made of.
bool reads_inputs_alone(const OpForm& form) {
  const bool variant = form.variant == kAsDumped || form.variant == kNoBias || form.variant == kHalfSums ||
                       form.variant == kRoundedOperand;
  return variant && form.other == 0 && form.rounded == 0 && form.shift == 0 && form.scale_power == 1 && !form.as &&
         !form.x_as && !form.angles && !form.rounded_scales;
}

}  // namespace

bool fits(const Recomputed& kept, const Tensor& out) {
  const auto within = [&](std::int64_t row) { return row >= 0 && row < out.tokens; };
  return kept.rows_in_all == out.tokens && kept.elements >= 0 && kept.elements <= out.count() &&
         kept.worst.row < out.tokens && kept.worst.channel < out.channels &&
         std::all_of(kept.bad_rows.begin(), kept.bad_rows.end(), within) &&
         std::all_of(kept.not_finite.begin(), kept.not_finite.end(), within) &&
         std::all_of(kept.scattered.begin(), kept.scattered.end(),
                     [&](const ScatteredRow& one) { return within(one.row); });
}

bool Recomputer::judged_alone(const Op& op, const Tensor& out) {
  if (op.kind != OpKind::gemm || !is_dumped(&out) || out.axis == Axis::slots) return false;
  const Tensor* x = facts_.run.input(op, "x");
  if (!is_dumped(x) || !is_dumped(facts_.run.input(op, "weight"))) return false;
  const bool plain = std::all_of(op.inputs.begin(), op.inputs.end(), [&](const Input& input) {
    return (input.role == "x" || input.role == "weight" || input.role == "bias") && input.tensor != 0 &&
           is_dumped(facts_.run.tensor(input.tensor));
  });
  // Then rows of the input stand where those of the output do.
  const bool same_rows =
      x->axis == out.axis && x->tokens == out.tokens && x->sequence == out.sequence && x->step == out.step;
  const Fact<InputCast> cast = input_cast(facts_.run, op);
  return plain && same_rows && !cast && cast.error().why != Unknown::not_understood;
}

std::optional<FactKey> Recomputer::key_of(const Op& op, const Tensor& out, const OpForm& form) {
  if (options_.judgements == nullptr || options_.distances || !reads_inputs_alone(form) || !judged_alone(op, out))
    return std::nullopt;
  FactKeyMaker maker("product");
  const auto own = options_.judgements->identity(out);
  if (!own) return std::nullopt;
  maker.add(*own).add(out.role);
  for (const std::string_view role : {"x", "weight", "bias"}) {
    const Tensor* in = facts_.run.input(op, role);
    const auto identity = in != nullptr ? options_.judgements->identity(*in) : std::nullopt;
    if (in != nullptr && !identity) return std::nullopt;
    maker.add(role).add(identity.value_or(FactKey{}));
    if (role == "weight") maker.add(in->name);  // it tells how a square one is read
  }
  maker.add(std::int64_t{form.variant}).add_real(form.number).add_real(form.cap).add_real(form.alpha);
  maker.add_real(form.limit).add(std::int64_t{form.turned ? 1 : 0}).add(std::int64_t{form.heads});
  maker.add(form.weight_as ? name(*form.weight_as) : std::string_view());
  // What the bound of rounding follows from.
  maker.add(name(values_.activation_format(out.step))).add(name(values_.precision(out)));
  std::string live;
  for (std::int64_t row = 0; row < out.tokens; ++row) live.push_back(facts_.live(out, row) ? '1' : '0');
  return maker.add(live).key();
}

}  // namespace nanscope
