#include "core/diagnosis/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "core/diagnosis/provenance/rule.h"
#include "core/diagnosis/provenance/walk.h"
#include "core/diagnosis/stale_bits.h"
#include "core/numbers/codec.h"
#include "core/place.h"
#include "core/recording/names.h"

namespace nanscope {
namespace {

constexpr std::size_t kMaxHops = 512;

std::string requested_by(Facts& facts, std::int64_t step_id, std::int64_t request) {
  if (const StepRow* step = facts.run.step(step_id)) return request_text(*step);
  return fmt::format("request {}", request);
}

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
    const std::optional<TensorRow> tensor = facts_.run.tensor(element.tensor);
    const std::optional<OpRow> op = tensor ? facts_.run.op(tensor->op) : std::nullopt;
    const StepRow* step = op ? facts_.run.step(op->step) : nullptr;
    if (step == nullptr) {
      path_.stopped = "what made this element was not recorded";
      return std::nullopt;
    }
    Subject subject{facts_, *op, *step, *tensor, element, facts_.elements(*tensor), false};
    Hop hop = make_hop(subject);
    subject.bad = hop.bad;
    const Rule rule = provenance_rule(op->kind);
    Explanation found;
    if (rule == nullptr) {
      found.text = fmt::format("no rule says how '{}' made it", op->kind);
    } else {
      found = rule(subject);
    }
    hop.text = found.text;
    hop.numbers = std::move(found.numbers);
    path_.hops.push_back(std::move(hop));
    if (found.origin && !path_.origin) path_.origin = path_.hops.size() - 1;
    if (path_.origin && !found.danger) {
      path_.stopped = "past the origin nothing dangerous leads on";
      return std::nullopt;
    }
    return follow(subject, found);
  }

  std::optional<Element> follow(const Subject& subject, const Explanation& found) {
    if (found.scale) {
      add_scale(subject, *found.scale);
      path_.stopped = "the scale ledger is where the setting shows";
      return std::nullopt;
    }
    if (found.key) return add_slot(subject, *found.key);
    if (!found.weight.empty()) {
      add_weight(found.weight);
      path_.stopped = "a weight is bad";
      return std::nullopt;
    }
    if (!found.element) path_.stopped = "nothing before it was recorded";
    return found.element;
  }

  Hop make_hop(const Subject& subject) {
    Hop hop;
    const Element& at = subject.element;
    hop.where = facts_.where(subject.tensor, Range{at.row, at.row}, Range{at.channel, at.channel});
    hop.op_kind = subject.op.kind;
    hop.format = subject.tensor.format;
    if (subject.data && at.row < subject.data->tokens && at.channel < subject.data->channels) {
      hop.code = subject.data->code(at.row, at.channel);
      hop.value = subject.data->value(at.row, at.channel);
      hop.bad = is_bad(*hop.value);
    } else {
      hop.bad = facts_.row_bad(subject.tensor, at.row);
    }
    return hop;
  }

  std::optional<Element> add_slot(const Subject& subject, const KeyRow& key) {
    Hop hop;
    hop.kind = HopKind::slot;
    hop.where = path_.hops.back().where;
    hop.bad = subject.bad;
    hop.numbers = {{"block", key.slot->block}, {"slot", key.slot->slot}};
    const std::string place = fmt::format("block {} slot {}", key.slot->block, key.slot->slot);
    const KvRow* writer = key.writer;
    if (writer == nullptr || writer->action == KvAction::scrubbed) {
      hop.text = place + (writer == nullptr ? " was never written" : " was scrubbed and not written since");
      finish_at_slot(std::move(hop), subject.bad);
      return std::nullopt;
    }
    hop.format = writer->format;
    const std::string by = requested_by(facts_, writer->step, writer->request);
    hop.numbers.push_back({"written by request", writer->request});
    hop.numbers.push_back({"written as", std::string(name(writer->format))});
    hop.text = fmt::format("{} was last written by {} ({}, as {})", place, by, writer->writer, name(writer->format));
    if (writer->request != subject.step.request) {
      hop.text += fmt::format(", {} request {}", way_of(subject, key), subject.step.request);
      hop.numbers.push_back({"read by request", subject.step.request});
    }
    const std::optional<Element> codes = stored_element(subject, key);
    const std::string target = subject.tensor.role.substr(0, 1);
    const std::optional<StaleBits> stale =
        codes ? std::nullopt : stale_bits(facts_, subject.step, subject.op.layer, target, key, subject.element.channel);
    if (stale) {
      hop.text += "; " + text_of(*stale);
      hop.format = stale->format;
      hop.code = stale->code;
      hop.value = decode(stale->format, stale->code);
      path_.hops.push_back(std::move(hop));
      if (subject.bad && !path_.origin) path_.origin = path_.hops.size() - 1;
      return Element{stale->state.id, stale->row, stale->channel};
    }
    if (!codes) {
      if (subject.bad) hop.text += fmt::format("; its bits are read as another format: {}", nan_codes(subject));
      finish_at_slot(std::move(hop), subject.bad);
      return std::nullopt;
    }
    path_.hops.push_back(std::move(hop));
    return codes;
  }

  /// How a block that somebody else wrote came to the request. One that is nobody's is never freed.
  std::string_view way_of(const Subject& subject, const KeyRow& key) {
    const KvSlots& slots = facts_.slots();
    if (slots.shared(subject.step.request, key.slot->block, subject.step.id) != nullptr) {
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
    const std::string target = subject.tensor.role.substr(0, 1);
    const std::optional<StoredRow> stored = facts_.stored_row(*key.writer, *key.slot, subject.op.layer, target);
    if (!stored || subject.element.channel >= stored->codes.channels) return std::nullopt;
    return Element{stored->codes.id, stored->row, subject.element.channel};
  }

  /// The codes of the cache's format that mean NaN.
  std::string nan_codes(const Subject& subject) {
    const std::optional<OpRow> store = facts_.run.find_op(subject.step.id, subject.op.layer, "kv_store");
    const std::optional<TensorRow> codes =
        store ? facts_.run.output(store->id, subject.tensor.role.substr(0, 1) + "_codes") : std::nullopt;
    if (!codes) return "NaN";
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
    hop.op_kind = "scale";
    hop.format = scale.format;
    hop.bad = !std::isfinite(scale.scale);
    hop.numbers = {{"scale", scale.scale},
                   {"source", std::string(words::word(words::kScaleSources, scale.source))},
                   {"policy", scale.policy},
                   {"absmax now", scale.absmax},
                   {"headroom", scale.headroom}};
    const char* lock = scale.locked ? "locked" : "kept";
    if (scale.source == ScaleSource::calibrated) {
      hop.numbers.insert(hop.numbers.end(), {{"calibrated by request", scale.calibrated_request},
                                             {"calibrated on tokens", scale.calibrated_tokens},
                                             {"absmax then", scale.calibrated_absmax}});
      hop.text = fmt::format(
          "{} scale {:.6g} of layer {} was computed by {} from {} tokens with absmax {:.6g} and {}; here absmax is "
          "{:.6g}, headroom {:.3g}",
          scale.target, scale.scale, scale.layer, requested_by(facts_, scale.calibrated_step, scale.calibrated_request),
          scale.calibrated_tokens, scale.calibrated_absmax, lock, scale.absmax, scale.headroom);
    } else {
      hop.text =
          fmt::format("{} scale {} of layer {} is {} ({}); absmax is {:.6g}, headroom {:.3g}", scale.target,
                      to_string(EvidenceValue{scale.scale}), scale.layer,
                      words::word(words::kScaleSources, scale.source), scale.policy, scale.absmax, scale.headroom);
    }
    path_.hops.push_back(std::move(hop));
  }

  void add_weight(const std::string& weight_name) {
    Hop hop;
    hop.kind = HopKind::weight;
    hop.where.op = weight_name;
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
      text = fmt::format("NaN or Inf was born at {}: {}", place_text(origin.where), origin.text);
    } else {
      text = path_.hops.front().bad ? "the origin lies before what was recorded" : "the element is healthy";
    }
    if (last.kind == HopKind::scale) text += fmt::format("; the setting behind it: {}", last.text);
    path_.conclusion = std::move(text);
  }

  Facts& facts_;
  WhyPath path_;
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen_;
};

}  // namespace

WhyPath walk(Facts& facts, const Element& element) { return Walker(facts).run(element); }

Element first_bad_element(Facts& facts, const TensorRow& tensor, std::int64_t row) {
  Element element{tensor.id, row, 0};
  if (tensor.health.first_bad >= 0 && tensor.channels > 0 && row == 0) {
    element.row = tensor.health.first_bad / tensor.channels;
    element.channel = tensor.health.first_bad % tensor.channels;
    return element;
  }
  const std::shared_ptr<const TensorData> data = facts.elements(tensor);
  for (std::int64_t i = 0; data && row < data->tokens && i < data->channels; ++i) {
    if (!is_bad(data->value(row, i))) continue;
    element.channel = i;
    break;
  }
  return element;
}

Result<WhyPath> why(RunData& run, TensorSource& tensors, const Element& element) {
  Facts facts(run, tensors);
  const std::optional<TensorRow> tensor = run.tensor(element.tensor);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  if (!tensor) return fail(fmt::format("no tensor {}", element.tensor));
  if (element.row < 0 || element.row >= tensor->tokens || element.channel < 0 || element.channel >= tensor->channels) {
    return fail(fmt::format("element [{},{}] is outside tensor {} of {} x {}", element.row, element.channel,
                            element.tensor, tensor->tokens, tensor->channels));
  }
  WhyPath path = walk(facts, element);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return path;
}

Result<WhyPath> why(const Recording& recording, TensorSource& tensors, std::string_view place) {
  const Result<ResolvedPlace> resolved = resolve(recording, place);
  if (!resolved) return tl::unexpected(resolved.error());
  const TensorRow& tensor = resolved->tensor;
  RecordingRun run(recording);
  Element element{tensor.id, resolved->row.value_or(0), resolved->channel.value_or(0)};
  if (!resolved->channel && tensor.health.bad() > 0) {
    Facts facts(run, tensors);
    element = first_bad_element(facts, tensor, resolved->row.value_or(0));
  }
  return why(run, tensors, element);
}

}  // namespace nanscope
