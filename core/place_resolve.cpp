#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/near.h"
#include "core/place.h"

namespace nanscope {
namespace {

constexpr std::size_t kListed = 6;

class Resolver {
 public:
  Resolver(const Recording& recording, const Place& place) : recording_(recording), place_(place) {}

  Result<ResolvedPlace> run() {
    if (auto status = select_steps(); !status) return tl::unexpected(std::move(status.error()));
    if (auto status = select_ops(); !status) return tl::unexpected(std::move(status.error()));
    auto found = ops_.empty() ? by_role() : by_op();
    if (!found) return found;
    return locate(std::move(*found));
  }

 private:
  tl::unexpected<Error> error(const std::string& message) const {
    return fail(fmt::format("{}: place '{}': {}", recording_.path().string(), to_string(place_), message));
  }

  Status select_steps() {
    auto steps = recording_.steps(place_.request);
    if (!steps) return tl::unexpected(std::move(steps.error()));
    if (steps->empty() && place_.request) return error(fmt::format("there is no request {}", *place_.request));
    std::int64_t last = -1;
    for (const StepRow& step : *steps) {
      last = std::max(last, step.index);
      if (!place_.step || step.index == *place_.step) steps_[step.id] = step;
    }
    if (steps_.empty()) {
      return error(last < 0 ? "no step was recorded"
                            : fmt::format("there is no step {}, the last one is {}", place_.step.value_or(0), last));
    }
    return {};
  }

  /// Calls `visit` for the ops of the selected steps.
  Status visit_ops(std::optional<std::string> name, const std::function<bool(const OpRow&)>& visit) const {
    OpFilter filter;
    filter.name = std::move(name);
    if (steps_.size() == 1) filter.step = steps_.begin()->first;
    return recording_.for_each_op(filter, [&](const OpRow& op) { return !steps_.contains(op.step) || visit(op); });
  }

  Status select_ops() {
    std::vector<OpRow> outside;  // of the layers: they match any layer when nothing else does
    auto status = visit_ops(place_.op, [&](const OpRow& op) {
      if (!place_.layer || op.layer == *place_.layer) {
        ops_.push_back(op);
      } else if (op.layer < 0) {
        outside.push_back(op);
      } else {
        other_layers_.insert(op.layer);
      }
      return ops_.size() <= kListed;
    });
    if (ops_.empty()) ops_ = std::move(outside);
    return status;
  }

  std::string full_name(const OpRow& op, const std::string& role) const {
    const StepRow& step = steps_.at(op.step);
    return to_string(Place{step.request, step.index, op.layer, op.name, role, place_.token, place_.channel});
  }

  Result<ResolvedPlace> by_op() const {
    if (ops_.size() > 1) {
      std::vector<std::string> names;
      for (const OpRow& op : ops_) names.push_back(full_name(op, place_.role));
      if (names.size() > kListed) names.back() = "...";
      return error(fmt::format("matches several: {}", fmt::join(names, ", ")));
    }
    const OpRow& op = ops_.front();
    auto outputs = recording_.tensors_of(op.id);
    if (!outputs) return tl::unexpected(std::move(outputs.error()));
    if (outputs->empty()) return error(fmt::format("op {} has no recorded output", full_name(op, "")));
    const TensorRow* chosen = nullptr;
    if (place_.role.empty() && outputs->size() == 1) chosen = &outputs->front();
    std::vector<std::string> names;
    for (const TensorRow& output : *outputs) {
      if (output.role == (place_.role.empty() ? "out" : place_.role)) chosen = &output;
      names.push_back(full_name(op, output.role));
    }
    if (chosen == nullptr) {
      return error(fmt::format("{}: {}",
                               place_.role.empty() ? "the op has several outputs" : "the op has other outputs",
                               fmt::join(names, ", ")));
    }
    return ResolvedPlace{steps_.at(op.step), op, *chosen, {}, {}};
  }

  /// The place's op named no op: its name may be that of a role.
  Result<ResolvedPlace> by_role() const {
    if (!place_.role.empty()) return nothing();
    std::vector<ResolvedPlace> exact;
    std::vector<ResolvedPlace> outside;
    Status inner;
    TensorFilter filter;
    filter.role = place_.op;
    if (steps_.size() == 1) filter.step = steps_.begin()->first;
    auto status = recording_.for_each_tensor(filter, [&](const TensorRow& tensor) {
      auto op = recording_.op(tensor.op);
      if (!op) {
        inner = tl::unexpected(op.error());
        return false;
      }
      const auto step = steps_.find(op->step);
      if (step == steps_.end()) return true;
      if (!place_.layer || op->layer == *place_.layer) {
        exact.push_back({step->second, *op, tensor, {}, {}});
      } else if (op->layer < 0) {
        outside.push_back({step->second, *op, tensor, {}, {}});
      }
      return exact.size() <= kListed;
    });
    if (status) status = inner;
    if (!status) return tl::unexpected(std::move(status.error()));
    if (exact.empty()) exact = std::move(outside);
    if (exact.empty()) return nothing();
    if (exact.size() == 1) return std::move(exact.front());
    std::vector<std::string> names;
    names.reserve(exact.size());
    for (const ResolvedPlace& one : exact) names.push_back(full_name(one.op, one.tensor.role));
    if (names.size() > kListed) names.back() = "...";
    return error(fmt::format("matches several: {}", fmt::join(names, ", ")));
  }

  tl::unexpected<Error> nothing() const {
    if (!other_layers_.empty()) {
      return error(fmt::format("'{}' is in layers {} to {}, not in {}", place_.op, *other_layers_.begin(),
                               *other_layers_.rbegin(), place_.layer.value_or(-1)));
    }
    std::set<std::string> names;
    std::int64_t visited = 0;
    auto status = visit_ops({}, [&](const OpRow& op) {
      names.insert(op.name);
      return ++visited < 10'000;
    });
    if (!status) return tl::unexpected(std::move(status.error()));
    if (names.empty()) return error("no op was recorded there");
    return error(
        fmt::format("no op or role is called '{}'; near: {}", place_.op, near_names(names, place_.op, kListed)));
  }

  Result<ResolvedPlace> locate(ResolvedPlace found) const {
    const TensorRow& tensor = found.tensor;
    if (place_.token) {
      const std::int64_t row = *place_.token - tensor.first_token;
      if (row >= 0 && row < tensor.tokens) {
        found.row = row;
      } else if (*place_.token < tensor.tokens) {
        found.row = *place_.token;
      } else {
        return error(fmt::format("token {} is outside of it: it holds tokens {} to {}", *place_.token,
                                 tensor.first_token, tensor.first_token + tensor.tokens - 1));
      }
    } else if (tensor.tokens == 1) {
      found.row = 0;
    }
    if (place_.channel && *place_.channel >= tensor.channels) {
      return error(fmt::format("channel {} is outside of it: it has {} channels", *place_.channel, tensor.channels));
    }
    found.channel = place_.channel;
    return found;
  }

  const Recording& recording_;
  const Place& place_;
  std::map<std::int64_t, StepRow> steps_;
  std::vector<OpRow> ops_;
  std::set<std::int64_t> other_layers_;
};

}  // namespace

Result<ResolvedPlace> resolve(const Recording& recording, const Place& place) {
  return Resolver(recording, place).run();
}

Result<ResolvedPlace> resolve(const Recording& recording, std::string_view text) {
  auto place = parse_place(text);
  if (!place) return tl::unexpected(std::move(place.error()));
  return resolve(recording, *place);
}

Result<Place> place_of(const Recording& recording, const TensorRow& tensor, std::optional<std::int64_t> element) {
  auto op = recording.op(tensor.op);
  if (!op) return tl::unexpected(std::move(op.error()));
  auto step = recording.step(op->step);
  if (!step) return tl::unexpected(std::move(step.error()));
  Place place{step->request, step->index, op->layer, op->name, tensor.role, {}, {}};
  if (element) {
    if (*element < 0 || tensor.channels <= 0 || *element / tensor.channels >= tensor.tokens) {
      return fail(fmt::format("element {} is outside tensor {}", *element, tensor.id));
    }
    place.token = tensor.first_token + *element / tensor.channels;
    place.channel = *element % tensor.channels;
  }
  return place;
}

}  // namespace nanscope
