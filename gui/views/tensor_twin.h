#pragma once
#include <string>
#include <string_view>

#include "gui/cell_map.h"
#include "gui/prepare/tensor_pair.h"
#include "gui/views/twin_parts.h"

/// What the tensor view draws when another run stands beside.
namespace nanscope::gui {

/// The window's theme, whose cells are coloured as differences: where the value here is the smaller one in teal, where
/// it is the larger one in brown, the darker the smaller the difference.
Theme difference_theme(const Theme& theme);

/// That of the unit that a difference is in.
Theme theme_of(const Theme& theme, const TensorDifference& difference);

/// Chips for the units at the right end of a row; the one that is pressed becomes `chosen`. Answers where they begin.
float choose_unit(const ViewContext& context, Area row, DifferenceUnit& chosen);

/// Above a grid: what it shows, for the difference with its ramp.
void draw_part_title(const ViewContext& context, Area row, TwinPart part, const TwinPicture& twin);

/// The ends of its ramp, at the right end of the row. Answers where that begins.
float draw_difference_ramp(const ViewContext& context, Area row, const TwinPicture& twin);

/// What is written into a large cell of the difference.
std::string difference_text(const SheetPair& pair, std::int64_t row, std::int64_t column);

/// At the mouse: the element in both runs, and how they differ. Answers the same in one line.
std::string pair_tooltip(const ViewContext& context, const SheetPair& pair, const std::string& label, std::int64_t row,
                         std::int64_t column);

}  // namespace nanscope::gui
