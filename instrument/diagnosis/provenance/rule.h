#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/provenance/reading.h"
#include "instrument/diagnosis/why.h"

/// Provenance rules: for each kind of op, which input elements made an output element, and which of
/// them decided it. To add one: a file here and a line in provenance.def.
namespace nanscope {

/// The element to explain. Without its bits, rules go by the health of rows and leave the channel open.
struct Subject {
  Facts& facts;
  const Op& op;
  const Step& step;
  const Tensor& tensor;
  Element element;
  std::optional<std::uint32_t> code;
  std::optional<float> value;
  bool bad = false;
};

/// What a rule found. At most one of element, key, scale and weight is where the walk goes on.
struct Explanation {
  std::optional<Element> element;
  std::optional<KeyRow> key;        ///< a slot of the KV cache ...
  const Span* reader = nullptr;     ///< ... and whose sequence reads it
  const ScaleRow* scale = nullptr;  ///< an entry of the scale ledger
  std::string weight;               ///< of a recording
  std::string end;                  ///< why the walk has to end here
  bool origin = false;              ///< the output is bad and what made it was healthy
  bool danger = false;  ///< healthy, but of the kind that makes a later op fail: worth following past the origin
  std::vector<Evidence> numbers;
  std::string text;
};

/// Said of an input that was not dumped, where the output is bad.
inline constexpr std::string_view kBornBetween =
    "; nothing bad is known of what that is made of: born here, or in between";

using Rule = Explanation (*)(const Subject& subject);

/// Each kind has one.
Rule provenance_rule(OpKind kind);
/// Of a tensor that was not dumped: on to the bad one of what it is made of, else to the first.
Explanation explain_not_dumped(const Subject& subject);
/// Of an op of which only its inputs are known: a bad one, of the same row if there is one.
Explanation explain_by_inputs(const Subject& subject);

/// One tensor that an op read, and the row of it that stands where the explained one does.
struct Operand {
  std::string_view role;
  const Tensor* tensor = nullptr;
  std::optional<std::int64_t> row;
};

/// The input called one of `roles`, in their order.
std::optional<Operand> operand(const Subject& subject, std::initializer_list<std::string_view> roles);
/// All that were computed: no parameters.
std::vector<Operand> operands(const Subject& subject);
Operand operand_of(const Subject& subject, const Tensor& tensor, std::string_view role = {});

/// Whether a parameter is a scale of others, or what logits are divided by.
bool is_scale(Facts& facts, const Tensor& parameter);

/// The sequence whose row is explained; of a step of one sequence that one.
const Span* reader_of(const Subject& subject);
/// The position of the explained row in its sequence, else its row.
std::int64_t position_of(const Subject& subject);

/// The magnitude of an element of the row that stands where the explained one does.
std::optional<float> size_at(Facts& facts, const Operand& input, std::int64_t channel);

/// Explains an op of one row-local input: a bad element of that row, else the largest.
Explanation follow_row(const Subject& subject, const Operand& input, std::string_view how);
/// The same element of the input.
Explanation follow_element(const Subject& subject, const Operand& input, std::int64_t channel, std::string_view how);
/// Of an input of which no row is known to be the explained one's.
Explanation follow_unplaced(const Subject& subject, const Operand& input);

/// Of an op whose `healthy` inputs gave a bad output: goes on at a weight that it read and that holds NaN or Inf.
void blame_bad_weight(const Subject& subject, std::string_view healthy, Explanation& found);

/// The attributes of an op as those of its kind; none stated where it has others.
template <class T>
const T& attributes(const Op& op) {
  static const T kNoneStated;
  const T* stated = op.get<T>();
  return stated != nullptr ? *stated : kNoneStated;
}
/// A count that an op was told, kept where it can be computed with.
std::int64_t count(const std::optional<std::int64_t>& stated, std::int64_t otherwise);

}  // namespace nanscope
