#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// Dynamic NTK scaling with less served than trained for: a negative number has no power of a fraction.
void blame_stretch(const RopeAttributes& form, double stretch, Explanation& found) {
  const double base = form.base.value_or(0);
  const double factor = form.factor.value_or(0);
  const auto trained = static_cast<double>(form.trained.value_or(0));
  const auto served = static_cast<double>(form.served.value_or(0));
  found.danger = true;
  found.numbers.insert(
      found.numbers.end(),
      {{"base", base}, {"factor", factor}, {"trained", trained}, {"served", served}, {"stretch", stretch}});
  found.text = fmt::format(
      "x is healthy; its rotary base {:g} is stretched by {:g} * {:g} / {:g} - {:g} = {:g}, which has no real power: "
      "the angles are no numbers",
      base, factor, served, trained, factor - 1, stretch);
}

/// The channel that is rotated with this one; itself where it is only copied.
std::int64_t partner_of(const Subject& subject, const RopeAttributes& form, bool interleaved) {
  const std::int64_t width = std::max<std::int64_t>(subject.tensor.width(), 1);
  const std::int64_t channel = subject.element.channel;
  const std::int64_t from = count(form.rotated_from, 0);
  const std::int64_t inside = channel % width - from;
  const std::int64_t rotated = std::min(width - from, count(form.rotated, width));
  if (inside < 0 || inside >= rotated) return channel;
  if (interleaved) return inside % 2 == 0 ? channel + 1 : channel - 1;
  return inside < rotated / 2 ? channel + rotated / 2 : channel - rotated / 2;
}

/// Of a healthy x: on to the cosine or sine that is not.
void blame_angles(const Subject& subject, Explanation& found) {
  for (const char* role : {"cos", "sin"}) {
    const std::optional<Operand> angles = operand(subject, {role});
    if (!angles || !angles->row) continue;
    const auto bad = bad_channel(subject.facts, *angles->tensor, *angles->row, 0, kWholeRow);
    if (!bad) continue;
    found.element = Element{angles->tensor->id, *angles->row, *bad};
    found.danger = true;
    found.text = "x is healthy; " + said_of(subject.facts, *angles->tensor, *angles->row, *bad);
    return;
  }
}

}  // namespace

/// Half-split rotation: channel i of a head is made of channels i and i + D/2, or i - D/2; interleaved, of neighbours.
Explanation explain_rope(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  if (!x) return explain_by_inputs(subject);
  if (!x->row) return follow_unplaced(subject, *x);
  Facts& facts = subject.facts;
  const auto& form = attributes<RopeAttributes>(subject.op);
  const std::int64_t channel = subject.element.channel;
  const auto bad_at = [&](std::int64_t at) { return bad_channel(facts, *x->tensor, *x->row, at, 1).has_value(); };
  const bool own_bad = bad_at(channel);
  std::int64_t partner = partner_of(subject, form, form.interleaved.value_or(false));
  // What a dump does not say, its numbers may.
  const std::int64_t neighbour = partner_of(subject, form, true);
  if (!form.interleaved && subject.bad && !own_bad && !bad_at(partner) && bad_at(neighbour)) partner = neighbour;
  const bool partner_bad = !own_bad && bad_at(partner);
  Explanation found = follow_element(subject, *x, partner_bad ? partner : channel,
                                     fmt::format("rotated with channel {}", partner_bad ? channel : partner));
  if (!found.origin) return found;
  if (form.stretch && !(*form.stretch > 0)) {
    blame_stretch(form, *form.stretch, found);
  } else {
    blame_angles(subject, found);
  }
  return found;
}

}  // namespace nanscope
