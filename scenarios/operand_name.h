#pragma once
#include <string_view>

namespace nanscope::scenarios {

/// 'k' or 'v' of keys and values by an op's name, whose rows are positions that attention reads and no outputs of a
/// token; else 0.
constexpr char operand_of(std::string_view op, std::string_view role) {
  if (op.starts_with("kv_")) return role.starts_with("v") ? 'v' : 'k';
  return op.starts_with("k_") ? 'k' : op.starts_with("v_") ? 'v' : '\0';
}

}  // namespace nanscope::scenarios
