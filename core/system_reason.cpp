#include "core/system_reason.h"

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

namespace nanscope {

std::string system_reason(int code) {
  switch (code) {
    case EMFILE:
      return "too many open files in this process: raise the limit (ulimit -n)";
    case ENFILE:
      return "too many open files on this machine: raise fs.file-max, or close some";
    case ENOMEM:
      return out_of_memory();
    case EFBIG:
      return "larger than a file may be here: raise the limit (ulimit -f)";
    default:
      return std::generic_category().message(code);
  }
}

std::string reason_of(const std::exception& error) {
  // A length is beyond what memory can hold.
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                      dynamic_cast<const std::length_error*>(&error) != nullptr;
  if (memory) return out_of_memory();
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr) return std::string("internal error: ") + error.what();
  if (system->code() == std::errc::resource_unavailable_try_again) {
    return "no more threads can be started: raise the limits (ulimit -u, ulimit -v, the container's), or ask for fewer";
  }
  const bool numbered =
      system->code().category() == std::generic_category() || system->code().category() == std::system_category();
  return numbered ? error.what() + (": " + system_reason(system->code().value())) : error.what();
}

std::string out_of_memory() {
  return "out of memory: free some, or raise the limit (ulimit -v, ulimit -d, the container's)";
}

}  // namespace nanscope
