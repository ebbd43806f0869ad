#include "instrument/diagnosis/chain.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "instrument/diagnosis/chain_events.h"
#include "instrument/diagnosis/why.h"

namespace nanscope {
namespace {

constexpr std::size_t kMostWalks = 32;
constexpr std::size_t kMostEvents = 64;

bool shows(const Fault& fault, std::int64_t op) {
  return op != 0 && std::binary_search(fault.ops.begin(), fault.ops.end(), op);
}

class ChainBuilder {
 public:
  ChainBuilder(Facts& facts, const std::vector<Fault>& faults) : facts_(facts), faults_(faults) {}

  std::vector<Event> run() {
    for (std::size_t i = 0; i < faults_.size() && events_.size() < kMostEvents; ++i) add_fault(i);
    add_end("cache", [](const Op& op, const Tensor&) { return op.kind == OpKind::kv_store; });
    add_end("logits", [](const Op&, const Tensor& tensor) { return tensor.role == "logits"; });
    return in_order();
  }

 private:
  using Link = std::optional<std::size_t>;

  /// What led to a fault, and the fault.
  void add_fault(std::size_t index) {
    const Fault& fault = faults_[index];
    const Link cause = fault.because ? Link(of_fault_.at(*fault.because)) : Link();
    const Link before = walks_++ < kMostWalks ? add_way(index, cause) : cause;
    Event event;
    event.kind = fault.fault_class;
    event.where = fault.where;
    event.tensor = fault.tensor;
    event.text = fault.summary;
    event.evidence = fault.evidence;
    event.fault = index;
    of_fault_[index] = add(std::move(event), before);
    order_.back() = fault.ops.empty() ? fault.where.op_id : fault.ops.front();
    if (const Tensor* tensor = facts_.run.tensor(fault.where.tensor_id); tensor != nullptr && tensor->known)
      add_own(*tensor, fault, of_fault_[index]);
    if (fault.fault_class == "argmax-nan-fallback") add_token_of(fault, of_fault_[index]);
  }

  /// What a fault's own cast made of the values, or that what it made was stored.
  void add_own(const Tensor& tensor, const Fault& fault, std::size_t because) {
    Hop hop;
    const Element at = element_of(fault, tensor);
    hop.where = facts_.where(tensor, Range{at.row, at.row});
    hop.bad = RunView::symptomatic(tensor);
    if (hop.bad && !bad_kind(facts_, hop).ends_with("-in-cache")) return;
    Link link = because;
    for (Event& event : events_at(facts_, hop)) link = add(std::move(event), link);
  }

  /// The events on the way from a fault's cause to it; of a root, what set it up.
  Link add_way(std::size_t index, Link cause) {
    const Fault& fault = faults_[index];
    const Tensor* tensor = facts_.run.tensor(fault.where.tensor_id);
    if (tensor == nullptr || !tensor->known) return cause;
    const WhyPath path = walk(facts_, way_begins(fault, *tensor));
    return fault.because ? add_hops(path, fault.ops, faults_[*fault.because].ops, cause) : add_setting(path, fault);
  }

  Element element_of(const Fault& fault, const Tensor& tensor) {
    std::int64_t row = 0;
    const Step* step = facts_.run.step(tensor.step);
    if (step != nullptr && fault.where.tokens) {
      for (const Span& span : step->spans) {
        if (span.request == fault.where.request)
          row = facts_.run.row_at(tensor, span, fault.where.tokens->first).value_or(0);
      }
    }
    if (RunView::symptomatic(tensor)) return first_bad_element(facts_, tensor, row);
    if (!fault.where.tokens) row = first_clipped(tensor);
    if (fault.where.channels) return {tensor.id, row, fault.where.channels->first};
    // What was cut off is among the largest.
    const auto values = facts_.run.row_values(tensor, row);
    if (!values || values->empty()) return {tensor.id, row, 0};
    const auto largest =
        std::max_element(values->begin(), values->end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    return {tensor.id, row, largest - values->begin()};
  }

  /// What makes numbers of NaN shows none itself: the way to it begins at the NaN that its op read.
  Element way_begins(const Fault& fault, const Tensor& tensor) {
    const Element at = element_of(fault, tensor);
    const Op* op = facts_.run.maker(tensor);
    if (op == nullptr || !fault.because || RunView::symptomatic(tensor)) return at;
    for (const Input& input : op->inputs) {
      const Tensor* in = facts_.run.tensor(input.tensor);
      if (in == nullptr || !in->known || !RunView::symptomatic(*in)) continue;
      const std::vector<std::int64_t> bad = facts_.run.bad_rows(*in);
      const auto row = facts_.run.same_row(tensor, at.row, *in);
      if (row && std::binary_search(bad.begin(), bad.end(), *row)) return first_bad_element(facts_, *in, *row);
    }
    return at;
  }

  std::int64_t first_clipped(const Tensor& tensor) {
    const std::vector<Health>& rows = facts_.run.rows(tensor);
    const auto row = std::find_if(rows.begin(), rows.end(), [](const Health& health) { return health.clipped > 0; });
    return row == rows.end() ? 0 : row - rows.begin();
  }

  /// Hops between an effect and its cause, of each kind of event the first.
  Link add_hops(const WhyPath& path, const std::vector<OpId>& effect, const std::vector<OpId>& cause, Link link) {
    // What a fault's own op made is told by the fault; what its cause's op made of the values is not. The walk follows
    // one of several ways, which may lead past the cause.
    const auto at_cause = [&](const Hop& hop) {
      return hop.kind == HopKind::element && std::binary_search(cause.begin(), cause.end(), hop.where.op_id);
    };
    auto end = std::find_if(path.hops.begin(), path.hops.end(), [&](const Hop& hop) {
      return at_cause(hop) || (!cause.empty() && hop.where.op_id < cause.front());
    });
    if (end != path.hops.end() && at_cause(*end)) ++end;
    std::vector<std::string> told;
    for (auto hop = std::make_reverse_iterator(end); hop != path.hops.rend(); ++hop) {
      const bool own = std::binary_search(effect.begin(), effect.end(), hop->where.op_id);
      const bool first = std::binary_search(cause.begin(), cause.end(), hop->where.op_id);
      const bool end_itself = effect.empty() && std::next(hop) == path.hops.rend();
      if (own || (first && hop->bad && !end_itself)) continue;
      const std::string kind = bad_kind(facts_, *hop);
      if (hop->bad && (kind.empty() || std::find(told.begin(), told.end(), kind) != told.end())) continue;
      for (Event& event : events_at(facts_, *hop)) {
        if (std::find(told.begin(), told.end(), event.kind) != told.end()) continue;
        told.push_back(event.kind);
        link = add(std::move(event), link);
      }
    }
    return link;
  }

  /// The setting behind a root: where its scale came from, and past its origin what the values went through.
  Link add_setting(const WhyPath& path, const Fault& fault) {
    Link link;
    for (auto hop = path.hops.rbegin(); hop != path.hops.rend(); ++hop) {
      if (hop->kind == HopKind::scale) {
        const ScaleRow* scale = facts_.scale_of(hop->where.op_id, hop->where.role);
        if (scale == nullptr) continue;
        for (Event& event : scale_events(facts_, *scale)) link = add(std::move(event), link);
        continue;
      }
      const auto number = static_cast<std::size_t>(path.hops.rend() - hop) - 1;
      const bool leads_here = hop->bad || (path.origin && number > *path.origin);
      if (number == 0 || !leads_here || shows(fault, hop->where.op_id)) continue;
      for (Event& event : events_at(facts_, *hop)) link = add(std::move(event), link);
    }
    return link;
  }

  /// Of the first request that asked for one: nobody gets the answer of a warm-up or a dummy batch.
  void add_token_of(const Fault& fault, std::size_t because) {
    for (const OpId id : fault.ops) {
      const Op* op = facts_.run.op(id);
      const Step* step = op != nullptr ? facts_.run.step(op->step) : nullptr;
      if (step == nullptr || step->request() < 0) continue;
      add_token(step->request(), step->id, because);
      return;
    }
  }

  void add_token(std::int64_t request, StepId step, std::size_t because) {
    if (auto token = token_event(facts_, request, step)) add(std::move(*token), because);
  }

  /// The first bad tensor of a kind that no event tells of, with what led to it: what is stored in a cache outlives its
  /// request, what is in the logits is the answer.
  template <class Wanted>
  void add_end(std::string_view kind, const Wanted& wanted) {
    const auto told = [&](const Event& event) { return event.kind.ends_with(kind) && !event.fault; };
    if (faults_.empty() || std::any_of(events_.begin(), events_.end(), told)) return;
    for (const StepId step : facts_.run.bad_steps()) {
      for (const Tensor& tensor : facts_.run.content(step).tensors) {
        const Op* op = facts_.run.maker(tensor);
        if (op == nullptr || !tensor.known || !RunView::symptomatic(tensor) || !wanted(*op, tensor)) continue;
        const std::vector<std::int64_t> rows = facts_.run.bad_rows(tensor);
        const auto row =
            std::find_if(rows.rbegin(), rows.rend(), [&](std::int64_t one) { return facts_.live(tensor, one); });
        if (row != rows.rend() && end_at(first_bad_element(facts_, tensor, *row))) return;
      }
    }
  }

  /// False when no fault is on the way there.
  bool end_at(const Element& element) {
    const WhyPath path = walk(facts_, element);
    for (const Hop& hop : path.hops) {
      for (std::size_t i = faults_.size(); i-- > 0;) {
        if (!of_fault_.contains(i) || !shows(faults_[i], hop.where.op_id)) continue;
        const Link last = add_hops(path, {}, faults_[i].ops, of_fault_.at(i));
        const Tensor& tensor = *facts_.run.tensor(element.tensor);
        const RowToken token = facts_.run.token_of(tensor, element.row);
        if (last && token.span != nullptr && token.span->request >= 0 && tensor.role == "logits")
          add_token(token.span->request, tensor.step, *last);
        return true;
      }
    }
    return false;
  }

  /// An event that is there already is not told again.
  std::size_t add(Event event, Link because) {
    const auto key = std::pair(std::pair(event.where.op_id, event.where.role), event.kind);
    if (const auto known = known_.find(key); known != known_.end() && !event.fault) return known->second;
    event.because = because;
    order_.push_back(event.where.op_id);
    events_.push_back(std::move(event));
    known_.emplace(key, events_.size() - 1);
    return events_.size() - 1;
  }

  /// In order of execution, as far as no event comes before the one that it is because of.
  std::vector<Event> in_order() {
    std::vector<std::size_t> by_op(events_.size());
    std::iota(by_op.begin(), by_op.end(), std::size_t{0});
    std::stable_sort(by_op.begin(), by_op.end(), [&](std::size_t a, std::size_t b) { return order_[a] < order_[b]; });
    std::vector<std::size_t> place(events_.size());
    for (std::size_t i = 0; i < by_op.size(); ++i) place[by_op[i]] = i;
    const bool causal = std::all_of(by_op.begin(), by_op.end(), [&](std::size_t i) {
      return !events_[i].because || place[*events_[i].because] < place[i];
    });
    if (!causal) return std::move(events_);
    std::vector<Event> sorted;
    for (const std::size_t i : by_op) {
      sorted.push_back(std::move(events_[i]));
      if (sorted.back().because) sorted.back().because = place[*sorted.back().because];
    }
    return sorted;
  }

  Facts& facts_;
  const std::vector<Fault>& faults_;
  std::vector<Event> events_;
  std::vector<OpId> order_;  ///< one an event: the op where it stands in the run
  std::map<std::size_t, std::size_t> of_fault_;
  std::map<std::pair<std::pair<std::int64_t, std::string>, std::string>, std::size_t> known_;
  std::size_t walks_ = 0;
};

}  // namespace

std::vector<Event> chain_of(Facts& facts, const std::vector<Fault>& faults) {
  return ChainBuilder(facts, faults).run();
}

}  // namespace nanscope
