#pragma once
#include <cstdint>
#include <span>

#include "instrument/quantized/stored_matrix.h"

/// What weights change by where a loader makes their codes anew: the root mean square of the difference over that of
/// the weights, of the rows that are named.
namespace nanscope {

/// By one scale for all of it.
double change_by_scale(const StoredMatrix& matrix, std::span<const std::int64_t> rows, float scale);

/// By decoding through bf16: the product of code and scale is rounded to it.
double change_by_bf16(const StoredMatrix& matrix, std::span<const std::int64_t> rows);

/// By scales that are the next power of two not below the present ones.
double change_by_powers_of_two(const StoredMatrix& matrix, std::span<const std::int64_t> rows);

}  // namespace nanscope
