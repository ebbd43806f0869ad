#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"

namespace nanscope {

/// The worst thing found in a cell, in ascending order of badness.
enum class CellHealth : std::uint8_t {
  absent,  ///< no tensor of the row speaks of this token
  healthy,
  clipped,  ///< values beyond the largest finite one were clipped
  inf,
  nan,
};

struct FrontRow {
  std::string label;  ///< "embed", "layer 3", "head", or an op's name
  std::int64_t layer = -1;
  std::int64_t op = 0;            ///< when the row is one op, else 0
  std::vector<CellHealth> cells;  ///< one a token of the step
  bool detailed = true;           ///< false: the health of rows is not known, the cells show the whole tensor's
};

/// The map of one step: rows from the embedding down to the logits, columns are the tokens
/// of one request.
struct Front {
  std::int64_t request = 0;
  std::int64_t step = 0;  ///< within the request
  StepKind kind = StepKind::prefill;
  std::int64_t rank = 0;
  std::int64_t first_token = 0;  ///< position of column 0
  std::int64_t tokens = 0;
  std::vector<FrontRow> rows;
  bool clean() const;  ///< nothing worse than healthy
};

/// One row a layer, of one rank: of the first that has the step, where none is given. Errors: no such step, rows cannot
/// be read.
Result<Front> front(RunView& run, std::int64_t request, std::int64_t step, std::optional<std::int64_t> rank = {});
/// One row an op of one layer (-1: the ops outside the layers).
Result<Front> front_of_layer(RunView& run, std::int64_t request, std::int64_t step, std::int64_t layer);

}  // namespace nanscope
