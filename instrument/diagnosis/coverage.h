#pragma once
#include <cstddef>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/survey.h"

namespace nanscope {

/// Which outputs were recomputed, the most frequent reasons why others were not, and what would judge most of them.
Coverage coverage_of(Survey& survey);
/// Tensors whose elements could not be read, and files and tensors that notes say so of.
std::vector<UnreadPart> unread_parts(Facts& facts, const std::vector<RunNote>& notes);
/// What is not known excludes nothing: classes that were excluded count as not looked at, where parts were not read.
void withdraw_exclusions(std::vector<Check>& checks, std::size_t unread);

}  // namespace nanscope
