#include "instrument/trace/launch_trace.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "instrument/cupti/cupti_trace.h"
#include "kernels/op_table.h"

namespace nanscope {
namespace {

using Clock = std::chrono::steady_clock;

/// A CPU launch returns when its work is done, so the call's duration is the work's.
class LaunchClock final : public LaunchTrace {
 public:
  void begin(std::int64_t op, std::string_view name) override {
    row_.op = op;
    row_.name = name;
    row_.start_ns = now();
  }
  void end() override {
    row_.duration_ns = now() - row_.start_ns;
    row_.details = activity_details(row_.name == "memcpy" ? "memcpy" : "launch");
    rows_.push_back(row_);
  }
  std::vector<KernelRow> take() override { return std::exchange(rows_, {}); }
  Status finish() override { return {}; }
  std::int64_t dropped() const override { return 0; }

 private:
  std::int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }

  Clock::time_point start_ = Clock::now();
  KernelRow row_;
  std::vector<KernelRow> rows_;
};

/// Tells a trace of one piece of work, also when it fails.
class Traced {
 public:
  Traced(LaunchTrace& trace, std::int64_t op, std::string_view name) : trace_(trace) { trace_.begin(op, name); }
  ~Traced() { trace_.end(); }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

 private:
  LaunchTrace& trace_;
};

constexpr std::string_view kCopy = "memcpy";

}  // namespace

std::string activity_details(std::string_view kind) { return fmt::format(R"({{"kind":"{}"}})", kind); }

std::unique_ptr<LaunchTrace> make_launch_clock() { return std::make_unique<LaunchClock>(); }

Result<std::unique_ptr<LaunchTrace>> make_launch_trace(const kernels::Device& device) {
  if (device.host_addressable()) return make_launch_clock();
  return make_cupti_trace();
}

Status TracedDevice::upload(void* device, std::span<const std::byte> host) {
  const Traced traced(trace_, ops_.next(), kCopy);
  return device_.upload(device, host);
}

Status TracedDevice::download(std::span<std::byte> host, const void* device) {
  const Traced traced(trace_, ops_.next(), kCopy);
  return device_.download(host, device);
}

Status TracedDevice::copy(void* to, const void* from, std::size_t bytes) {
  const Traced traced(trace_, ops_.next(), kCopy);
  return device_.copy(to, from, bytes);
}

Status TracedDevice::gather(void* to, const void* from, const kernels::Rows& rows) {
  const Traced traced(trace_, ops_.next(), kCopy);
  return device_.gather(to, from, rows);
}

Result<kernels::Transfer> TracedDevice::start_download(std::span<std::byte> host, const void* device) {
  const Traced traced(trace_, ops_.next(), kCopy);
  return device_.start_download(host, device);
}

Status TracedDevice::launch_raw(kernels::OpId id, const void* args) {
  const Traced traced(trace_, ops_.next(), kernels::op_name(id));
  return device_.launch_raw(id, args);
}

Status TraceProbe::on_op(const ProbeOp& op) {
  ops_.told(op.id);
  return probe_.on_op(op);
}

Status TraceProbe::on_step_end(const StepRow& row) {
  hold();
  write();
  return probe_.on_step_end(row);
}

Status TraceProbe::finish() {
  Status finished = trace_.finish();
  hold();
  // Work that was launched for an op that never came is no op's.
  for (KernelRow& row : held_) {
    if (row.op >= ops_.next()) row.op = 0;
  }
  write();
  if (const std::int64_t lost = trace_.dropped(); lost > 0) {
    KernelRow row;
    row.name = "records that were dropped";
    row.details = fmt::format(R"({{"kind":"dropped","records":{}}})", lost);
    writer_.add(std::move(row));
  }
  return finished;
}

void TraceProbe::hold() {
  for (KernelRow& row : trace_.take()) held_.push_back(std::move(row));
}

void TraceProbe::write() {
  std::vector<KernelRow> early;
  for (KernelRow& row : std::exchange(held_, {})) {
    if (row.op >= ops_.next()) {
      early.push_back(std::move(row));
    } else {
      writer_.add(std::move(row));
    }
  }
  held_ = std::move(early);
}

}  // namespace nanscope
