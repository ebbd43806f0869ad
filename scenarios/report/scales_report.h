#pragma once
#include <string>

#include "instrument/spectral/model_scales.h"
#include "scenarios/report/text.h"

/// What `nanscope scales` says.
namespace nanscope::report {

std::string scales_text(const ModelScales& scales, const std::string& checkpoint, bool per_head,
                        const Terminal& terminal);
/// `nanscope.scales/1`, see docs/scales.md.
std::string scales_json(const ModelScales& scales, const std::string& checkpoint);
/// A line a head, its layer's figures repeated.
std::string scales_csv(const ModelScales& scales);

/// Tables 2 and 3 of the paper: ours beside what is printed, of one model or of all where `name` is empty.
std::string published_shapes_text(std::string_view name, double delta, const Terminal& terminal);

}  // namespace nanscope::report
