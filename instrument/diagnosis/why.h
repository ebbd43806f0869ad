#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "core/run/run_view.h"
#include "instrument/diagnosis/evidence.h"

namespace nanscope {

class Facts;

/// An element of a tensor of a run, by row (not by position in the request).
struct Element {
  TensorId tensor = 0;
  std::int64_t row = 0;
  std::int64_t channel = 0;
  bool operator==(const Element&) const = default;
};

enum class HopKind : std::uint8_t {
  element,  ///< an element of a tensor that an op made
  weight,   ///< a weight, a mask or an id, as an input
  slot,     ///< a slot of the KV cache, with who wrote it
  scale,    ///< an entry of the scale ledger, or a scale as an input
};

/// One step of the way back. Hops go from the effect to its cause.
struct Hop {
  HopKind kind = HopKind::element;
  Where where;
  std::string tensor;               ///< as the producer wrote it, or its place
  OpKind op_kind = OpKind::dumped;  ///< of elements alone
  Format format = Format::f32;
  std::optional<std::uint32_t> code;  ///< the element's bits, when they could be had
  std::optional<float> value;         ///< decoded, unscaled
  bool bad = false;                   ///< NaN or Inf, where Inf hides nothing
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
Result<WhyPath> why(RunView& run, const Element& element);
/// The same on facts that are already there. The element must lie inside a tensor of the run.
WhyPath walk(Facts& facts, const Element& element);

/// The first bad element in order of execution whose row is somebody's; nothing when there is none.
std::optional<Element> first_bad(Facts& facts);
/// The first bad element of a tensor, or of one of its rows; [row, 0] when nothing says which.
Element first_bad_element(Facts& facts, const Tensor& tensor, std::int64_t row = 0);

nlohmann::ordered_json to_json(const WhyPath& path);
std::string_view name(HopKind kind);

}  // namespace nanscope
