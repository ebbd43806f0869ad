#include "instrument/policies/operands.h"

#include <algorithm>
#include <initializer_list>

namespace nanscope {
namespace {

bool is_codes(const Tensor& tensor) { return info(tensor.format).bits <= 8; }
bool has_elements(const Tensor* tensor) { return tensor != nullptr && tensor->known && !tensor->stated; }
bool of_step(const Tensor& tensor) { return tensor.axis == Axis::rows || tensor.axis == Axis::live; }

/// Numbers as they were before a cache made codes of them.
bool is_fresh(const Tensor* tensor) { return has_elements(tensor) && of_step(*tensor) && !is_codes(*tensor); }

/// The first of what was not dumped that can be computed.
void compute(Recomputer& again, std::initializer_list<const Tensor*> wanted, AttentionOperand& into) {
  for (const Tensor* one : wanted) {
    if (one == nullptr || one->known || !of_step(*one) || !again.values().available(*one)) continue;
    into.computed = again.values().all(*one);
    if (into.computed == nullptr) continue;
    into.own = one;
    const Op* maker = again.values().run().maker(*one);
    if (maker != nullptr && maker->kind == OpKind::rope) into.rotation = Rotation::behind;
    return;
  }
}

}  // namespace

AttentionOps attention_ops(RunView& run, const Step& step, std::int64_t layer) {
  AttentionOps found;
  for (const Op& op : run.content(step.id).ops) {
    if (op.layer != layer) continue;
    const auto is = [&](OpKind kind, std::string_view name) { return op.kind == kind && op.name.starts_with(name); };
    if (is(OpKind::kv_store, "kv_store")) found.store = &op;
    if (is(OpKind::attention_scores, "scores") && op.input("q") != 0) found.scores.push_back(&op);
    if (is(OpKind::softmax, "softmax")) found.softmax.push_back(&op);
    if (is(OpKind::attention_mix, "attn_mix") || is(OpKind::combine_partials, "attn_mix")) found.mix = &op;
    if (is(OpKind::mix_partials, "mix_partials")) found.partial_mixes.push_back(&op);
    if (is(OpKind::attention, "attention")) {
      found.scores.push_back(&op);
      found.mix = &op;
    }
  }
  return found;
}

const Op* op_of_span(RunView& run, const std::vector<const Op*>& ops, std::size_t span) {
  for (const Op* op : ops) {
    const Tensor* out = run.result(*op);
    if (out != nullptr && out->sequence == static_cast<std::int64_t>(span)) return op;
  }
  return ops.empty() ? nullptr : ops.front();
}

const Tensor* before_rotation(RunView& run, const Tensor& rotated) {
  const Op* maker = run.maker(rotated);
  if (maker == nullptr || maker->kind != OpKind::rope) return nullptr;
  const Tensor* x = run.input(*maker, "x");
  return is_fresh(x) ? x : nullptr;
}

AttentionOperand find_operand(RunView& run, const AttentionOps& ops, const Step& step, std::size_t span,
                              std::string_view role, Recomputer* again) {
  AttentionOperand found;
  const Op* attention = op_of_span(run, ops.scores, span);
  const Op* mix = ops.partial_mixes.empty() ? ops.mix : op_of_span(run, ops.partial_mixes, span);
  const Op* reader = role == "v" ? mix : attention;
  const Tensor* stored = ops.store != nullptr ? run.input(*ops.store, role) : nullptr;
  const Tensor* read = reader != nullptr ? run.input(*reader, role, step.spans[span]) : nullptr;
  const std::string name(role);
  const Tensor* unrotated = nullptr;
  for (const Tensor* one : {stored, read}) {
    if (is_fresh(one) && found.own == nullptr) found.own = one;
    if (one != nullptr && role != "v" && unrotated == nullptr) unrotated = before_rotation(run, *one);
  }
  if (found.own != nullptr) {
    const Op* maker = run.maker(*found.own);
    if (maker != nullptr && maker->kind == OpKind::rope) found.rotation = Rotation::behind;
  }
  if (found.own == nullptr && ops.store != nullptr) {
    const Tensor* codes = run.output(*ops.store, name + "_codes");
    const Tensor* scale = run.input(*ops.store, name + "_scale");
    if (has_elements(codes) && of_step(*codes) && (!is_codes(*codes) || scale != nullptr)) {
      found.own = codes;
      found.own_scale = is_codes(*codes) ? scale : nullptr;
      found.rotation = Rotation::behind;
    }
  }
  if (has_elements(read) && !of_step(*read)) {
    found.cached = read;
  } else if (ops.store != nullptr && has_elements(run.output(*ops.store, name + "_cache"))) {
    found.cached = run.output(*ops.store, name + "_cache");
  }
  if (found.cached != nullptr && is_codes(*found.cached)) {
    found.cached_scale = reader != nullptr ? run.input(*reader, name + "_scale") : nullptr;
    if (found.cached_scale == nullptr && ops.store != nullptr)
      found.cached_scale = run.input(*ops.store, name + "_scale");
  }
  if (found.own == nullptr && again != nullptr) compute(*again, {stored, read}, found);
  if (found.own == nullptr && found.cached == nullptr && unrotated != nullptr) {
    found.own = unrotated;
    found.rotation = Rotation::before;
  }
  if (found.own == nullptr && found.cached != nullptr) found.rotation = Rotation::behind;
  return found;
}

OperandRows::OperandRows(RunView& run, KvCache& cache, const Step& step, const Span& span,
                         const AttentionOperand& operand)
    : run_(run), cache_(cache), step_(step), span_(span), operand_(operand) {
  const auto grid = [&](const Tensor* scale, const Tensor* codes) {
    return scale != nullptr && codes != nullptr ? ScaleGrid::of(run, *scale, *codes) : std::nullopt;
  };
  own_grid_ = grid(operand.own_scale, operand.own);
  cached_grid_ = grid(operand.cached_scale, operand.cached);
}

std::int64_t AttentionOperand::channels() const {
  if (computed != nullptr) return computed->columns;
  if (own != nullptr) return own->channels;
  return cached != nullptr ? cached->channels : 0;
}

bool OperandRows::read_own(std::int64_t first, std::int64_t count, float* into) {
  const Tensor& own = *operand_.own;
  const auto begin = run_.row_at(own, span_, first);
  const auto end = run_.row_at(own, span_, first + count - 1);
  if (!begin || !end || *end - *begin != count - 1) return false;
  if (operand_.computed != nullptr) {
    if (*begin < 0 || *end >= operand_.computed->rows) return false;
    std::copy_n(operand_.computed->row(*begin), count * operand_.computed->columns, into);
    return true;
  }
  const Fact<TensorData> data = run_.read(own, *begin, count);
  if (!data) return false;
  std::vector<float> values;
  data->decode_into(values);
  for (std::size_t i = 0; own_grid_ && i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    values[i] = static_cast<float>(double{values[i]} * own_grid_->at(*begin + at / own.channels, at % own.channels));
  }
  std::copy(values.begin(), values.end(), into);
  return true;
}

bool OperandRows::read_cached(std::int64_t position, float* into) {
  const Tensor& cached = *operand_.cached;
  const auto row = cache_.row_of(cached, step_, span_, position);
  const auto values = row ? run_.row_values(cached, *row) : nullptr;
  if (!values || static_cast<std::int64_t>(values->size()) != cached.channels) return false;
  for (std::size_t c = 0; c < values->size(); ++c) {
    const double scale = cached_grid_ ? cached_grid_->at(*row, static_cast<std::int64_t>(c)) : 1.0;
    into[c] = static_cast<float>(double{(*values)[c]} * scale);
  }
  return true;
}

bool OperandRows::read(std::int64_t first, std::int64_t count, float* into) {
  if (count <= 0) return true;
  if (operand_.own != nullptr && first >= span_.first_token && read_own(first, count, into)) return true;
  if (operand_.cached == nullptr) return false;
  const std::int64_t wide = operand_.cached->channels;
  if (wide != channels()) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!read_cached(first + i, into + i * wide)) return false;
  }
  return true;
}

}  // namespace nanscope
