#include <array>

#include "instrument/verify/alternative.h"

namespace nanscope {

#define NANSCOPE_ALTERNATIVE(name, identifier) std::vector<OpForm> propose_##identifier(const TriedOp& subject);
#include "instrument/verify/alternatives.def"
#undef NANSCOPE_ALTERNATIVE

std::span<const Alternative> alternatives() {
  static constexpr std::array kAll = {
#define NANSCOPE_ALTERNATIVE(name, identifier) Alternative{name, propose_##identifier},
#include "instrument/verify/alternatives.def"
#undef NANSCOPE_ALTERNATIVE
  };
  return kAll;
}

}  // namespace nanscope
