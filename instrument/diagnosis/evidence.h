#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace nanscope {

/// One recorded number that a statement rests on. Codes and bit patterns are text ("0x7F"), counts
/// are integers, values are doubles and may be NaN or infinite.
using EvidenceValue = std::variant<std::int64_t, double, std::string>;

struct Evidence {
  std::string name;
  EvidenceValue value;
};

/// "7", "11.2", "nan", "0x7F".
std::string to_string(const EvidenceValue& value);
/// The value called `name`, or nothing.
const EvidenceValue* find(const std::vector<Evidence>& evidence, const std::string& name);

/// Both ends included.
struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool operator==(const Range&) const = default;
};

/// Where something was found. What is left out is unknown or does not apply.
struct Where {
  std::optional<std::int64_t> request;
  std::optional<std::int64_t> step;  ///< within the request, 0 is the prefill
  std::int64_t rank = 0;
  std::optional<std::int64_t> layer;  ///< nothing for ops outside the layers
  std::string op;                     ///< OpRow::name
  std::string role;                   ///< TensorRow::role
  std::int64_t op_id = 0;             ///< 0: no op
  std::int64_t tensor_id = 0;         ///< 0: no tensor
  std::optional<Range> tokens;        ///< positions in the request
  std::optional<Range> channels;
};

/// The place as commands take it, `request/step/layer/op.role[token,channel]` with the first token
/// and channel; `-` stands for the layer of ops outside the layers. Empty when there is no op.
std::string place_text(const Where& where);
/// The same without token and channel: the tensor's or the op's name.
std::string tensor_text(const Where& where);

}  // namespace nanscope
