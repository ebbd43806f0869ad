#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/place.h"
#include "core/result.h"
#include "core/run/run_view.h"
#include "core/run/scale_grid.h"

/// From the selected place to the tensor and the element that views speak of.
namespace nanscope::gui {

/// Whose row it is.
struct RowName {
  std::int64_t request = 0;
  std::int64_t step = 0;
  std::int64_t token = 0;
  bool nobodys = false;  ///< padding
  bool operator==(const RowName&) const = default;
};

struct Subject {
  Step step;
  Span span;  ///< of the step, that the place names; of parameters outside of all steps an empty one
  Op op;
  Tensor tensor;
  std::vector<Tensor> outputs;  ///< of the op, the tensor among them
  std::int64_t occurrence =
      0;  ///< outside of steps: how many of its layer, name and role come before it, as ranks have them
  std::int64_t first_token = 0;    ///< position of row 0, where `row_names` is empty
  std::vector<RowName> row_names;  ///< where rows are of several sequences, or of nobody; else empty

  RowName row_name(std::int64_t row) const;
  bool nobodys(std::int64_t row) const { return !row_names.empty() && row_name(row).nobodys; }
  /// Of no request: before all steps, or in a pass of a dump that tells no sequences.
  bool outside() const { return op.step == kBeforeSteps || step.spans.empty(); }
};

/// The tensor that a place names. Without a role: `out`, else the first with a NaN or an Inf, else the
/// first with clipped values, else the first. Errors, in a sentence for people: nothing is selected, no
/// such op, an op without outputs.
/// `call`: id of the op that is meant where several are at the place; 0: the first of them.
Result<Subject> find_subject(RunView& run, const Place& place, std::int64_t call = 0);
/// The same of a tensor that is known already, as `span` of its step sees it.
Subject subject_of(RunView& run, const Tensor& tensor, const Span* span = nullptr);
/// The step that a place names, and its span; null when there is none.
struct SpanOfStep {
  const Step* step = nullptr;
  const Span* span = nullptr;
};
SpanOfStep find_span(RunView& run, const Place& place);
/// The layer that a place names; nothing outside of the layers.
std::optional<std::int64_t> layer_of(const Place& place);

/// Row of the place's token; nothing when it names none or one outside the tensor.
std::optional<std::int64_t> row_of(const Subject& subject, const Place& place);
/// The place's channel, when the tensor has it.
std::optional<std::int64_t> channel_of(const Tensor& tensor, const Place& place);
/// In full; of a row that is nobody's, the place of the tensor.
Place element_place(const Subject& subject, std::int64_t row, std::int64_t channel);
/// Without an element.
Place tensor_place(const Subject& subject);

/// How a tensor's codes were made from another's values: code = encode(value / scale).
struct Storing {
  std::optional<Tensor> source;  ///< nothing when it is not there
  /// Without a source that was dumped, what can be computed of it: magnitudes that it had at least. Else null.
  std::shared_ptr<const TensorData> computed;
  std::vector<std::int64_t> source_rows;  ///< of each row of the codes, in either; -1: another step's, or nobody's
  std::optional<ScaleGrid> grid;          ///< nothing when the scales are not known
  bool by_source_row = false;             ///< the grid is over rows of the step, not of the pool
  bool implied = false;                   ///< no scale is known: the one that codes and source show
  Overflow overflow = Overflow::saturate;
  bool foreign = false;  ///< the scale was computed from another step's values

  /// The scale of an element of the codes; nothing when it is not known.
  std::optional<float> scale(std::int64_t row, std::int64_t channel) const;
  /// The one scale of all of them.
  std::optional<float> only_scale() const;
};
/// Of codes in a cache, of activations and of weights; nothing for all else.
std::optional<Storing> storing_of(RunView& run, const Subject& subject);

/// Elements for as long as anybody shows them.
using Elements = std::shared_ptr<const TensorData>;
/// Errors: they cannot be had; more bytes or fewer than the tensor says.
Result<Elements> fetch_elements(RunView& run, const Tensor& tensor);

/// Of all elements. What a dump holds of integers was not scanned and is looked at here.
Health whole_health(RunView& run, const Tensor& tensor);

/// Scores and probabilities: a query's row holds the keys of each head one after another.
bool is_query_by_key(const Op& op, const Tensor& tensor);

}  // namespace nanscope::gui
