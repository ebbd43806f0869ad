#include "instrument/policies/query_masks.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/run/mask.h"
#include "instrument/recompute/keys.h"

namespace nanscope {
namespace {

/// False: it hides all of the keys.
bool hide(PolicyQuery& query, const std::function<bool(std::int64_t)>& hidden) {
  std::vector<float> bias(static_cast<std::size_t>(query.last_key - query.first_key + 1), 0.0F);
  std::size_t count = 0;
  for (std::size_t i = 0; i < bias.size(); ++i) {
    if (!hidden(query.first_key + static_cast<std::int64_t>(i))) continue;
    bias[i] = -INFINITY;
    ++count;
  }
  if (count > 0) query.bias = std::move(bias);
  return count < static_cast<std::size_t>(query.last_key - query.first_key + 1);
}

}  // namespace

const OpForm* QueryMasks::form_of(const Op* op) {
  Recomputer* again = options_.again;
  const Tensor* out = op != nullptr ? run_.result(*op) : nullptr;
  if (again == nullptr || out == nullptr) return nullptr;
  const OpForm& form = again->form_of(*op, *out);
  return again->understood(*op) && !form.text.empty() ? &form : nullptr;
}

const Op* QueryMasks::masked_op(const AttentionOps& ops, std::size_t span) {
  const Op* softmax = op_of_span(run_, ops.softmax, span);
  return softmax != nullptr ? softmax : ops.mix != nullptr && ops.mix->kind == OpKind::attention ? ops.mix : nullptr;
}

bool QueryMasks::add_bias(const AttentionOps& ops, const Step& step, std::size_t index, PolicyQuery& query) {
  const Op* op = masked_op(ops, index);
  const OpForm* form = form_of(op);
  if (form == nullptr) return true;
  const Span& span = step.spans[index];
  if (form->variant == kNoMask) {
    const std::vector<bool> shown = keys_shown(*op, step, span, query.position);
    return shown.empty() || hide(query, [&](std::int64_t key) { return !shown[static_cast<std::size_t>(key)]; });
  }
  if (form->variant != kGivenMask && form->variant != kGivenCausal) return true;
  const auto positions = column_positions(step, span, key_columns(options_.again->values(), *op, step, span));
  const std::int64_t row = span.row + query.position - span.first_token;
  const auto mask = row_mask(options_.again->values(), *op, step, span, row, positions, *form);
  if (!mask) return false;
  query.bias.assign(static_cast<std::size_t>(query.last_key - query.first_key + 1), -INFINITY);
  bool any = false;
  for (std::size_t column = 0; column < positions.size(); ++column) {
    const std::int64_t key = positions[column];
    if (key < query.first_key || key > query.last_key || !mask->visible[column]) continue;
    query.bias[static_cast<std::size_t>(key - query.first_key)] = mask->added.empty() ? 0.0F : mask->added[column];
    any = true;
  }
  return any;
}

std::vector<bool> QueryMasks::keys_shown(const Op& softmax, const Step& step, const Span& span, std::int64_t position) {
  const Tensor* scores = run_.input(softmax, "scores");
  const bool there = scores != nullptr && scores->known && !scores->stated;
  const auto row = there ? run_.row_at(*scores, span, position) : std::nullopt;
  const auto values = row ? run_.row_values(*scores, *row) : nullptr;
  if (!values || values->size() != static_cast<std::size_t>(scores->channels)) return {};
  const auto positions = column_positions(step, span, keys_of(*scores));
  // Masks hide by -Inf, or by one number that is as good as it; scores themselves may be large, too.
  float least = 0;
  for (const float value : *values) least = value < least ? value : least;
  const float limit = !hidden_by_mask(double{least}) ? -INFINITY : 0.99F * least;
  std::vector<bool> shown(static_cast<std::size_t>(span.first_token + span.rows), false);
  for (std::size_t column = 0; column < positions.size(); ++column) {
    const std::int64_t key = positions[column];
    if (key >= 0 && key < static_cast<std::int64_t>(shown.size()))
      shown[static_cast<std::size_t>(key)] = !((*values)[column] <= limit);
  }
  return shown;
}

SpanMask QueryMasks::of_span(const AttentionOps& ops, const Step& step, std::size_t index) {
  const Span& span = step.spans[index];
  SpanMask mask;
  mask.last_key = span.first_token;
  const auto state = [&](const auto& at) {
    if (at.first_position) mask.last_key = *at.first_position;
    if (at.first_key) mask.first_key = *at.first_key;
    if (at.window) mask.window = *at.window;
    mask.stated = mask.stated || at.first_position || at.window;
  };
  for (const Op* op : ops.softmax) {
    const Tensor* out = run_.result(*op);
    const bool own = out == nullptr || out->sequence < 0 || out->sequence == static_cast<std::int64_t>(index);
    if (const auto* at = op->get<SoftmaxAttributes>(); own && at != nullptr) state(*at);
  }
  if (ops.mix != nullptr && ops.mix->kind == OpKind::attention) {
    if (const auto* at = ops.mix->get<MixAttributes>()) state(*at);
  }
  if (options_.known.window) mask.window = *options_.known.window;
  const Op* masked = masked_op(ops, index);
  const OpForm* form = mask.stated ? nullptr : form_of(masked);
  if (form == nullptr) return mask;
  mask.form = form->text;
  if (form->variant == kWindow && form->number > 0) mask.window = static_cast<std::int64_t>(form->number);
  if (form->window > 0) mask.window = form->window;
  if (form->variant == kGivenMask) mask.last_key = span.first_token + span.rows - 1;
  if (form->variant != kNoMask) return mask;
  // What was dumped before the softmax may be behind its mask already.
  const std::vector<bool> shown = keys_shown(*masked, step, span, span.first_token);
  const auto later = static_cast<std::size_t>(span.first_token + 1);
  const bool any =
      shown.empty() || std::find(shown.begin() + static_cast<std::ptrdiff_t>(std::min(later, shown.size())),
                                 shown.end(), true) != shown.end();
  if (any) mask.last_key = span.first_token + span.rows - 1;
  return mask;
}

}  // namespace nanscope
