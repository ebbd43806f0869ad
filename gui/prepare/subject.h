#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/run/run_data.h"
#include "core/run/tensor_source.h"
#include "core/place.h"
#include "core/result.h"

/// From the selected place to the tensor and the element that views speak of.
namespace nanscope::gui {

struct Subject {
  StepRow step;
  OpRow op;
  TensorRow tensor;
  std::vector<TensorRow> outputs;  ///< of the op, the tensor among them
};

/// The tensor that a place names. Without a role: `out`, else the first with a NaN or an Inf, else the
/// first with clipped values, else the first. Errors, in a sentence for people: nothing is selected, no
/// such op, an op without outputs.
Result<Subject> find_subject(RunData& run, const Place& place);

/// Row of the place's token; nothing when it names none or one outside the tensor.
std::optional<std::int64_t> row_of(const TensorRow& tensor, const Place& place);
/// The place's channel, when the tensor has it.
std::optional<std::int64_t> channel_of(const TensorRow& tensor, const Place& place);
/// In full.
Place element_place(const Subject& subject, std::int64_t row, std::int64_t channel);

/// How a tensor's codes were made from another's values: code = encode(value / scale).
struct Storing {
  TensorRow source;
  std::optional<float> scale;  ///< nothing when each token has its own
  Overflow overflow = Overflow::saturate;
  bool foreign = false;  ///< the scale was computed from another step's values
};
/// Nothing for ops that do not store into another format.
std::optional<Storing> storing_of(RunData& run, const Subject& subject);

/// Elements for as long as anybody shows them.
using Elements = std::shared_ptr<const TensorData>;
/// Errors: of the source; more bytes or fewer than the row says.
Result<Elements> fetch_elements(TensorSource& tensors, const TensorRow& tensor);

/// Scores and probabilities: a query's row holds the keys of each head one after another.
bool is_query_by_key(const OpRow& op);

}  // namespace nanscope::gui
