#pragma once
#include <functional>
#include <optional>
#include <string>

#include "gui/cell_map.h"
#include "gui/prepare/tensor_sheet.h"

/// A tensor as a grid on screen: its cells, what is written around them, and the marks upon them.
namespace nanscope::gui {

/// Where the parts of a grid are; those without a width are left out.
struct GridAreas {
  Area axis;
  Area column_bars;
  Area row_names;
  Area cells;
  Area row_bars;
};

/// What is written into a cell that is large enough.
using CellText = std::function<std::string(std::int64_t row, std::int64_t column)>;

/// Whether the cells are so large that each shows its value.
bool shows_values(const GridScene& scene, const TensorSheet& sheet);
/// The value of the element.
std::string value_text(const TensorSheet& sheet, std::int64_t row, std::int64_t column, const NumberStyle& style);

/// All but the cells' colours, which the grid's CellMap draws first. `hit` names the row that is pointed at.
void draw_grid_marks(const GridScene& scene, const TensorSheet& sheet, const GridAreas& areas, const CellText& text,
                     const std::optional<GridHit>& hit);
/// Keys beyond the context lie in the tail of a block: read, and not to be attended to.
bool beyond_context(const TensorSheet& sheet, std::int64_t row, std::int64_t column);
/// The token of a row in quotes, or what stands there instead; empty when nothing is known.
std::string token_text(const ViewContext& context, const TensorSheet& sheet, std::int64_t row);
/// "7", of several sequences "2:7" with the request before it; empty for what is nobody's.
std::string row_number(const TensorSheet& sheet, std::int64_t row);
/// "token 7 image", "query 3 'the', key 7, head 0", "row 9, padding".
std::string element_name(const ViewContext& context, const TensorSheet& sheet, std::int64_t row, std::int64_t column);

}  // namespace nanscope::gui
