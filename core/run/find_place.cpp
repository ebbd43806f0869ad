#include "core/run/find_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>
#include <vector>

#include "core/near.h"
#include "core/place.h"

namespace nanscope {
namespace {

constexpr std::size_t kListed = 6;
constexpr std::size_t kMostNames = 20'000;

/// Every tensor that is there, in order of execution, until `visit` returns false.
void each_tensor(RunView& run, const std::function<bool(const Tensor&)>& visit) {
  const auto of_step = [&](StepId step) {
    const std::vector<Tensor>& tensors = run.content(step).tensors;
    return std::all_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& tensor) { return !tensor.known || visit(tensor); });
  };
  if (!of_step(kBeforeSteps)) return;
  for (const Step& step : run.steps()) {
    if (!of_step(step.id)) return;
  }
}

std::string listed(std::vector<std::string> names) {
  if (names.size() > kListed) {
    names.resize(kListed);
    names.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string called(RunView& run, const Tensor& tensor) {
  return tensor.name.empty() ? place_of(run, tensor) : tensor.name;
}

std::string several(RunView& run, const std::vector<const Tensor*>& found) {
  std::vector<std::string> names;
  names.reserve(found.size());
  for (const Tensor* tensor : found) names.push_back(called(run, *tensor));
  return "matches several: " + listed(std::move(names));
}

/// "name[3,7]" as "name", 3 and 7; the whole text is the name where it does not end so.
struct NameAndElement {
  std::string_view name;
  std::optional<std::int64_t> token;
  std::optional<std::int64_t> channel;
};

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

NameAndElement split(std::string_view text) {
  const std::size_t open = text.rfind('[');
  if (open == std::string_view::npos || !text.ends_with(']')) return {text, {}, {}};
  const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  const std::size_t comma = inside.find(',');
  NameAndElement out{text.substr(0, open), number(inside.substr(0, comma)), {}};
  if (comma != std::string_view::npos) out.channel = number(inside.substr(comma + 1));
  const bool understood = (out.token || comma == 0) && (out.channel || comma == std::string_view::npos);
  return understood ? out : NameAndElement{text, {}, {}};
}

/// Whether `text` is the end of a name, behind one of its separators.
bool ends_name(std::string_view name, std::string_view text) {
  if (name.size() <= text.size() || !name.ends_with(text)) return false;
  return std::string_view("/:.").find(name[name.size() - text.size() - 1]) != std::string_view::npos;
}

/// The row that stands at a position, of the sequences that are asked for. `rows_too`: the position of several is a
/// row.
Result<std::int64_t> row_of(RunView& run, const Tensor& tensor, std::int64_t token, const Place& place, bool rows_too) {
  std::set<std::int64_t> rows;
  const Step* step = run.step(tensor.step);
  for (std::size_t i = 0; step != nullptr && i < step->spans.size(); ++i) {
    const Span& span = step->spans[i];
    if (place.request.value_or(span.request) != span.request || place.step.value_or(span.index) != span.index) continue;
    if (const auto row = run.row_at(tensor, span, token)) rows.insert(*row);
  }
  if (rows.size() == 1) return *rows.begin();
  if (rows.size() > 1 && !rows_too) {
    return fail(fmt::format("{} sequences have a token {}: say which request", rows.size(), token));
  }
  if (token < tensor.tokens) return token;
  const RowToken first = run.token_of(tensor, 0);
  const RowToken last = run.token_of(tensor, tensor.tokens - 1);
  if (first.span == nullptr || last.span == nullptr || first.span->request != last.span->request)
    return fail(fmt::format("row {} is outside of it: it has {} rows", token, tensor.tokens));
  return fail(fmt::format("token {} is outside of it: it holds tokens {} to {}", token, first.position, last.position));
}

Result<FoundPlace> locate(RunView& run, const Tensor& tensor, const Place& place, bool rows_too) {
  FoundPlace found{&tensor, {}, place.channel};
  if (place.token) {
    const Result<std::int64_t> row = row_of(run, tensor, *place.token, place, rows_too);
    if (!row) return tl::unexpected(row.error());
    found.row = *row;
  } else if (tensor.tokens == 1) {
    found.row = 0;
  }
  if (place.channel && *place.channel >= tensor.channels)
    return fail(fmt::format("channel {} is outside of it: it has {} channels", *place.channel, tensor.channels));
  return found;
}

class PlaceFinder {
 public:
  PlaceFinder(RunView& run, const Place& place) : run_(run), place_(place) {}

  Result<FoundPlace> find() {
    if (auto status = select_steps(); !status) return tl::unexpected(std::move(status.error()));
    select_ops();
    auto tensor = ops_.empty() ? by_role() : by_op();
    if (!tensor) return tl::unexpected(tensor.error());
    return locate(run_, **tensor, place_, false);
  }

 private:
  Status select_steps() {
    std::int64_t last = -1;
    bool is_request = false;
    std::set<std::int64_t> ranks;
    for (const Step& step : run_.steps()) {
      ranks.insert(step.rank);
      if (step.rank != place_.rank) continue;
      bool wanted = !place_.request && !place_.step;
      for (const Span& span : step.spans) {
        if (place_.request.value_or(span.request) != span.request) continue;
        is_request = true;
        last = std::max(last, span.index);
        wanted = wanted || place_.step.value_or(span.index) == span.index;
      }
      if (wanted) steps_.push_back(step.id);
    }
    if (!place_.request && !place_.step) steps_.push_back(kBeforeSteps);
    if (!ranks.empty() && !ranks.contains(place_.rank))
      return fail(fmt::format("there is no rank {}; there are: {}", place_.rank, fmt::join(ranks, ", ")));
    if (place_.request && !is_request) return fail(fmt::format("there is no request {}", *place_.request));
    if (!steps_.empty()) return {};
    return fail(last < 0 ? "there is no step"
                         : fmt::format("there is no step {}, the last one is {}", place_.step.value_or(0), last));
  }

  bool in_layer(const Op& op) const { return !place_.layer || op.layer.value_or(-1) == *place_.layer; }

  void select_ops() {
    std::vector<const Op*> outside;  // of the layers: they match any layer when nothing else does
    for (const StepId step : steps_) {
      for (const Op& op : run_.content(step).ops) {
        if (op.name != place_.op) continue;
        if (in_layer(op)) {
          ops_.push_back(&op);
        } else if (!op.layer) {
          outside.push_back(&op);
        } else {
          other_layers_.insert(*op.layer);
        }
      }
      if (ops_.size() > kListed) return;
    }
    if (ops_.empty()) ops_ = std::move(outside);
  }

  std::vector<const Tensor*> outputs_of(const Op& op) const {
    std::vector<const Tensor*> found;
    for (const TensorId id : op.outputs) {
      const Tensor* tensor = run_.tensor(id);
      if (tensor != nullptr && tensor->known) found.push_back(tensor);
    }
    return found;
  }

  Result<const Tensor*> by_op() const {
    if (ops_.size() > 1) {
      std::vector<const Tensor*> tensors;
      for (const Op* op : ops_) {
        for (const Tensor* one : outputs_of(*op)) {
          if (place_.role.empty() || one->role == place_.role) tensors.push_back(one);
        }
      }
      if (tensors.size() == 1) return tensors.front();
      if (!tensors.empty()) return fail(several(run_, tensors));
    }
    const Op& op = *ops_.front();
    const std::vector<const Tensor*> outputs = outputs_of(op);
    if (outputs.empty()) return fail(fmt::format("op {} has no recorded output", op.name));
    if (place_.role.empty() && outputs.size() == 1) return outputs.front();
    for (const Tensor* one : outputs) {
      if (one->role == (place_.role.empty() ? "out" : place_.role)) return one;
    }
    std::vector<std::string> names;
    names.reserve(outputs.size());
    for (const Tensor* one : outputs) names.push_back(place_of(run_, *one));
    return fail(fmt::format("{}: {}", place_.role.empty() ? "the op has several outputs" : "the op has other outputs",
                            listed(std::move(names))));
  }

  /// The place's op named no op: its name may be that of a role.
  Result<const Tensor*> by_role() const {
    std::vector<const Tensor*> exact;
    std::vector<const Tensor*> outside;
    for (const StepId step : steps_) {
      if (!place_.role.empty() || exact.size() > kListed) break;
      for (const Tensor& tensor : run_.content(step).tensors) {
        const Op* op = tensor.known && tensor.role == place_.op ? run_.maker(tensor) : nullptr;
        if (op == nullptr) continue;
        if (in_layer(*op)) {
          exact.push_back(&tensor);
        } else if (!op->layer) {
          outside.push_back(&tensor);
        }
      }
    }
    if (exact.empty()) exact = std::move(outside);
    if (exact.empty()) return nothing();
    if (exact.size() > 1) return fail(several(run_, exact));
    return exact.front();
  }

  tl::unexpected<Error> nothing() const {
    if (!other_layers_.empty()) {
      return fail(fmt::format("'{}' is in layers {} to {}, not in {}", place_.op, *other_layers_.begin(),
                              *other_layers_.rbegin(), place_.layer.value_or(-1)));
    }
    std::set<std::string> names;
    for (const StepId step : steps_) {
      for (const Op& op : run_.content(step).ops) names.insert(op.name);
      for (const Tensor& tensor : run_.content(step).tensors) names.insert(tensor.role);
      if (names.size() > kMostNames) break;
    }
    if (names.empty()) return fail("no op was recorded there");
    return fail(
        fmt::format("no op or role is called '{}'; near: {}", place_.op, near_names(names, place_.op, kListed)));
  }

  RunView& run_;
  const Place& place_;
  std::vector<StepId> steps_;
  std::vector<const Op*> ops_;
  std::set<std::int64_t> other_layers_;
};

/// Tensors that a producer called so, by the whole name or by its end.
struct Named {
  NameAndElement asked;
  std::vector<const Tensor*> whole = {};
  std::vector<const Tensor*> ends = {};
};

/// Of the parts that a fused projection was split into, the one that holds the channel; else the first bad one.
FoundPlace part_of(const std::vector<const Tensor*>& parts, FoundPlace at) {
  std::int64_t first = 0;
  for (const Tensor* part : parts) {
    if (at.channel && *at.channel < first + part->channels) {
      at.channel = *at.channel - first;
      at.tensor = part;
      return at;
    }
    first += part->channels;
  }
  const auto bad =
      std::find_if(parts.begin(), parts.end(), [](const Tensor* one) { return RunView::symptomatic(*one); });
  at.tensor = bad != parts.end() ? *bad : parts.front();
  return at;
}

Result<FoundPlace> find_in(RunView& run, const std::vector<const Tensor*>& tensors, const NameAndElement& asked) {
  const bool one_name = std::all_of(tensors.begin(), tensors.end(),
                                    [&](const Tensor* one) { return one->name == tensors.front()->name; });
  if (!one_name) return fail(several(run, tensors));
  const FoundPlace part = part_of(tensors, {nullptr, {}, asked.channel});
  Place place;
  place.token = asked.token;
  place.channel = part.channel;
  return locate(run, *part.tensor, place, true);
}

Result<FoundPlace> find_any(RunView& run, std::string_view text) {
  // Brackets at the end say which element, or are part of the name: both are looked for.
  Named readings[] = {{{text, {}, {}}}, {split(text)}};
  std::set<std::string> names;
  each_tensor(run, [&](const Tensor& tensor) {
    if (tensor.name.empty()) return true;
    for (Named& one : readings) {
      if (tensor.name == one.asked.name) one.whole.push_back(&tensor);
      if (ends_name(tensor.name, one.asked.name)) one.ends.push_back(&tensor);
    }
    if (names.size() < kMostNames) names.insert(tensor.name);
    return true;
  });
  for (const Named& one : readings) {
    if (!one.whole.empty()) return find_in(run, one.whole, one.asked);
  }
  const Result<Place> place = parse_place(text);
  Result<FoundPlace> found = place ? PlaceFinder(run, *place).find() : tl::unexpected(place.error());
  if (found || names.empty()) return found;
  for (const Named& one : readings) {
    if (!one.ends.empty()) return find_in(run, one.ends, one.asked);
  }
  // A text with numbers before the op was meant as a place.
  if (place && (place->request || place->step || place->layer)) return found;
  const std::string name(readings[1].asked.name);
  return fail(fmt::format("no tensor is called so; near: {}", near_names(names, name, kListed)));
}

}  // namespace

std::string place_of(RunView& run, const Tensor& tensor) {
  Place place;
  const Op* op = run.maker(tensor);
  const Step* step = run.step(tensor.step);
  if (op == nullptr) return tensor.role;
  place.op = op->name;
  place.role = tensor.role;
  place.layer = op->layer.value_or(-1);
  if (step != nullptr && !step->spans.empty()) {
    place.request = step->request();
    place.step = step->index();
    place.rank = step->rank;
  }
  return to_string(place);
}

Result<FoundPlace> find_place(RunView& run, std::string_view text) {
  Result<FoundPlace> found = find_any(run, text);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  if (found || found.error().message.starts_with("place '")) return found;
  return fail(fmt::format("place '{}': {}", text, found.error().message));
}

}  // namespace nanscope
