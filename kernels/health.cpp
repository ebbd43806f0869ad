#include "kernels/health.h"

namespace nanscope::kernels {

HealthSummary summarize(std::span<const Health> tiles, std::int64_t rows, std::int64_t tiles_per_row) {
  HealthSummary summary{empty_health(), {}};
  summary.rows.assign(static_cast<std::size_t>(rows), empty_health());
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    merge(summary.rows[i / static_cast<std::size_t>(tiles_per_row)], tiles[i]);
    merge(summary.tensor, tiles[i]);
  }
  return summary;
}

}  // namespace nanscope::kernels
