#include "gui/prepare/pin_history.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/prepare/subject.h"

namespace nanscope::gui {
namespace {

class HistoryMaker {
 public:
  HistoryMaker(RunView& run, PinHistory& history) : run_(run), history_(history) {}

  /// What the next step has.
  void look() {
    const Step& step = run_.steps()[history_.looked_at];
    const std::size_t at = history_.looked_at++;
    const Place& place = history_.place;
    if (step.rank != place.rank) return;
    const std::optional<std::int64_t> layer = place.layer.value_or(-1) < 0 ? std::nullopt : std::optional(*place.layer);
    const Op* op = run_.find_op(step.id, layer, place.op);
    if (op == nullptr) return;
    const Tensor* tensor = place.role.empty() ? run_.result(*op) : run_.output(*op, place.role);
    if (tensor == nullptr || !tensor->known) return;
    const Subject subject = subject_of(run_, *tensor, span_of(step));
    HistoryPoint point;
    point.step = at;
    point.absmax = static_cast<double>(tensor->health.absmax);
    point.bad = tensor->health.nan + tensor->health.pos_inf + (may_hide(tensor->role) ? 0 : tensor->health.neg_inf);
    point.clipped = tensor->health.clipped;
    point.scale = scale_of(*op, tensor->role);
    point.target.place = tensor_place(subject);
    if (history_.is_element()) add_element(subject, point);
    history_.points.push_back(std::move(point));
  }

 private:
  /// That of the request that was pinned, where the step works on several.
  const Span* span_of(const Step& step) const {
    const auto same = std::find_if(step.spans.begin(), step.spans.end(),
                                   [&](const Span& span) { return span.request == history_.place.request; });
    if (same != step.spans.end()) return &*same;
    return step.spans.empty() ? nullptr : &step.spans.front();
  }

  std::optional<double> scale_of(const Op& op, const std::string& role) const {
    const std::string target = role.substr(0, role.find('_'));
    for (const ScaleRow& row : run_.scales()) {
      if (row.op == op.id && row.target == target) return row.scale;
    }
    return std::nullopt;
  }

  void add_element(const Subject& subject, HistoryPoint& point) {
    const Tensor& tensor = subject.tensor;
    const std::int64_t channel = *history_.place.channel;
    if (tensor.tokens < 1 || channel >= tensor.channels) return;
    std::int64_t row = tensor.tokens - 1;
    const bool same_request = subject.span.request == history_.place.request;
    if (same_request) row = row_of(subject, history_.place).value_or(last_row(subject));
    point.target.place = element_place(subject, row, channel);
    point.target.element = row * tensor.channels + channel;
    const std::shared_ptr<const std::vector<float>> values = run_.row_values(tensor, row);
    if (values && channel < std::ssize(*values)) {
      point.value = static_cast<double>((*values)[static_cast<std::size_t>(channel)]);
    } else if (history_.problem.empty()) {
      const Fact<TensorData> why = run_.read(tensor, row, 1);
      history_.problem = why ? "its elements cannot be had" : why.error().text;
    }
  }

  /// Of the span's rows.
  static std::int64_t last_row(const Subject& subject) {
    const std::int64_t last = subject.span.row + subject.span.rows - 1;
    const bool of_tokens = subject.tensor.axis != Axis::none && subject.tensor.axis != Axis::slots;
    return of_tokens && subject.span.rows > 0 && last < subject.tensor.tokens ? last : subject.tensor.tokens - 1;
  }

  RunView& run_;
  PinHistory& history_;
};

}  // namespace

bool History::whole() const {
  return std::all_of(pins.begin(), pins.end(), [this](const auto& pin) { return pin->looked_at >= steps.size(); });
}

std::size_t History::looked_at() const {
  std::size_t sum = 0;
  for (const auto& pin : pins) sum += pin->looked_at;
  return sum;
}

Result<std::shared_ptr<const History>> make_history(RunView& run, std::span<const Place> places, const History* known,
                                                    std::chrono::steady_clock::time_point deadline) {
  auto history = std::make_shared<History>();
  for (const Step& step : run.steps()) history->steps.push_back({step.request(), step.index()});
  bool moved = false;  // or nobody would ever be done
  for (const Place& place : places) {
    std::shared_ptr<const PinHistory> pin;
    for (std::size_t i = 0; known != nullptr && i < known->pins.size(); ++i) {
      if (known->pins[i]->place == place) pin = known->pins[i];
    }
    if (!pin || pin->looked_at < history->steps.size()) {
      PinHistory more = pin ? *pin : PinHistory{place, {}, 0, {}};
      while (more.looked_at < history->steps.size() && (!moved || std::chrono::steady_clock::now() < deadline)) {
        HistoryMaker(run, more).look();
        moved = true;
      }
      pin = std::make_shared<const PinHistory>(std::move(more));
    }
    history->pins.push_back(std::move(pin));
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return history;
}

}  // namespace nanscope::gui
