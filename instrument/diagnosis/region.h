#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "instrument/diagnosis/evidence.h"
#include "instrument/diagnosis/survey.h"

namespace nanscope {

/// Which part of an output is wrong, and what is there instead, as far as the numbers say.
struct Region {
  std::vector<std::int64_t> rows;  ///< that are wrong
  std::int64_t first_channel = 0;
  std::int64_t channels = 0;        ///< from the first wrong one to the last
  std::vector<std::int64_t> heads;  ///< that are wrong, where others are not
  std::int64_t elements = 0;        ///< wrong
  bool all_rows = false;            ///< of somebody
  bool all_channels = false;
  std::string shape;    ///< "columns 64 to 127 of every row", "row 7", "heads 1, 4 of every row", "all of it"
  std::string content;  ///< "zeros", "what row 6 should be", "what head 2 should be", "the same as in step 1"; empty
};

/// Ascending numbers: "7", "3, 5 to 7".
std::string ranges_text(const std::vector<std::int64_t>& numbers);
/// Of a deviation, under the healthy form.
Region region_of(Survey& survey, const Deviation& deviation);

}  // namespace nanscope
