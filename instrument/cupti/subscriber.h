#pragma once
#include <cupti.h>

#include <memory>
#include <utility>

#include "core/result.h"
#include "instrument/cupti/api.h"

namespace nanscope::cupti {

/// The one subscriber that CUPTI allows a process. Held while it lives, so that two tools do not spoil each other's
/// records. The error for a second one names the first where CUPTI tells its name (CUDA 12.8 and later).
class Subscriber {
 public:
  static Result<Subscriber> claim(std::shared_ptr<const Api> api, CUpti_CallbackFunc callback, void* user);
  Subscriber(Subscriber&& other) noexcept
      : api_(std::move(other.api_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Subscriber& operator=(Subscriber&&) = delete;
  ~Subscriber();

  /// Calls back at the beginning and the end of a function of the driver's.
  Status listen(CUpti_CallbackDomain domain, CUpti_CallbackId id);

 private:
  Subscriber(std::shared_ptr<const Api> api, CUpti_SubscriberHandle handle) : api_(std::move(api)), handle_(handle) {}

  std::shared_ptr<const Api> api_;
  CUpti_SubscriberHandle handle_;
};

}  // namespace nanscope::cupti
