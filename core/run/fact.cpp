#include "core/run/fact.h"

namespace nanscope {

std::string_view name(Unknown why) {
  switch (why) {
    case Unknown::absent:
      return "absent";
    case Unknown::unreadable:
      return "unreadable";
    case Unknown::not_understood:
      return "not-understood";
    case Unknown::not_applicable:
      return "not-applicable";
  }
  return {};
}

}  // namespace nanscope
