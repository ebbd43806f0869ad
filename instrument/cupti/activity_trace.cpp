#include "instrument/cupti/activity_trace.h"

#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <utility>

namespace nanscope::cupti {

namespace {

/// Both callbacks find their trace here, and keep it alive while they run: CUPTI's worker may come late.
class Current {
 public:
  std::shared_ptr<void> get() {
    const std::lock_guard lock(mutex_);
    return buffers_;
  }
  /// False when there is one already.
  bool set(std::shared_ptr<void> buffers) {
    const std::lock_guard lock(mutex_);
    if (buffers_) return false;
    buffers_ = std::move(buffers);
    return true;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    buffers_.reset();
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<void> buffers_;
};

/// Never destroyed: CUPTI's worker thread may outlive the static objects of a process that exits.
Current& current() {
  static Current& instance = *new Current;
  return instance;
}

constexpr std::size_t kAlignment = 8;  // ACTIVITY_RECORD_ALIGNMENT, which CUPTI demands of a buffer

}  // namespace

class ActivityTrace::Buffers {
 public:
  Buffers(std::shared_ptr<const Api> api, const ActivityOptions& options) : api_(std::move(api)), options_(options) {}

  /// Null when there are enough: CUPTI then drops records and counts them.
  std::uint8_t* give(std::size_t& size) {
    const std::lock_guard lock(mutex_);
    if (given_ >= options_.buffers) return nullptr;
    size = options_.buffer_bytes / kAlignment * kAlignment;
    auto* memory = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, size));
    if (memory != nullptr) ++given_;
    return memory;
  }

  void take_back(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t valid) {
    Decoded decoded;
    if (valid > 0) decode(*api_, buffer, valid, decoded);
    std::size_t lost = 0;
    if (api_->dropped_records(context, stream, &lost) != CUPTI_SUCCESS) lost = 0;
    std::free(buffer);
    const std::lock_guard lock(mutex_);
    --given_;
    dropped_ += static_cast<std::int64_t>(lost);
    append(done_.activities, decoded.activities);
    append(done_.external, decoded.external);
    done_.unknown += decoded.unknown;
  }

  Decoded take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }
  std::int64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

  static void CUPTIAPI on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
    *size = 0;
    *most = 0;  // as many as fit
    const auto self = std::static_pointer_cast<Buffers>(current().get());
    *buffer = self ? self->give(*size) : nullptr;
  }
  static void CUPTIAPI on_complete(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                   std::size_t valid) {
    if (buffer == nullptr) return;
    if (const auto self = std::static_pointer_cast<Buffers>(current().get())) {
      self->take_back(context, stream, buffer, valid);
    } else {
      std::free(buffer);
    }
  }

 private:
  template <class T>
  static void append(std::vector<T>& into, std::vector<T>& from) {
    into.insert(into.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }

  std::shared_ptr<const Api> api_;
  ActivityOptions options_;
  mutable std::mutex mutex_;
  int given_ = 0;
  Decoded done_;
  std::int64_t dropped_ = 0;
};

ActivityTrace::ActivityTrace(std::shared_ptr<const Api> api, std::shared_ptr<Buffers> buffers)
    : api_(std::move(api)), buffers_(std::move(buffers)) {}

Result<std::unique_ptr<ActivityTrace>> ActivityTrace::start(std::shared_ptr<const Api> api,
                                                            const ActivityOptions& options) {
  auto buffers = std::make_shared<Buffers>(api, options);
  if (!current().set(buffers)) return fail("cupti: this process is traced already");
  std::unique_ptr<ActivityTrace> trace(new ActivityTrace(std::move(api), std::move(buffers)));
  if (Status enabled = trace->enable(options.external_ids); !enabled) return tl::unexpected(enabled.error());
  return trace;
}

Status ActivityTrace::enable(bool external_ids) {
  if (Status registered =
          checked(*api_, api_->register_callbacks(&Buffers::on_request, &Buffers::on_complete), "registering buffers");
      !registered) {
    return registered;
  }
  // CONCURRENT_KERNEL, as KERNEL would make the program's kernels run one after another.
  std::vector<CUpti_ActivityKind> kinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                           CUPTI_ACTIVITY_KIND_MARKER};
  if (external_ids) {
    // External ids precede records of API calls, so those must be wanted.
    kinds.push_back(CUPTI_ACTIVITY_KIND_RUNTIME);
    kinds.push_back(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  }
  for (const CUpti_ActivityKind kind : kinds) {
    if (Status on = checked(*api_, api_->enable(kind), fmt::format("enabling activity {}", static_cast<int>(kind)));
        !on) {
      return on;
    }
    enabled_.push_back(kind);
  }
  return {};
}

ActivityTrace::~ActivityTrace() {
  for (const CUpti_ActivityKind kind : enabled_) api_->disable(kind);
  if (!enabled_.empty()) api_->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  current().clear();
}

void ActivityTrace::push(std::uint64_t id) { api_->push_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, id); }

void ActivityTrace::pop() {
  std::uint64_t last = 0;
  api_->pop_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

Decoded ActivityTrace::take() { return buffers_->take(); }

Status ActivityTrace::flush(bool all) {
  return checked(*api_, api_->flush_all(all ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0), "flushing");
}

std::int64_t ActivityTrace::dropped() const { return buffers_->dropped(); }

}  // namespace nanscope::cupti
