#pragma once
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/facts.h"
#include "core/diagnosis/why.h"

/// Provenance rules: for each kind of op, which input elements made an output element, and which of
/// them decided it. To add one: a file here and a line in provenance.def.
namespace nanscope {

/// The element to explain. `data` is null when its tensor's elements cannot be had; then rules go by
/// row health and leave the channel open.
struct Subject {
  Facts& facts;
  const OpRow& op;
  const StepRow& step;
  const TensorRow& tensor;
  Element element;
  std::shared_ptr<const TensorData> data;
  bool bad = false;
};

/// What a rule found. At most one of element, key, scale and weight is where the walk goes on.
struct Explanation {
  std::optional<Element> element;
  std::optional<KeyRow> key;      ///< a slot of the KV cache
  std::optional<ScaleRow> scale;  ///< an entry of the scale ledger
  std::string weight;
  bool origin = false;  ///< the output is bad and what made it was healthy
  bool danger = false;  ///< healthy, but of the kind that makes a later op fail: worth following past the origin
  std::vector<Evidence> numbers;
  std::string text;
};

using Rule = Explanation (*)(const Subject& subject);

/// Null when no rule explains this kind of op.
Rule provenance_rule(std::string_view kind);

/// One tensor that an op read.
struct InputTensor {
  std::string role;
  TensorRow tensor;
  std::shared_ptr<const TensorData> data;

  std::int64_t row_of(const Subject& subject) const;          ///< the row that stands at the subject's token
  float value(std::int64_t row, std::int64_t channel) const;  ///< NaN when there are no elements
};

/// The input called one of `roles`, else the op's tensor input number `position` if it has one.
std::optional<InputTensor> input_tensor(const Subject& subject, std::initializer_list<std::string_view> roles,
                                        std::size_t position = 0);
std::vector<InputTensor> input_tensors(const Subject& subject);

bool is_bad(float value);
/// First channel in [first, first + count) of a row that is NaN or Inf, NaN first. Without elements,
/// `first` when the row is bad.
std::optional<std::int64_t> bad_channel(Facts& facts, const InputTensor& input, std::int64_t row, std::int64_t first,
                                        std::int64_t count);
/// How many of them are bad; nothing without elements.
std::optional<std::int64_t> count_bad(const InputTensor& input, std::int64_t row, std::int64_t first,
                                      std::int64_t count);
/// The channel of the largest magnitude; `first` without elements.
std::int64_t largest_channel(const InputTensor& input, std::int64_t row, std::int64_t first, std::int64_t count);
/// "attn_norm.out[3,17]", rows as positions.
std::string element_text(Facts& facts, const TensorRow& tensor, std::int64_t row, std::int64_t channel);
/// "11.2 (0x41333333)", "NaN (0x7F)"; "?" without elements.
std::string value_text(const TensorData* data, std::int64_t row, std::int64_t channel);
/// Explains an op of one row-local input: a bad element of that row, else the largest.
Explanation follow_row(const Subject& subject, const InputTensor& input, std::string_view how);
/// The same element of the input.
Explanation follow_element(const Subject& subject, const InputTensor& input, std::int64_t channel,
                           std::string_view how);

/// Of an op whose `healthy` inputs gave a bad output: goes on at a weight that it read and that holds NaN or Inf.
void blame_bad_weight(const Subject& subject, std::string_view healthy, Explanation& found);

}  // namespace nanscope
