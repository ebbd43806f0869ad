#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/recording/rows.h"
#include "core/recording/writer.h"
#include "core/result.h"
#include "instrument/probe.h"
#include "kernels/device.h"

/// When the work of each op ran. Off unless it is asked for: an engine on an untraced device pays nothing.
namespace nanscope {

/// Work as it is launched, told by a TracedDevice from one thread. What ran is reported as rows, some time later.
class LaunchTrace {
 public:
  virtual ~LaunchTrace() = default;
  /// What is launched until end() belongs to `op`; `name` is what the device calls it.
  virtual void begin(std::int64_t op, std::string_view name) = 0;
  virtual void end() = 0;
  /// Rows of work that was reported since the last call, each once.
  virtual std::vector<KernelRow> take() = 0;
  /// Waits until all that was launched is reported; nothing may be launched afterwards.
  virtual Status finish() = 0;
  /// Records that were lost for want of memory.
  virtual std::int64_t dropped() const = 0;
};

/// Of the CPU: when launches began and ended, in ns since the trace was made.
std::unique_ptr<LaunchTrace> make_launch_clock();
/// As fits the device: the clock for the CPU, CUPTI for a GPU. Errors: CUPTI does not answer, see instrument/cupti.
Result<std::unique_ptr<LaunchTrace>> make_launch_trace(const kernels::Device& device);

/// What is launched before an op is told belongs to it: the uploads of its arguments too.
class OpCounter {
 public:
  std::int64_t next() const { return next_; }
  void told(std::int64_t op) { next_ = op + 1; }

 private:
  std::int64_t next_ = 1;
};

/// A device whose launches and copies are traced. Borrows all three.
class TracedDevice final : public kernels::Device {
 public:
  TracedDevice(kernels::Device& device, LaunchTrace& trace, const OpCounter& ops)
      : device_(device), trace_(trace), ops_(ops) {}

  const kernels::DeviceInfo& info() const override { return device_.info(); }
  const kernels::Device& memory() const override { return device_.memory(); }
  bool host_addressable() const override { return device_.host_addressable(); }
  Result<kernels::Buffer> allocate(std::size_t bytes, bool zeroed) override { return device_.allocate(bytes, zeroed); }
  Status upload(void* device, std::span<const std::byte> host) override;
  Status download(std::span<std::byte> host, const void* device) override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status gather(void* to, const void* from, const kernels::Rows& rows) override;
  Result<kernels::Buffer> allocate_host(std::size_t bytes) override { return device_.allocate_host(bytes); }
  Result<kernels::Transfer> start_download(std::span<std::byte> host, const void* device) override;
  Status wait(const kernels::Transfer& transfer) override { return device_.wait(transfer); }
  Status synchronize() override { return device_.synchronize(); }
  Status launch_raw(kernels::OpId id, const void* args) override;

 private:
  kernels::Device& device_;
  LaunchTrace& trace_;
  const OpCounter& ops_;
};

/// Passes everything on to another probe, keeps the counter, and writes what was reported with each step.
class TraceProbe final : public Probe {
 public:
  TraceProbe(Probe& probe, LaunchTrace& trace, OpCounter& ops, RecordingWriter& writer)
      : probe_(probe), trace_(trace), ops_(ops), writer_(writer) {}

  Status on_weight(const WeightRow& row, const kernels::TensorView& view) override {
    return probe_.on_weight(row, view);
  }
  Status on_request_begin(const RequestRow& row) override { return probe_.on_request_begin(row); }
  Status on_request_end(const RequestRow& row) override { return probe_.on_request_end(row); }
  Status on_step_begin(const StepRow& row) override { return probe_.on_step_begin(row); }
  Status on_op(const ProbeOp& op) override;
  Status on_scale(const ScaleRow& row) override { return probe_.on_scale(row); }
  Status on_kv(const KvRow& row) override { return probe_.on_kv(row); }
  Status on_token(const TokenRow& row) override { return probe_.on_token(row); }
  Status on_step_end(const StepRow& row) override;

  /// Writes what is still to be reported and, where records were lost, a row that says how many.
  Status finish();

 private:
  void hold();   ///< takes what was reported
  void write();  ///< all but work whose op is not told yet

  Probe& probe_;
  LaunchTrace& trace_;
  OpCounter& ops_;
  RecordingWriter& writer_;
  std::vector<KernelRow> held_;
};

/// KernelRow::details of work that only its launch is known of: {"kind": kind}.
std::string activity_details(std::string_view kind);

}  // namespace nanscope
