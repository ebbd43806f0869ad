#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/why.h"

/// What rules read of the tensors of a run, and how they speak of it. Every row and channel may come from damaged data:
/// what lies outside of a tensor is not there.
namespace nanscope {

inline constexpr std::int64_t kWholeRow = std::numeric_limits<std::int64_t>::max();  ///< as a count of channels

/// Of somebody else's program, whose ops may do other than the reference engine's of the same kind.
bool of_dump(const Tensor& tensor);

/// NaN anywhere, Inf where it hides nothing.
bool is_bad(const Tensor& tensor, float value);
/// Nothing when it cannot be had.
std::optional<float> value_at(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel);
bool has_values(Facts& facts, const Tensor& tensor, std::int64_t row);
std::optional<std::uint32_t> code_at(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel);

/// The values of a row; of a sum that was not dumped, what its sides add up to. Empty when they cannot be had.
std::vector<double> made_row(Facts& facts, const Tensor& tensor, std::int64_t row);

/// First channel in [first, first + count) of a row that is NaN or Inf, NaN first. Without elements, `first` when the
/// row is bad; of a tensor that was not dumped, `first` when what it is made of is bad.
std::optional<std::int64_t> bad_channel(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t first,
                                        std::int64_t count);
/// How many of them are bad; nothing without elements.
std::optional<std::int64_t> count_bad(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t first,
                                      std::int64_t count);
/// The channel of the largest magnitude; `first` without elements.
std::int64_t largest_channel(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t first,
                             std::int64_t count);
/// The finite elements of a row are more than one and all the same.
bool is_constant(Facts& facts, const Tensor& tensor, std::int64_t row);

/// What a tensor that was not dumped is made of and is bad at that row: the element of an input of its op.
/// `channel` narrows it where the op works element by element.
std::optional<Element> bad_behind(Facts& facts, const Tensor& not_dumped, std::int64_t row,
                                  std::optional<std::int64_t> channel = {});

/// The first row from `first` to `last` of a tensor that was not dumped behind which something is bad.
std::optional<std::int64_t> bad_row_behind(Facts& facts, const Tensor& not_dumped, std::int64_t first,
                                           std::int64_t last);

/// The row of `to` that stands where `row` of `from` does.
std::optional<std::int64_t> row_in(Facts& facts, const Tensor& from, std::int64_t row, const Tensor& to);

/// "attn_norm.out[3,17]", rows as positions; tensors of a dump by their names.
std::string element_text(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel);
/// "11.2 (0x41333333)", "NaN (0x7F)"; "?" without elements.
std::string value_text(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel);
/// "attn_norm.out[3,17] is NaN (0x7FC00000)", or that it was not dumped.
std::string said_of(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel);

}  // namespace nanscope
