#pragma once
#include "instrument/diagnosis/detectors/detector.h"
#include "instrument/diagnosis/region.h"

/// What detectors of deviations share.
namespace nanscope {

/// A fault where a deviation is, which explains it, with the figures of the explanation and of its rival.
Finding finding_at(Survey& survey, const Deviation& deviation, std::size_t index);
/// The same with the part of the output that is wrong: its channels, and its rows and heads where they are not all.
Finding finding_at(Survey& survey, const Deviation& deviation, std::size_t index, const Region& region);

/// No deviation is of the class: excluded with what was done again, or what it takes to do ops again.
void exclude_deviations(Findings& out, const Survey& survey, std::string capture);

}  // namespace nanscope
