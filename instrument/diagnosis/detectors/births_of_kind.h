#pragma once
#include <functional>
#include <string>

#include "instrument/diagnosis/detectors/detector.h"

/// What detectors of births share.
namespace nanscope {

/// A fault where a birth is, which explains it.
Finding finding_at(Survey& survey, std::size_t birth);

/// Nothing was found among the births: excluded, or not looked at everywhere, where too many steps have some.
void exclude(Findings& out, const Survey& survey, std::string figure);

/// "3 rows of TENSOR"; "TENSOR" where it is not known which rows.
std::string rows_text(const Birth& birth, const std::string& tensor);

/// Whether row `row` of what an op reads as `role` is finite.
bool row_finite(Survey& survey, const Tensor& tensor, std::int64_t row);

/// The same in later steps and requests, told once: of those of the same op and rank the first stays.
/// With `by_role` what an op does to K is apart from what it does to V.
void merge_alike(std::vector<Finding>& found, bool by_role = false);

}  // namespace nanscope
