#pragma once
#include <cstdint>

namespace nanscope::kernels {

#define NANSCOPE_OP(Name, stem, gradient) struct Name##Args;
#include "kernels/ops.def"
#undef NANSCOPE_OP

enum class OpId : std::uint8_t {
#define NANSCOPE_OP(Name, stem, gradient) Name,
#include "kernels/ops.def"
#undef NANSCOPE_OP
};

/// Maps an op's argument struct to its id, so that Device::launch needs no other registration.
template <class Args>
struct OpOf;
#define NANSCOPE_OP(Name, stem, gradient)  \
  template <>                              \
  struct OpOf<Name##Args> {                \
    static constexpr OpId id = OpId::Name; \
  };
#include "kernels/ops.def"
#undef NANSCOPE_OP

}  // namespace nanscope::kernels
