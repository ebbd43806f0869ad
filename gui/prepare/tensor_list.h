#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "gui/prepare/tensor_index.h"
#include "gui/selection.h"

namespace nanscope::gui {

/// What the list says of a tensor.
enum class TensorColumn : std::uint8_t {
  health,
  place,
  layer,
  role,
  format,
  shape,
  nan,
  inf,
  clipped,
  largest,
  absmax,
  headroom,
};

/// The kinds of what is not healthy that can be asked for, by the word that asks.
enum class TensorKind : std::uint8_t { nan, inf, clipped, low };
inline constexpr std::array<std::string_view, 4> kTensorKinds = {"nan", "inf", "clipped", "low"};

/// What is looked for: tensors that have all that is stated, and any of the kinds where some are named.
struct TensorQuery {
  enum class Compare : std::uint8_t { less, at_most, equal, at_least, more };
  struct Number {
    std::string_view field;  ///< of the table of fields
    Compare compare = Compare::equal;
    double value = 0;
  };
  std::vector<std::string> words;  ///< in the place or in the producer's name, in lower case
  std::array<bool, kTensorKinds.size()> kinds{};
  std::vector<std::string> roles;
  std::vector<Format> formats;
  std::vector<Number> numbers;

  bool asks_kinds() const;
};

/// Words divided by spaces: `nan`, `role:out`, `layer:3`, `headroom<4`, else what is in the place; between quotation
/// marks whatever stands there. Errors, for people: an unknown field, no number where there should be one.
Result<TensorQuery> parse_tensor_query(std::string_view text);
/// The text with the word of a kind added, or taken away.
std::string toggled(std::string_view text, TensorKind kind);

struct TensorOrder {
  TensorColumn by = TensorColumn::health;
  bool reversed = false;  ///< else as each is looked at first: the worst, the largest, the first
  bool operator==(const TensorOrder&) const = default;
};

/// Tensors that were asked for, in the order that was.
struct TensorList {
  std::shared_ptr<const TensorIndex> index;
  std::vector<std::uint32_t> shown;  ///< indices in the index
  TensorOrder order;
  std::array<std::size_t, kTensorKinds.size()> of_kind{};  ///< in the whole run

  /// What a column says of a tensor.
  std::string text(std::size_t tensor, TensorColumn column) const;
};

TensorList make_tensor_list(std::shared_ptr<const TensorIndex> index, const TensorQuery& query, TensorOrder order);

/// The tensor that is selected, in a list.
struct ListedTensor {
  std::size_t tensor = 0;         ///< index in the index
  std::optional<std::size_t> at;  ///< in `shown`; nothing where it was not asked for
};
/// Nothing where the place names no tensor.
std::optional<ListedTensor> find_in(const TensorList& list, RunView& run, const Place& place);

bool is_of_kind(const TensorIndex& index, std::size_t tensor, TensorKind kind);
std::string_view column_title(TensorColumn column);

}  // namespace nanscope::gui
