#include "instrument/diagnosis/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "core/numbers/codec.h"
#include "core/recording/names.h"
#include "core/recording/weight_version.h"
#include "core/run/ranks.h"
#include "core/run/scales.h"
#include "instrument/diagnosis/provenance/cache.h"
#include "instrument/diagnosis/provenance/rule.h"
#include "instrument/diagnosis/stale_bits.h"

namespace nanscope {
namespace {

constexpr std::size_t kMaxHops = 512;

/// "k" of k_read, "v" of v_cache.
std::string target_of(const Tensor& tensor) { return tensor.role.substr(0, 1); }

/// Walks back hop by hop. Past the origin it goes on only while something dangerous is being followed.
class Walker {
 public:
  explicit Walker(Facts& facts) : facts_(facts) {}

  WhyPath run(Element element) {
    std::optional<Element> next = element;
    while (next) {
      if (path_.hops.size() >= kMaxHops) {
        path_.stopped = fmt::format("after {} hops", kMaxHops);
        break;
      }
      if (!seen_.insert({next->tensor, next->row, next->channel}).second) {
        path_.stopped = "the walk came back to an element that it had seen";
        break;
      }
      next = visit(*next);
    }
    conclude();
    return std::move(path_);
  }

 private:
  std::optional<Element> visit(const Element& element) {
    static const Step kOutside;
    const Tensor* tensor = facts_.run.tensor(element.tensor);
    const Op* op = tensor != nullptr ? facts_.run.maker(*tensor) : nullptr;
    const Step* step = op == nullptr ? nullptr : op->step == kBeforeSteps ? &kOutside : facts_.run.step(op->step);
    if (step == nullptr || !inside(*tensor, element)) {
      path_.stopped = "what made this element was not recorded";
      return std::nullopt;
    }
    Subject subject{facts_, *op, *step, *tensor, element, {}, {}, false};
    Hop hop = make_hop(subject);
    const Explanation found = tensor->known ? provenance_rule(op->kind)(subject) : explain_not_dumped(subject);
    hop.text = found.text;
    hop.numbers = found.numbers;
    path_.hops.push_back(std::move(hop));
    if (found.origin && !path_.origin) path_.origin = path_.hops.size() - 1;
    if (!found.end.empty()) {
      path_.stopped = found.end;
      return std::nullopt;
    }
    if (path_.origin && !found.danger) {
      path_.stopped = "past the origin nothing dangerous leads on";
      return std::nullopt;
    }
    return follow(subject, found);
  }

  /// Of what was not dumped, the width may not be known.
  static bool inside(const Tensor& tensor, const Element& element) {
    if (element.row < 0 || element.row >= tensor.tokens || element.channel < 0) return false;
    return !tensor.known || element.channel < tensor.channels;
  }

  std::optional<Element> follow(const Subject& subject, const Explanation& found) {
    if (found.scale != nullptr) {
      add_scale(subject, *found.scale);
      path_.stopped = "the scale ledger is where the setting shows";
      return std::nullopt;
    }
    if (found.key) return add_slot(subject, *found.key, found.reader);
    if (!found.weight.empty()) {
      add_weight(found.weight);
      if (const auto made = optimized(found.weight)) return made;
      path_.stopped = "a weight is bad";
      return std::nullopt;
    }
    if (!found.element) path_.stopped = "nothing before it was recorded";
    return found.element;
  }

  /// The optimizer's last step on the rank of a step, before it; kBeforeSteps where there is none.
  StepId optimizer_before(StepId step) {
    StepId last = kBeforeSteps;
    for (const Step& one : facts_.run.steps()) {
      if (one.id >= step) break;
      if (one.kind == StepKind::optimizer && one.rank == rank_of(facts_.run, step)) last = one.id;
    }
    return last;
  }

  /// The first bad element of a weight's version where the optimizer put it out, in its step before the first that
  /// reads it.
  std::optional<Element> optimized(std::string_view weight) {
    if (!is_later_version(weight)) return std::nullopt;
    RunView& run = facts_.run;
    for (const Op& op : run.content(optimizer_before(first_step_of_version(weight))).ops) {
      const bool same = std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Input& input) {
        return !input.weight.empty() && weight_of_version(input.weight) == weight_of_version(weight);
      });
      if (op.kind != OpKind::adamw || !same || op.outputs.empty()) continue;
      const Tensor* made = run.tensor(op.outputs.front());
      if (made == nullptr) return std::nullopt;
      return first_bad_element(facts_, *made);
    }
    return std::nullopt;
  }

  Hop make_hop(Subject& subject) {
    Hop hop;
    const Element& at = subject.element;
    const Tensor& tensor = subject.tensor;
    hop.where = facts_.where(tensor, Range{at.row, at.row}, Range{at.channel, at.channel});
    hop.tensor = facts_.name_of(tensor);
    hop.op_kind = subject.op.kind;
    hop.format = tensor.format;
    if (subject.op.kind == OpKind::parameter) hop.kind = is_scale(facts_, tensor) ? HopKind::scale : HopKind::weight;
    subject.code = hop.code = code_at(facts_, tensor, at.row, at.channel);
    if (hop.code) {
      hop.value = decode(tensor.format, *hop.code);
      hop.bad = is_bad(tensor, *hop.value);
    } else {
      hop.bad = tensor.known ? facts_.row_bad(tensor, at.row) : bad_behind(facts_, tensor, at.row).has_value();
    }
    subject.value = hop.value;
    subject.bad = hop.bad;
    return hop;
  }

  std::optional<Element> add_slot(const Subject& subject, const KeyRow& key, const Span* reader) {
    Hop hop;
    hop.kind = HopKind::slot;
    hop.where = path_.hops.back().where;
    hop.tensor = path_.hops.back().tensor;
    hop.bad = subject.bad;
    hop.numbers = {{"block", key.slot->block}, {"slot", key.slot->slot}};
    const std::string place = fmt::format("block {} slot {}", key.slot->block, key.slot->slot);
    const KvRow* writer = key.writer;
    if (writer == nullptr || writer->action == KvAction::scrubbed) {
      hop.text = writer == nullptr ? never_written(subject, place) : place + " was scrubbed and not written since";
      finish_at_slot(std::move(hop), subject.bad);
      return std::nullopt;
    }
    hop.format = writer->format;
    hop.numbers.push_back({"written by request", writer->request});
    hop.numbers.push_back({"written as", std::string(name(writer->format))});
    hop.text = fmt::format("{} was last written by {} ({}, as {})", place, written_by(*writer), writer->writer,
                           name(writer->format));
    if (reader != nullptr && writer->request != reader->request) {
      hop.text += fmt::format(", {} request {}", way_of(subject, key, *reader), reader->request);
      hop.numbers.push_back({"read by request", reader->request});
    }
    return is_cache_of_dump(subject) ? after_dumped_slot(subject, key, std::move(hop))
                                     : after_slot(subject, key, std::move(hop));
  }

  static bool is_cache_of_dump(const Subject& subject) { return subject.tensor.axis == Axis::slots; }

  /// On to what the slot's writer stored, as the recording has it.
  std::optional<Element> after_slot(const Subject& subject, const KeyRow& key, Hop hop) {
    const std::optional<Element> codes = stored_element(subject, key);
    const std::optional<StaleBits> stale = codes ? std::nullopt
                                                 : stale_bits(facts_, subject.step, subject.op.layer,
                                                              target_of(subject.tensor), key, subject.element.channel);
    if (stale) {
      hop.text += "; " + text_of(*stale);
      hop.format = stale->format;
      hop.code = stale->code;
      hop.value = decode(stale->format, stale->code);
      path_.hops.push_back(std::move(hop));
      if (subject.bad && !path_.origin) path_.origin = path_.hops.size() - 1;
      return Element{stale->state->id, stale->row, stale->channel};
    }
    if (!codes) {
      if (subject.bad) hop.text += fmt::format("; its bits are read as another format: {}", nan_codes(subject));
      finish_at_slot(std::move(hop), subject.bad);
      return std::nullopt;
    }
    path_.hops.push_back(std::move(hop));
    return codes;
  }

  /// On to the cache as the writing pass left it, or to what that pass computed.
  std::optional<Element> after_dumped_slot(const Subject& subject, const KeyRow& key, Hop hop) {
    const std::optional<Element> before = stored_elsewhere(subject, *key.writer, *key.slot);
    const Tensor* tensor = before ? facts_.run.tensor(before->tensor) : nullptr;
    if (tensor == nullptr) {
      hop.text += "; what that pass stored was not dumped";
      finish_at_slot(std::move(hop), subject.bad);
      return std::nullopt;
    }
    const bool bad = bad_channel(facts_, *tensor, before->row, before->channel, 1).has_value();
    if (subject.bad && !bad) {
      hop.text +=
          fmt::format("; what it stored is healthy ({}): {}", said_of(facts_, *tensor, before->row, before->channel),
                      is_cache(*tensor) ? "something wrote the slot since"
                                        : "storing it made it bad, or something wrote the slot since");
      finish_at_slot(std::move(hop), true);
      return std::nullopt;
    }
    path_.hops.push_back(std::move(hop));
    return before;
  }

  std::string never_written(const Subject& subject, const std::string& place) {
    if (!is_cache_of_dump(subject)) return place + " was never written";
    std::string text = fmt::format("no pass of the dump wrote {}", place);
    const Tensor* before = subject.bad ? bad_before(subject) : nullptr;
    if (before != nullptr) text += fmt::format("; it is bad in {} already", facts_.name_of(*before));
    return text;
  }

  std::string written_by(const KvRow& writer) {
    const Step* step = facts_.run.step(writer.step);
    if (step == nullptr) return fmt::format("request {}", writer.request);
    for (const Span& span : step->spans) {
      if (span.request == writer.request) return request_text(span);
    }
    return request_text(*step);
  }

  /// How a block that somebody else wrote came to the request. One that is nobody's is never freed.
  std::string_view way_of(const Subject& subject, const KeyRow& key, const Span& reader) {
    if (is_cache_of_dump(subject)) return "whose block is in the block table of";
    const KvSlots& slots = facts_.cache.slots();
    if (slots.shared(reader.request, key.slot->block, subject.step.id) != nullptr) {
      return "and shared by prefix with";
    }
    return slots.freed_since(*key.writer, subject.step.id) ? "freed, not scrubbed, and given to"
                                                           : "and stands for no block in the block table of";
  }

  void finish_at_slot(Hop hop, bool bad) {
    path_.hops.push_back(std::move(hop));
    if (bad && !path_.origin) path_.origin = path_.hops.size() - 1;
    path_.stopped = "the slot's bytes come from outside the recorded attention";
  }

  /// The code that the slot's writer stored; nothing when no recorded kv_store did.
  std::optional<Element> stored_element(const Subject& subject, const KeyRow& key) {
    const std::optional<StoredRow> stored =
        facts_.cache.stored_row(*key.writer, *key.slot, subject.op.layer, target_of(subject.tensor));
    if (!stored || subject.element.channel >= stored->codes->channels) return std::nullopt;
    return Element{stored->codes->id, stored->row, subject.element.channel};
  }

  /// The codes of the cache's format that mean NaN.
  std::string nan_codes(const Subject& subject) {
    const Op* store = facts_.run.find_op(subject.step.id, subject.op.layer, "kv_store");
    const Tensor* codes = store != nullptr ? facts_.run.output(*store, target_of(subject.tensor) + "_codes") : nullptr;
    if (codes == nullptr) return "NaN";
    const FormatInfo& format = info(codes->format);
    std::string text = fmt::format("in {} {}", format.name, code_text(codes->format, format.canonical_nan_code));
    if (format.specials == Specials::fn) {
      text += fmt::format(" or {}", code_text(codes->format, format.canonical_nan_code | (1U << (format.bits - 1))));
    }
    return text + " is NaN";
  }

  void add_scale(const Subject& subject, const ScaleRow& scale) {
    Hop hop;
    hop.kind = HopKind::scale;
    hop.where = facts_.where(subject.op);
    hop.where.role = scale.target;
    hop.tensor = tensor_text(hop.where);
    hop.format = scale.format;
    hop.bad = !std::isfinite(scale.scale);
    hop.numbers = {{"scale", scale.scale},
                   {"source", std::string(words::word(words::kScaleSources, scale.source))},
                   {"policy", scale.policy},
                   {"absmax now", scale.absmax},
                   {"headroom", scale.headroom}};
    const char* lock = scale.locked ? "locked" : scale.policy == "per_step" ? "taken for all rows of it" : "kept";
    if (scale.source == ScaleSource::calibrated) {
      hop.numbers.insert(hop.numbers.end(), {{"calibrated by request", scale.calibrated_request},
                                             {"calibrated on tokens", scale.calibrated_tokens},
                                             {"absmax then", scale.calibrated_absmax}});
      hop.text = fmt::format(
          "{} scale {:.6g} of layer {}{} was computed by {} from {} tokens with absmax {:.6g} and {}; here absmax is "
          "{:.6g}, headroom {:.3g}",
          target_without_head(scale.target), scale.scale, scale.layer, of_head(scale), calibrated_by(scale),
          scale.calibrated_tokens, scale.calibrated_absmax, lock, scale.absmax, scale.headroom);
    } else {
      hop.text = fmt::format("{} scale {} of layer {}{} is {} ({}); absmax is {:.6g}, headroom {:.3g}",
                             target_without_head(scale.target), to_string(EvidenceValue{scale.scale}), scale.layer,
                             of_head(scale), words::word(words::kScaleSources, scale.source), scale.policy,
                             scale.absmax, scale.headroom);
    }
    path_.hops.push_back(std::move(hop));
  }

  static std::string of_head(const ScaleRow& scale) {
    const std::int64_t head = head_of_target(scale.target);
    return head < 0 ? std::string() : fmt::format(" head {}", head);
  }

  std::string calibrated_by(const ScaleRow& scale) {
    const Step* step = facts_.run.step(scale.calibrated_step);
    const bool padding = scale.calibrated_request == kPaddingRows;
    if (padding && step != nullptr) return fmt::format("rows that pad {}", request_text(*step));
    for (std::size_t i = 0; step != nullptr && step->spans.size() > 1 && i < step->spans.size(); ++i) {
      if (step->spans[i].request != scale.calibrated_request) continue;
      return fmt::format("{}, in a step of {} requests,", request_text(step->spans[i]), step->spans.size());
    }
    return step != nullptr ? request_text(*step) : fmt::format("request {}", scale.calibrated_request);
  }

  void add_weight(const std::string& weight_name) {
    Hop hop;
    hop.kind = HopKind::weight;
    hop.where.op = weight_name;
    hop.tensor = weight_name;
    hop.bad = true;
    if (const WeightRow* weight = facts_.run.weight(weight_name)) {
      hop.format = weight->format;
      hop.numbers = {{"NaN", static_cast<std::int64_t>(weight->health.nan)},
                     {"Inf", static_cast<std::int64_t>(weight->health.pos_inf + weight->health.neg_inf)},
                     {"elements", static_cast<std::int64_t>(weight->health.count)}};
    }
    hop.text = fmt::format("weight {} holds NaN or Inf", weight_name);
    path_.hops.push_back(std::move(hop));
  }

  void conclude() {
    if (path_.hops.empty()) return;
    const Hop& last = path_.hops.back();
    std::string text;
    if (path_.origin) {
      const Hop& origin = path_.hops[*path_.origin];
      const bool from_outside = origin.kind == HopKind::slot && origin.tensor != tensor_text(origin.where);
      text =
          fmt::format("NaN or Inf {} at {}: {}", from_outside ? "came in" : "was born", place_of(origin), origin.text);
    } else {
      text = path_.hops.front().bad ? "the origin lies before what was recorded" : "the element is healthy";
    }
    if (last.kind == HopKind::scale && path_.hops.size() > 1) {
      text += fmt::format("; the setting behind it: {}", last.text);
    }
    path_.conclusion = std::move(text);
  }

  /// The place of an element, by the name that the producer gave its tensor.
  static std::string place_of(const Hop& hop) {
    const std::string whole = tensor_text(hop.where);
    const std::string place = place_text(hop.where);
    return hop.tensor.empty() || !place.starts_with(whole) ? place : hop.tensor + place.substr(whole.size());
  }

  Facts& facts_;
  WhyPath path_;
  std::set<std::tuple<TensorId, std::int64_t, std::int64_t>> seen_;
};

/// The first bad element of a row, if its elements can be had.
std::optional<Element> bad_element(Facts& facts, const Tensor& tensor, std::int64_t row) {
  const auto channel = has_values(facts, tensor, row) ? bad_channel(facts, tensor, row, 0, kWholeRow) : std::nullopt;
  return channel ? std::optional(Element{tensor.id, row, *channel}) : std::nullopt;
}

}  // namespace

WhyPath walk(Facts& facts, const Element& element) { return Walker(facts).run(element); }

Element first_bad_element(Facts& facts, const Tensor& tensor, std::int64_t row) {
  std::vector<std::int64_t> rows{row};
  if (row == 0) {
    const std::vector<std::int64_t> bad = facts.run.bad_rows(tensor);
    if (!bad.empty()) rows = {bad.front()};
  }
  if (const auto found = bad_element(facts, tensor, rows.front())) return *found;
  // Where elements cannot be had, a recording still says which is the first.
  const std::int64_t first = tensor.health.first_bad;
  const bool stated = tensor.name.empty() && row == 0 && first >= 0 && tensor.channels > 0;
  if (stated && first / tensor.channels < tensor.tokens && !has_values(facts, tensor, first / tensor.channels))
    return {tensor.id, first / tensor.channels, first % tensor.channels};
  return {tensor.id, rows.front(), 0};
}

std::optional<Element> first_bad(Facts& facts) {
  for (const StepId step : facts.run.bad_steps()) {
    for (const Tensor& tensor : facts.run.content(step).tensors) {
      if (!tensor.known || tensor.count() == 0 || !RunView::symptomatic(tensor)) continue;
      std::vector<std::int64_t> rows = facts.run.bad_rows(tensor);
      // Of statistics alone, the first row stands for all.
      if (rows.empty() && facts.run.rows(tensor).empty()) rows = {0};
      const auto somebodys =
          std::find_if(rows.begin(), rows.end(), [&](std::int64_t row) { return facts.live(tensor, row); });
      if (somebodys == rows.end()) continue;
      return bad_element(facts, tensor, *somebodys).value_or(Element{tensor.id, *somebodys, 0});
    }
  }
  return std::nullopt;
}

Result<WhyPath> why(RunView& run, const Element& element) {
  const Tensor* tensor = run.tensor(element.tensor);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  if (tensor == nullptr) return fail(fmt::format("no tensor {}", element.tensor));
  if (element.row < 0 || element.row >= tensor->tokens || element.channel < 0 || element.channel >= tensor->channels) {
    return fail(fmt::format("element [{},{}] is outside tensor {} of {} x {}", element.row, element.channel,
                            element.tensor, tensor->tokens, tensor->channels));
  }
  Facts facts(run);
  WhyPath path = walk(facts, element);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return path;
}

}  // namespace nanscope
