#include "scenarios/dump_causality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/counted.h"
#include "core/place.h"
#include "instrument/recompute/bounds.h"
#include "scenarios/operand_name.h"

namespace nanscope::scenarios {
namespace {

constexpr std::string_view kClass = "future-leakage";

const Step* prefill_of(RunView& run, std::int64_t request) {
  for (const Step& step : run.steps()) {
    const bool own = std::any_of(step.spans.begin(), step.spans.end(),
                                 [request](const Span& span) { return span.request == request && span.rows > 1; });
    if (own) return &step;
  }
  return nullptr;
}

/// A pass of a run, and the output of another that is the same of it.
struct Pass {
  RunView& run;
  const Step& step;
};

struct Differing {
  double largest = 0;
  bool any = false;
};

Differing compare_rows(std::span<const float> left, std::span<const float> right, Format format) {
  const double u = info(format).bits <= 8 || format == Format::i32 ? 0 : roundoff(format);
  double largest = 0;
  double off = 0;
  for (std::size_t c = 0; c < left.size(); ++c) {
    const double p = double{left[c]};
    const double q = double{right[c]};
    if (p == q || (std::isnan(p) && std::isnan(q))) continue;
    off = std::isfinite(p - q) ? std::max(off, std::abs(p - q)) : HUGE_VAL;
    largest = std::max({largest, std::abs(p), std::abs(q)});
  }
  return {off, off > 4 * u * largest};
}

class TwinCheck {
 public:
  TwinCheck(Pass a, Pass b, std::int64_t request) : a_(a), b_(b), request_(request) {}

  Result<TwinCausality> run() {
    TwinCausality made;
    made.request = request_;
    made.tokens = b_.step.tokens();
    const std::optional<std::int64_t> changed = first_changed();
    if (!changed) return fail("the prompts are the same; give two that differ in a later token");
    made.changed = *changed;
    if (*changed <= first_position()) {
      return fail(fmt::format("the prompts differ from token {} on, the first: there is none before it", *changed));
    }
    for (const Op& op : b_.run.content(b_.step.id).ops) {
      if (op.kind == OpKind::parameter || op.kind == OpKind::attention_scores) continue;
      for (const TensorId id : op.outputs) compare(op, *b_.run.tensor(id), made);
    }
    for (RunView* run : {&a_.run, &b_.run}) {
      if (Status status = run->status(); !status) return tl::unexpected(status.error());
    }
    if (made.compared == 0) return fail("they have no output of a token in common");
    return made;
  }

 private:
  const Tensor* twin_of(const Op& op, const Tensor& out) {
    const Op* other = a_.run.find_op(a_.step.id, op.layer, op.name);
    const Tensor* twin = other != nullptr ? a_.run.output(*other, out.role) : nullptr;
    const bool alike = twin != nullptr && twin->known && out.known && !twin->stated && !out.stated &&
                       twin->tokens == out.tokens && twin->channels == out.channels && twin->axis == out.axis;
    const bool of_tokens = out.axis != Axis::none && out.axis != Axis::slots && out.axis != Axis::ends;
    return alike && of_tokens ? twin : nullptr;
  }

  std::optional<std::int64_t> position(const Tensor& tensor, std::int64_t row) {
    if (tensor.axis == Axis::keys) return tensor.first_token + row;
    const RowToken token = b_.run.token_of(tensor, row);
    if (token.span == nullptr || token.span->request != request_) return std::nullopt;
    return token.position;
  }

  std::int64_t first_position() const {
    for (const Span& span : b_.step.spans) {
      if (span.request == request_) return span.first_token;
    }
    return 0;
  }

  /// By what is first of both: ids, the embedding, or the first norm.
  std::optional<std::int64_t> first_changed() {
    for (const Op& op : b_.run.content(b_.step.id).ops) {
      const Tensor* out = b_.run.result(op);
      if (out == nullptr || (op.kind == OpKind::parameter && op.name != "tokens")) continue;
      const Tensor* twin = twin_of(op, *out);
      if (twin == nullptr || out->axis != Axis::rows) continue;
      for (std::int64_t row = 0; row < out->tokens; ++row) {
        const auto at = position(*out, row);
        const auto left = a_.run.row_values(*twin, row);
        const auto right = b_.run.row_values(*out, row);
        if (at && left && right && *left != *right) return at;
      }
      return std::nullopt;
    }
    return std::nullopt;
  }

  void compare(const Op& op, const Tensor& out, TwinCausality& made) {
    const Tensor* twin = twin_of(op, out);
    if (twin == nullptr) return;
    EarlyDifference found;
    for (std::int64_t row = 0; row < out.tokens; ++row) {
      const auto at = position(out, row);
      if (!at || *at >= made.changed) continue;
      const auto left = a_.run.row_values(*twin, row);
      const auto right = b_.run.row_values(out, row);
      if (!left || !right) return;
      const Differing one = compare_rows(*left, *right, out.format);
      if (!one.any) continue;
      if (found.rows++ == 0) found.first = *at;
      found.last = *at;
      found.largest = std::max(found.largest, one.largest);
    }
    ++made.compared;
    if (found.rows == 0) return;
    Place place;
    place.request = request_;
    place.step = b_.step.index();
    place.layer = op.layer.value_or(-1);
    place.op = op.name;
    place.role = out.role;
    place.token = found.first;
    found.place = to_string(place);
    found.name = out.name;
    found.operand = out.axis == Axis::keys || operand_of(op.name, out.role) != '\0';
    made.outputs.push_back(std::move(found));
  }

  Pass a_, b_;
  std::int64_t request_;
};

}  // namespace

std::int64_t TwinCausality::leaks() const {
  return std::count_if(outputs.begin(), outputs.end(), [](const EarlyDifference& one) { return !one.operand; });
}

Result<TwinCausality> compare_twins(RunView& a, RunView& b, std::int64_t request) {
  const Step* left = prefill_of(a, request);
  const Step* right = prefill_of(b, request);
  if (left == nullptr || right == nullptr) {
    return fail(fmt::format("the {} run has no pass over several tokens of request {}",
                            left == nullptr ? "first" : "second", request));
  }
  if (left->rows != right->rows) {
    return fail(fmt::format("their prompts have {} and {}; give two of one length that differ in a later token",
                            counted(left->rows, "token"), counted(right->rows, "token")));
  }
  return TwinCheck({a, *left}, {b, *right}, request).run();
}

Result<SeenCausality> seen_causality(const Analysis& analysis) {
  SeenCausality seen;
  for (const Fault& fault : analysis.diagnosis.faults) {
    if (fault.fault_class == kClass) seen.leaks.push_back(fault);
  }
  for (const nanscope::Check& check : analysis.diagnosis.checks) {
    if (check.fault_class != kClass) continue;
    if (check.state == Checked::not_in_dump && seen.leaks.empty()) {
      return fail(fmt::format("{}; or give another dump, of a prompt that differs in a later token", check.text));
    }
    seen.looked_at = check.text;
  }
  return seen;
}

}  // namespace nanscope::scenarios
