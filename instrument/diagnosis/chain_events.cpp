#include "instrument/diagnosis/chain_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/recording/names.h"
#include "core/run/scales.h"

namespace nanscope {
namespace {

/// How many rows of somebody a tensor has, and how many of them are bad.
struct Tokens {
  std::vector<std::int64_t> bad;
  std::int64_t all = 0;
  bool known = true;  ///< false: the tensor is bad, and which rows is not known
};

Tokens tokens_of(Facts& facts, const Tensor& tensor) {
  Tokens tokens;
  if (!RunView::symptomatic(tensor)) return tokens;
  tokens.known = !facts.run.rows(tensor).empty();
  if (!tokens.known) return tokens;
  for (const std::int64_t row : facts.run.bad_rows(tensor)) {
    if (facts.live(tensor, row)) tokens.bad.push_back(row);
  }
  for (std::int64_t row = 0; row < tensor.tokens; ++row) tokens.all += facts.live(tensor, row) ? 1 : 0;
  return tokens;
}

std::int64_t bad_count(const Tokens& tokens) { return static_cast<std::int64_t>(tokens.bad.size()); }

/// What stands for NaN and Inf in kinds and in sentences.
struct Bad {
  std::string_view kind;
  std::string_view word;
};

Bad bad_of(const Tensor& tensor) { return tensor.health.nan > 0 ? Bad{"nan", "NaN"} : Bad{"inf", "Inf"}; }

std::uint64_t bad_elements(const Tensor& tensor) {
  return may_hide(tensor.role) ? tensor.health.nan + tensor.health.pos_inf : tensor.health.bad();
}

/// Where a bad value goes through, by the op; empty for what is no news.
std::string_view passage(const Op& op, const Tensor& tensor) {
  if (tensor.role == "logits" || op.name == "lm_head") return "logits";
  switch (op.kind) {
    case OpKind::gemm:
    case OpKind::block_gemm:
      return op.name.find("gate") != std::string::npos || op.name.find("up") != std::string::npos ||
                     op.name.find("down") != std::string::npos || op.name.find("fc") != std::string::npos
                 ? "mlp"
                 : "projection";
    case OpKind::kv_store:
      return "cache";
    case OpKind::attention_scores:
      return "scores";
    case OpKind::softmax:
    case OpKind::softmax_partials:
      return "softmax";
    case OpKind::attention_mix:
    case OpKind::mix_partials:
    case OpKind::combine_partials:
    case OpKind::attention:
      return "attention";
    case OpKind::layer_norm:
      return "norm";
    case OpKind::residual_add:
      return "residual";
    default:
      return {};
  }
}

/// The stream that a residual sum adds to: the input with fewer bad rows.
std::optional<std::int64_t> bad_before(Facts& facts, const Op& op) {
  std::optional<std::int64_t> least;
  for (const Input& input : op.inputs) {
    const Tensor* in = facts.run.tensor(input.tensor);
    if (in == nullptr || !in->known || in->axis == Axis::none) continue;
    const Tokens tokens = tokens_of(facts, *in);
    const std::int64_t bad = tokens.known ? bad_count(tokens) : 1;  // at least
    least = std::min(least.value_or(bad), bad);
  }
  return least;
}

Event event_at(Facts& facts, std::string kind, const Tensor& tensor, const std::vector<std::int64_t>& rows) {
  Event event;
  event.kind = std::move(kind);
  event.where = facts.where(tensor, rows);
  event.tensor = facts.name_of(tensor);
  return event;
}

std::string share_text(const Tokens& tokens) {
  if (!tokens.known) return "some tokens";
  return fmt::format("{} of {}", bad_count(tokens), counted(tokens.all, "token"));
}

void tell_scores(Facts& facts, const Op& op, const Tensor& scores, Event& event, std::string_view word) {
  const Tensor* keys = facts.run.input(op, "k");
  const std::int64_t bad_keys =
      keys != nullptr && keys->known ? static_cast<std::int64_t>(facts.run.bad_rows(*keys).size()) : 0;
  const auto bad = static_cast<std::int64_t>(bad_elements(scores));
  event.evidence.push_back({"bad_elements", bad});
  event.evidence.push_back({"bad_keys", bad_keys});
  event.text = fmt::format("{} of {} scores are {}", bad, scores.count(), word);
  if (bad_keys > 0)
    event.text += fmt::format(": {} {} {}", counted(bad_keys, "key"), bad_keys == 1 ? "is" : "are", word);
}

void tell_softmax(Facts& facts, const Op& op, const Tensor& probs, const Tokens& tokens, Event& event,
                  std::string_view word) {
  const Tensor* scores = facts.run.input(op, "scores");
  const auto after = static_cast<std::int64_t>(bad_elements(probs));
  event.evidence.push_back({"bad_elements", after});
  event.text = fmt::format("the probabilities of {} are {} throughout: the sum of a row takes in every score",
                           share_text(tokens), word);
  if (scores == nullptr || !scores->known) return;
  const auto before = static_cast<std::int64_t>(bad_elements(*scores));
  event.evidence.push_back({"bad_elements_before", before});
  event.text += fmt::format(" ({} {} scores became {} {} probabilities)", before, word, after, word);
}

std::string layer_text(const Op& op) { return op.layer ? fmt::format(" of layer {}", *op.layer) : std::string(); }

/// A NaN or an Inf that goes through.
Event bad_event(Facts& facts, const Hop& hop, const Op& op, const Tensor& tensor) {
  const Bad bad = bad_of(tensor);
  const Tokens tokens = tokens_of(facts, tensor);
  Event event = event_at(facts, bad_kind(facts, hop), tensor, tokens.bad);
  if (tokens.known) event.evidence = {{"bad_tokens", bad_count(tokens)}, {"tokens", tokens.all}};
  const std::string_view where = passage(op, tensor);
  if (where == "scores") {
    tell_scores(facts, op, tensor, event, bad.word);
  } else if (where == "softmax") {
    tell_softmax(facts, op, tensor, tokens, event, bad.word);
  } else if (where == "residual") {
    const std::int64_t before = bad_before(facts, op).value_or(0);
    event.evidence.push_back({"bad_tokens_before", before});
    const std::string then =
        before == 0 ? "no token is" : fmt::format("{} {}", counted(before, "token"), before == 1 ? "is" : "are");
    event.text = fmt::format("{} {} before {}{}, {} {} after", then, bad.word, op.name, layer_text(op),
                             share_text(tokens), bad_count(tokens) == 1 ? "is" : "are");
  } else if (where == "cache") {
    event.evidence.push_back({"bad_elements", static_cast<std::int64_t>(bad_elements(tensor))});
    event.evidence.push_back({"format", std::string(name(tensor.format))});
    if (hop.code) event.evidence.push_back({"code", code_text(tensor.format, *hop.code)});
    event.text =
        fmt::format("{} of {} {} stored as {} in the KV cache{}, where later steps and requests read them",
                    bad_elements(tensor), counted(tensor.count(), "code"), bad_elements(tensor) == 1 ? "is" : "are",
                    bad.word, hop.code ? ", such as " + code_text(tensor.format, *hop.code) : std::string());
  } else if (where == "logits") {
    event.text = fmt::format("the logits of {} are {}: {} of {}", share_text(tokens), bad.word, bad_elements(tensor),
                             counted(tensor.count(), "logit"));
  } else {
    event.text = fmt::format("{} {} {} in {}{}", share_text(tokens), bad_count(tokens) == 1 ? "is" : "are", bad.word,
                             op.name, layer_text(op));
  }
  return event;
}

bool constant(const Health& row) { return row.finite() > 1 && row.bad() == 0 && row.min == row.max; }

/// Values of a cast that lie beyond its largest code.
std::optional<Event> clipped_event(Facts& facts, const Tensor& codes) {
  std::vector<std::int64_t> rows;
  const std::vector<Health>& health = facts.run.rows(codes);
  for (std::size_t row = 0; row < health.size(); ++row) {
    if (health[row].clipped > 0) rows.push_back(static_cast<std::int64_t>(row));
  }
  if (codes.health.clipped == 0) return std::nullopt;
  Event event = event_at(facts, "values-clipped", codes, rows);
  const FormatInfo& format = info(codes.format);
  const auto clipped = static_cast<std::int64_t>(codes.health.clipped);
  event.evidence = {{"clipped", clipped},
                    {"elements", codes.count()},
                    {"rows", static_cast<std::int64_t>(rows.size())},
                    {"largest_finite", double{format.max_finite}},
                    {"code", code_text(codes.format, format.max_finite_code)},
                    {"format", std::string(format.name)}};
  event.text =
      fmt::format("{} of {} are cut off at {:g}, raw code {}, in {}", clipped, counted(codes.count(), "value"),
                  format.max_finite, code_text(codes.format, format.max_finite_code), counted(rows.size(), "token"));
  return event;
}

/// A row of many values that a cast leaves with one.
std::optional<Event> identical_event(Facts& facts, const Op& op, const Tensor& tensor, std::int64_t at) {
  const std::vector<Health>& health = facts.run.rows(tensor);
  if (at < 0 || at >= static_cast<std::int64_t>(health.size()) || !constant(health[static_cast<std::size_t>(at)]))
    return std::nullopt;
  const Tensor* source = nullptr;
  for (const Input& input : op.inputs) {
    const Tensor* in = facts.run.tensor(input.tensor);
    const bool same_shape =
        in != nullptr && in->known && in->tokens == tensor.tokens && in->channels == tensor.channels;
    if (same_shape && (source == nullptr || input.role == tensor.role.substr(0, 1))) source = in;
  }
  const std::vector<Health>* before = source != nullptr ? &facts.run.rows(*source) : nullptr;
  if (before == nullptr || before->size() != health.size()) return std::nullopt;
  std::vector<std::int64_t> rows;
  for (std::size_t row = 0; row < health.size(); ++row) {
    if (constant(health[row]) && !constant((*before)[row])) rows.push_back(static_cast<std::int64_t>(row));
  }
  if (std::find(rows.begin(), rows.end(), at) == rows.end()) return std::nullopt;
  const Health& was = (*before)[static_cast<std::size_t>(at)];
  const Health& now = health[static_cast<std::size_t>(at)];
  Event event = event_at(facts, "values-identical", tensor, rows);
  event.evidence = {{"rows", static_cast<std::int64_t>(rows.size())},
                    {"channels", tensor.channels},
                    {"value", double{now.max}},
                    {"smallest_before", double{was.min}},
                    {"largest_before", double{was.max}}};
  event.text =
      fmt::format("{} of {} became one value: what lay between {:.4g} and {:.4g} is {:g} in all {} channels",
                  counted(rows.size(), "token"), facts.name_of(tensor), was.min, was.max, now.max, tensor.channels);
  return event;
}

/// The row of a tensor that a hop is about; -1 when it is nobody's.
std::int64_t row_of(Facts& facts, const Hop& hop, const Tensor& tensor) {
  const Step* step = facts.run.step(tensor.step);
  if (step == nullptr || !hop.where.tokens) return -1;
  for (const Span& span : step->spans) {
    if (span.request == hop.where.request) return facts.run.row_at(tensor, span, hop.where.tokens->first).value_or(-1);
  }
  return -1;
}

std::string run_of(Facts& facts, StepId id, std::int64_t request) {
  const Step* step = facts.run.step(id);
  return step != nullptr ? request_text(*step) : fmt::format("request {}", request);
}

Where where_of(Facts& facts, const ScaleRow& scale) {
  const Op* op = facts.run.op(scale.op);
  Where where = op != nullptr ? facts.where(*op) : Where{};
  where.role = scale.target;
  return where;
}

/// Of an attention's queries, keys and scores, which are all called x.
bool same_op_name(const Op* a, const Op* b) { return a == nullptr || b == nullptr || a->name == b->name; }

}  // namespace

std::string bad_kind(Facts& facts, const Hop& hop) {
  const Tensor* tensor = facts.run.tensor(hop.where.tensor_id);
  const Op* op = tensor != nullptr ? facts.run.maker(*tensor) : nullptr;
  if (op == nullptr || hop.kind != HopKind::element || !hop.bad || !tensor->known) return {};
  const std::string_view where = passage(*op, *tensor);
  if (where.empty()) return {};
  const Bad bad = bad_of(*tensor);
  if (where == "residual" && bad_before(facts, *op).value_or(0) > 0) {
    const bool more = bad_count(tokens_of(facts, *tensor)) > *bad_before(facts, *op);
    return more ? fmt::format("{}-spreads", bad.kind) : std::string();
  }
  return where == "logits" ? fmt::format("{}-logits", bad.kind) : fmt::format("{}-in-{}", bad.kind, where);
}

std::vector<Event> events_at(Facts& facts, const Hop& hop) {
  std::vector<Event> events;
  const Tensor* tensor = facts.run.tensor(hop.where.tensor_id);
  const Op* op = tensor != nullptr ? facts.run.maker(*tensor) : nullptr;
  if (op == nullptr || hop.kind != HopKind::element || !tensor->known) return events;
  if (hop.bad) {
    if (!bad_kind(facts, hop).empty()) events.push_back(bad_event(facts, hop, *op, *tensor));
    return events;
  }
  const bool casts = info(tensor->format).bits <= 8 || op->kind == OpKind::copy;
  if (!casts || tensor->axis == Axis::slots) return events;
  if (auto clipped = clipped_event(facts, *tensor)) events.push_back(std::move(*clipped));
  if (auto identical = identical_event(facts, *op, *tensor, row_of(facts, hop, *tensor)))
    events.push_back(std::move(*identical));
  return events;
}

std::vector<Event> scale_events(Facts& facts, const ScaleRow& scale) {
  std::vector<Event> events;
  const std::string what = "the " + scale_text(scale.target, scale.layer);
  const Op* op = facts.run.op(scale.op);
  if (scale.source != ScaleSource::calibrated) {
    Event set;
    set.kind = "scale-set";
    set.where = where_of(facts, scale);
    set.evidence = {{"scale", scale.scale}, {"policy", scale.policy}, {"format", std::string(name(scale.format))}};
    set.text = fmt::format("{} is {:.6g} ({}, policy {}), stored as {}", what, scale.scale,
                           words::word(words::kScaleSources, scale.source), scale.policy, name(scale.format));
    set.tensor = tensor_text(set.where);
    events.push_back(std::move(set));
    return events;
  }
  const ScaleRow* made = nullptr;
  const ScaleRow* kept = nullptr;
  std::int64_t uses = 0;
  for (const ScaleRow& one : facts.run.scales()) {
    const bool same = one.layer == scale.layer && one.target == scale.target &&
                      one.calibrated_step == scale.calibrated_step && one.source == scale.source &&
                      same_op_name(facts.run.op(one.op), op);
    if (!same || one.step > scale.step) continue;
    if (one.step == one.calibrated_step && made == nullptr) made = &one;
    if (one.step == one.calibrated_step) continue;
    if (kept == nullptr) kept = &one;
    ++uses;
  }
  Event computed;
  computed.kind = "scale-computed";
  computed.where = where_of(facts, made != nullptr ? *made : scale);
  computed.evidence = {{"scale", scale.scale},
                       {"calibrated_absmax", scale.calibrated_absmax},
                       {"calibrated_tokens", scale.calibrated_tokens},
                       {"policy", scale.policy},
                       {"format", std::string(name(scale.format))}};
  computed.text = fmt::format("{} is computed by {} from {}: absmax {:.4g}, scale {:.4g}, stored as {} (policy {})",
                              what, run_of(facts, scale.calibrated_step, scale.calibrated_request),
                              counted(scale.calibrated_tokens, "token"), scale.calibrated_absmax, scale.scale,
                              name(scale.format), scale.policy);
  computed.tensor = tensor_text(computed.where);
  events.push_back(std::move(computed));
  if (kept == nullptr) return events;
  Event held;
  held.kind = scale.locked ? "scale-locked" : "scale-kept";
  held.where = where_of(facts, *kept);
  held.evidence = {{"scale", scale.scale}, {"uses", uses}, {"absmax", scale.absmax}, {"headroom", scale.headroom}};
  held.text = fmt::format("{} is {}: {} since, up to {}, where absmax is {:.4g} and headroom {:.3g}", what,
                          scale.locked ? "locked and not computed again" : "kept",
                          uses == 1 ? "used once" : fmt::format("used {} times", uses),
                          run_of(facts, scale.step, scale.calibrated_request), scale.absmax, scale.headroom);
  held.tensor = tensor_text(held.where);
  events.push_back(std::move(held));
  return events;
}

std::optional<Event> token_event(Facts& facts, std::int64_t request, StepId of_step) {
  const Step* step = facts.run.step(of_step);
  if (step == nullptr) return std::nullopt;
  const auto span =
      std::find_if(step->spans.begin(), step->spans.end(), [&](const Span& one) { return one.request == request; });
  const RequestRow* row = facts.run.request(request);
  const std::vector<TokenRow> tokens = facts.run.tokens(request);
  // What a step chooses stands behind what it has seen.
  const auto first = std::find_if(tokens.begin(), tokens.end(), [&](const TokenRow& token) {
    return token.source == TokenSource::generated && span != step->spans.end() && token.position >= span->context;
  });
  if (row == nullptr || first == tokens.end()) return std::nullopt;
  std::int64_t times = 0;
  for (auto token = first; token != tokens.end() && token->token == first->token; ++token) ++times;
  Event event;
  event.kind = "token";
  for (const Op& op : facts.run.content(of_step).ops) {
    if (op.kind == OpKind::argmax) event.where = facts.where(op);
  }
  event.tensor = tensor_text(event.where);
  event.evidence = {{"token", std::int64_t{first->token}}, {"text", first->text}, {"times", times}};
  event.text = fmt::format("request {} answers token {}, '{}', {}", request, first->token, first->text,
                           times == 1 ? "once" : fmt::format("{} times in a row", times));
  return event;
}

}  // namespace nanscope
