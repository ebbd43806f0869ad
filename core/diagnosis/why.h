#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/evidence.h"
#include "core/diagnosis/run_data.h"
#include "core/diagnosis/tensor_source.h"
#include "core/result.h"

namespace nanscope {

/// An element of a recorded tensor, by row (not by position in the request).
struct Element {
  std::int64_t tensor = 0;
  std::int64_t row = 0;
  std::int64_t channel = 0;
  bool operator==(const Element&) const = default;
};

enum class HopKind : std::uint8_t {
  element,  ///< an element of a recorded tensor
  weight,   ///< a weight, as an input
  slot,     ///< a slot of the KV cache, with who wrote it
  scale,    ///< an entry of the scale ledger
};

/// One step of the way back. Hops go from the effect to its cause.
struct Hop {
  HopKind kind = HopKind::element;
  Where where;
  std::string op_kind;  ///< OpRow::kind
  Format format = Format::f32;
  std::optional<std::uint32_t> code;  ///< the element's bits, when they could be had
  std::optional<float> value;         ///< decoded, unscaled
  bool bad = false;                   ///< NaN or Inf
  std::vector<Evidence> numbers;
  std::string text;  ///< one sentence: what this is and why the next hop led to it
};

struct WhyPath {
  std::vector<Hop> hops;
  /// The hop of the first op whose output is bad while its inputs were healthy.
  std::optional<std::size_t> origin;
  std::string conclusion;  ///< one sentence
  std::string stopped;     ///< why the walk ends where it ends
};

/// Walks from an element backwards through the ops that made it, to the origin of its NaN or Inf and
/// past it to the setting that made healthy inputs dangerous. A healthy element is followed along
/// the input that weighs most. Errors: no such tensor, element outside it, rows cannot be read.
Result<WhyPath> why(RunData& run, TensorSource& tensors, const Element& element);
/// `place` as in core/place.h. Without an element, the tensor's first bad one is taken, else [0,0].
Result<WhyPath> why(const Recording& recording, TensorSource& tensors, std::string_view place);

nlohmann::ordered_json to_json(const WhyPath& path);
std::string_view name(HopKind kind);

}  // namespace nanscope
