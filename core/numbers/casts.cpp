#include "core/numbers/casts.h"

#include <array>

namespace nanscope {

std::span<const CastRule> cast_rules(Format format) {
  static constexpr std::array kE4m3 = {
      CastRule{"ml_dtypes (JAX, numpy)", Overflow::overflow},
      CastRule{"torch before 2.13", Overflow::overflow},
      CastRule{"torch from 2.13 on a CPU", Overflow::saturate},
      CastRule{"CUDA's satfinite (vLLM, Transformer Engine)", Overflow::saturate},
  };
  static constexpr std::array kE5m2 = {
      CastRule{"ml_dtypes (JAX, numpy)", Overflow::overflow},
      CastRule{"torch", Overflow::overflow},
      CastRule{"CUDA's satfinite (vLLM, Transformer Engine)", Overflow::saturate},
  };
  if (format == Format::e4m3) return kE4m3;
  if (format == Format::e5m2) return kE5m2;
  return {};
}

}  // namespace nanscope
