#include "instrument/cupti/subscriber.h"

#include <fmt/format.h>

#include <array>

namespace nanscope::cupti {

Result<Subscriber> Subscriber::claim(std::shared_ptr<const Api> api, CUpti_CallbackFunc callback, void* user) {
  CUpti_SubscriberHandle handle = nullptr;
  std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN + 1> holder{};
  CUptiResult result = CUPTI_SUCCESS;
  if (api->subscribe_v2 != nullptr) {
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "nanscope";
    params.oldSubscriberName = holder.data();
    params.oldSubscriberSize = holder.size() - 1;
    result = api->subscribe_v2(&handle, callback, user, &params);
  } else {
    result = api->subscribe(&handle, callback, user);
  }
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && holder.front() != '\0') {
    return fail(
        fmt::format("cupti: '{}' holds CUPTI in this process, and there can be but one: end it first", holder.data()));
  }
  if (Status claimed = checked(*api, result, "subscribing"); !claimed) return tl::unexpected(claimed.error());
  return Subscriber(std::move(api), handle);
}

Subscriber::~Subscriber() {
  if (handle_ != nullptr) api_->unsubscribe(handle_);
}

Status Subscriber::listen(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  return checked(*api_, api_->enable_callback(1, handle_, domain, id), fmt::format("listening to function {}", id));
}

}  // namespace nanscope::cupti
