#include <string>
#include <vector>

#include "core/recording/schema.h"

namespace nanscope::schema {

std::span<const std::string> views() {
  static const std::vector<std::string> all = {};
  return all;
}

}  // namespace nanscope::schema
