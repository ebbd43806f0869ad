/// What attention reads of the slots of a cache: codes times their scale, or what was kept as it is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "core/numbers/codec.h"
#include "core/run/ranks.h"
#include "core/run/scales.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/keys.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"
#include "instrument/recompute/scaled.h"

namespace nanscope {
namespace {

/// OpForm::variant of a read. Of kScaleOfRank `shift` is the rank whose scale it is.
enum Source : int { kStored = 0, kFresh = 1, kScaleOfRank = 2 };

}  // namespace

std::vector<OpForm> forms_kv_read(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = {{.text = "the slot's code times its scale"}};
  // A prefill may go over its own keys and values before they are quantised.
  const Tensor* own = values.run().input(op, out.role.substr(0, 1));
  const Step* step = values.run().step(op.step);
  if (own != nullptr && step != nullptr && step->kind != StepKind::decode)
    forms.push_back({.text = "what was to be stored, before it was quantised", .variant = kFresh});
  return forms;
}

namespace {

/// The rows of this step before they were stored.
bool read_fresh(Values& values, const Op& op, const Tensor& out, const Span& span, std::int64_t first,
                std::int64_t count, Prediction& into) {
  const Step* step = values.run().step(out.step);
  const Tensor* own = values.run().input(op, out.role.substr(0, 1));
  const auto block = own != nullptr ? values.all(*own) : nullptr;
  if (!block || block->columns != out.channels) return false;
  into.resize(count, out.channels, -1.0F);
  const double u = 1.01 * roundoff(values.precision(out));
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t position = values.facts().cache.key_row(out, *step, span, first + t, op.layer).position;
    const std::int64_t row = span.row + position - span.first_token;
    if (position < span.first_token || position >= span.context || row >= block->rows) continue;
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      into.value[at] = block->row(row)[c];
      into.bound[at] = static_cast<float>(double{block->off(row, c)} + u * std::abs(double{block->row(row)[c]}));
    }
  }
  return true;
}

/// The row that a step stored for a position, this one or one before it, where what is stored has no codes.
std::optional<std::pair<const Tensor*, std::int64_t>> stored_as_it_is(Values& values, const Op& op, const Tensor& out,
                                                                      const Span& span, std::int64_t position) {
  RunView& run = values.run();
  const Step* step = run.step(op.step);
  const Op* store = run.find_op(op.step, op.layer, "kv_store");
  const Tensor* own = store != nullptr ? run.output(*store, out.role.substr(0, 1) + "_codes") : nullptr;
  if (own == nullptr || !own->known || holds_codes(own->format) || position >= span.context) return std::nullopt;
  if (position < span.first_token) return row_before(run, *own, *step, span, position);
  const auto row = run.row_at(*own, span, position);
  return row ? std::optional(std::pair(own, *row)) : std::nullopt;
}

/// Whose keys or values were read.
const Span& own_span(const Step& step, const Tensor& out) {
  const bool stated = out.sequence >= 0 && out.sequence < std::ssize(step.spans);
  return step.spans[stated ? static_cast<std::size_t>(out.sequence) : 0];
}

/// The cache that a read takes, or the codes that were stored in a recording.
const Tensor* cache_of(Values& values, const Op& op, const Tensor& out) {
  const std::string letter = out.role.substr(0, 1);
  const Tensor* cache = values.run().input(op, letter + "_cache");
  if (cache != nullptr) return cache;
  const Op* store = values.run().find_op(op.step, op.layer, "kv_store");
  return store != nullptr ? values.run().output(*store, letter + "_codes") : nullptr;
}

}  // namespace

std::vector<OpForm> faults_kv_read(Values& values, const Op& op, const Tensor& out) {
  const Tensor* cache = cache_of(values, op, out);
  if (cache == nullptr || !holds_codes(cache->format)) return {};
  std::vector<OpForm> forms = reading_faults(cache->format, true, "codes", "read");
  const Step* step = values.run().step(op.step);
  if (step == nullptr) return forms;
  for (const Step* other : values.recomputer().ranks().others(*step)) {
    forms.push_back({.text = fmt::format("the scale of rank {}", other->rank),
                     .variant = kScaleOfRank,
                     .shift = static_cast<int>(other->rank),
                     .fault = true,
                     .about = About::scale});
  }
  return forms;
}

namespace {

/// What the ledger says of the store of some codes, or of the same store on another rank.
const ScaleRow* ledger_of(Values& values, const Tensor& codes, const OpForm& form, const std::string& letter) {
  RunView& run = values.run();
  const Op* store = run.maker(codes);
  const Step* step = run.step(codes.step);
  if (form.variant == kScaleOfRank && store != nullptr && step != nullptr) {
    const Op* own = store;
    store = nullptr;
    for (const Step* other : values.recomputer().ranks().others(*step)) {
      if (other->rank == form.shift) store = run.find_op(other->id, own->layer, own->name);
    }
  }
  return store != nullptr ? values.facts().scale_of(store->id, letter) : nullptr;
}

/// Rows that were stored under a scheme, read back: of those that are kept beside codes the ones that have none yet.
class SchemeReads {
 public:
  SchemeReads(Values& values, const Op& read, const std::string& letter) : values_(values), letter_(letter) {
    const auto* how = read.get<KvReadAttributes>();
    if (how == nullptr || !how->scheme_k) return;
    stated_ = true;
    from_ = letter == "k" ? how->coded_from_k : how->coded_from_v;
    end_ = letter == "k" ? how->coded_end_k : how->coded_end_v;
  }

  bool stated() const { return stated_; }

  void predict(const StoredRow& stored, std::int64_t position, std::int64_t at, const OpForm& form, const Tensor& out,
               Prediction& into) {
    if (from_ && end_ && position >= *from_ && position < *end_) return;  // quantized by another op, of another step
    const Fact<TensorData> data = values_.run().read(*stored.codes, stored.row, 1);
    const Of& of = scales_of(*stored.codes);
    if (!data || data->channels != out.channels || (holds_codes(stored.codes->format) && !of.scale.grid)) return;
    const double u = 1.01 * roundoff(values_.precision(out)) + 4 * kF32;
    const double least = least_error(stored_format(values_, out));
    const std::vector<float> read = data->values_as(form.as.value_or(stored.codes->format));
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto index = static_cast<std::size_t>(at * out.channels + c);
      const double code = double{read[static_cast<std::size_t>(c)]};
      const double s = of.scale.grid ? powered(of.scale.at(stored.row, stored.row, c), form.scale_power) : 1;
      const double zero = of.form.zero(stored.row, c);
      const double value = of.form.zero_is_value ? code * s + zero : (code - zero) * s;
      const double parts = std::abs(code * s) + std::abs(of.form.zero_is_value ? zero : zero * s);
      into.value[index] = static_cast<float>(value);
      const double bound = u * parts + least;
      into.bound[index] = std::isfinite(bound) ? static_cast<float>(bound) : -1.0F;
    }
  }

 private:
  struct Of {
    RowScale scale;
    SchemeForm form;
  };

  const Of& scales_of(const Tensor& codes) {
    const auto [known, is_new] = of_.try_emplace(codes.id);
    const Op* store = is_new ? values_.run().maker(codes) : nullptr;
    if (store != nullptr && holds_codes(codes.format))
      known->second = {row_scale(values_, *store, letter_ + "_scale", codes),
                       scheme_form(values_.run(), *store, codes, letter_)};
    return known->second;
  }

  Values& values_;
  std::string letter_;
  bool stated_ = false;
  std::optional<std::int64_t> from_, end_;
  std::unordered_map<TensorId, Of> of_;
};

}  // namespace

std::int64_t cost_kv_read(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 2; }

bool predict_kv_read(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                     std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const std::string letter = out.role.substr(0, 1);
  const Tensor* cache = run.input(op, letter + "_cache");
  const Step* step = run.step(out.step);
  if (step == nullptr || step->spans.empty()) return false;
  const Span& reader = own_span(*step, out);
  if (form.variant == kFresh) return read_fresh(values, op, out, reader, first, count, into);
  if (cache != nullptr && !cache->known) {
    why = "the cache was not dumped";
    return false;
  }
  const RowScale whole = cache != nullptr ? row_scale(values, op, letter + "_scale", *cache) : RowScale{};
  const bool codes = cache != nullptr && holds_codes(cache->format);
  if (codes && !whole.grid) {
    why = "the scale of the cache was not dumped";
    return false;
  }
  if (cache != nullptr && cache->axis == out.axis && cache->tokens == out.tokens) {
    return read_back(values, *cache, whole, out, form, first, count, into);
  }
  into.resize(count, out.channels);
  const double u = 1.01 * roundoff(values.precision(out)) + 4 * kF32;
  const double least = least_error(stored_format(values, out));
  std::fill(into.bound.begin(), into.bound.end(), -1.0F);
  const auto rows = cache != nullptr ? std::optional<StepRows>(std::in_place, values, *cache, whole) : std::nullopt;
  SchemeReads reads(values, op, letter);
  for (std::int64_t t = 0; t < count; ++t) {
    const KeyRow key = values.facts().cache.key_row(out, *step, reader, first + t, op.layer);
    if (key.given_back) continue;  // what stands there instead is the server's affair
    const Tensor* from = nullptr;
    std::int64_t row = 0;
    std::int64_t step_row = 0;
    double scale = 1;
    if (cache != nullptr) {
      const auto slot = values.facts().cache.row_of(*cache, *step, reader, key.position);
      const auto own = slot ? rows->of(*slot) : std::nullopt;
      if (!own) continue;
      step_row = *own;
      from = cache;
      row = *slot;
    } else if (key.writer != nullptr && key.slot) {
      const auto stored = values.facts().cache.stored_row(*key.writer, *key.slot, op.layer, letter);
      if (stored && reads.stated()) {
        reads.predict(*stored, key.position, t, form, out, into);
        continue;
      }
      const ScaleRow* ledger = stored ? ledger_of(values, *stored->codes, form, letter) : nullptr;
      if (!stored || ledger == nullptr || values.facts().scale_by_row(*ledger)) continue;
      from = stored->codes;
      row = stored->row;
      scale = ledger->scale;
    } else if (const auto kept = stored_as_it_is(values, op, out, reader, key.position)) {
      std::tie(from, row) = *kept;
    }
    if (from == nullptr) continue;
    const Fact<TensorData> data = run.read(*from, row, 1);
    if (!data || data->channels != out.channels) continue;
    const std::vector<float> read = data->values_as(form.as.value_or(from->format));
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      const double s = cache != nullptr ? whole.at(row, step_row, c) : scale;
      const double value = double{read[static_cast<std::size_t>(c)]} * powered(s, form.scale_power);
      into.value[at] = static_cast<float>(value);
      into.bound[at] = static_cast<float>(u * std::abs(value) + least);
    }
  }
  return true;
}

}  // namespace nanscope
