#include "instrument/cupti/cupti_trace.h"

#include <utility>

#include "instrument/cupti/activity_trace.h"
#include "instrument/cupti/api.h"
#include "instrument/cupti/joiner.h"
#include "instrument/cupti/subscriber.h"

namespace nanscope {
namespace {

void CUPTIAPI no_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

class CuptiTrace final : public LaunchTrace {
 public:
  CuptiTrace(cupti::Subscriber subscriber, std::unique_ptr<cupti::ActivityTrace> trace)
      : subscriber_(std::move(subscriber)), trace_(std::move(trace)) {}

  void begin(std::int64_t op, std::string_view) override { trace_->push(static_cast<std::uint64_t>(op)); }
  void end() override { trace_->pop(); }

  std::vector<KernelRow> take() override {
    std::vector<KernelRow> rows = joiner_.join(trace_->take());
    if (!finished_) return rows;
    for (KernelRow& row : joiner_.rest()) rows.push_back(std::move(row));
    return rows;
  }

  Status finish() override {
    finished_ = true;
    return trace_->flush(true);
  }
  std::int64_t dropped() const override { return trace_->dropped(); }

 private:
  cupti::Subscriber subscriber_;
  std::unique_ptr<cupti::ActivityTrace> trace_;
  cupti::Joiner joiner_;
  bool finished_ = false;
};

}  // namespace

Result<std::unique_ptr<LaunchTrace>> make_cupti_trace() {
  auto api = cupti::Api::load();
  if (!api) return tl::unexpected(api.error());
  auto subscriber = cupti::Subscriber::claim(*api, &no_callback, nullptr);
  if (!subscriber) return tl::unexpected(subscriber.error());
  cupti::ActivityOptions options;
  options.external_ids = true;
  auto trace = cupti::ActivityTrace::start(*api, options);
  if (!trace) return tl::unexpected(trace.error());
  return std::make_unique<CuptiTrace>(std::move(*subscriber), std::move(*trace));
}

}  // namespace nanscope
