#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/prepare/error_map.h"

/// What a check against the model found, as a list.
namespace nanscope::gui {

/// Which outputs are listed.
enum class VerifyFilter : std::uint8_t { off, all, not_checked };

struct VerifyOrder {
  VerifyFilter which = VerifyFilter::off;
  bool furthest_first = false;  ///< else in order of execution
  bool operator==(const VerifyOrder&) const = default;
};

/// An output in a line.
struct VerifyRow {
  std::size_t index = 0;  ///< in Findings::checked, or not_checked
  std::string place;      ///< "layer 0 softmax.out, step 1"
  Cell cell = kErrorAbsent;
  std::string furthest;  ///< "2.636e+04", in units of the bound
  std::string beyond;    ///< "224 of 576", of more than fit "0.12 %"
  /// "shown: the cap of the scores left out (explains 100 % of 576 elements)", or why it was not checked.
  std::string because;
  bool unexplained = false;
};

struct VerifyList final : Prepared {
  std::shared_ptr<const ErrorMap> errors;
  VerifyOrder order;
  std::vector<VerifyRow> rows;
  std::array<std::size_t, 3> of_filter{};    ///< how many each would list
  std::optional<std::size_t> chosen;         ///< of the rows, that the selection is of
  std::vector<std::string> verdict;          ///< lines: what there is to say, then what explains the first
  std::shared_ptr<const VerifiedOutput> of;  ///< that the selection is of, listed or not; null: none
};

/// `place`: what is selected.
VerifyList make_verify_list(std::shared_ptr<const ErrorMap> errors, VerifyOrder order, const Place& place);

}  // namespace nanscope::gui
