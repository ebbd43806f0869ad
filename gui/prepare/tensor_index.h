#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "core/place.h"
#include "core/result.h"
#include "core/run/run_data.h"
#include "core/run/run_view.h"
#include "gui/cell.h"
#include "gui/prepare/prepared.h"
#include "gui/prepare/run_map.h"

namespace nanscope::gui {

/// What of a tensor's elements is told by numbers. What nobody sees is not among them: padding, -Inf that hides.
struct TensorCounts {
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
  std::uint64_t clipped = 0;
  std::uint64_t largest = 0;       ///< at the format's largest finite value
  std::uint64_t clipped_rows = 0;  ///< of a dump, which counts rows and no elements
  bool operator==(const TensorCounts&) const = default;
};

struct TensorExtent {
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  bool operator==(const TensorExtent&) const = default;
  bool operator<(const TensorExtent& other) const {
    return std::tie(tokens, channels) < std::tie(other.tokens, other.channels);
  }
};

/// A step, or what is before all steps.
struct IndexStep {
  StepId id = kBeforeSteps;
  std::int64_t rank = 0;
  std::optional<std::int64_t> request;  ///< of its first sequence; nothing where it has none
  std::int64_t index = 0;               ///< within the request
  std::size_t sequences = 0;
};

/// Every tensor of a run, in logical order, in plain columns: there may be millions, and most are alike.
struct TensorIndex final : Prepared {
  std::vector<TensorId> ids;         ///< ascending
  std::vector<std::uint32_t> step;   ///< index in `steps`
  std::vector<std::uint32_t> row;    ///< index in `rows`
  std::vector<std::uint32_t> role;   ///< index in `roles`
  std::vector<std::uint32_t> shape;  ///< index in `shapes`
  std::vector<std::uint32_t> count;  ///< index in `counts`; 0: nothing to count
  std::vector<float> absmax;         ///< as it is stored
  std::vector<float> magnitude;      ///< largest |x| that is meant: codes times their scale; 0 where it is not known
  std::vector<double> headroom;      ///< 0 where it means nothing
  std::vector<Format> format;
  std::vector<Cell> cell;

  std::vector<IndexStep> steps;
  std::vector<MapRow> rows;  ///< ops of the model by their order in it
  std::vector<std::string> roles;
  std::vector<TensorExtent> shapes;
  std::vector<TensorCounts> counts{TensorCounts{}};
  std::vector<std::string> names;                     ///< of each tensor of a dump; else empty
  std::map<std::uint32_t, std::int64_t> occurrences;  ///< outside of steps, those of a place that was there before
  bool of_dump = false;

  std::size_t size() const { return ids.size(); }
  const TensorCounts& counts_of(std::size_t tensor) const { return counts[count[tensor]]; }
  TensorExtent extent(std::size_t tensor) const { return shapes[shape[tensor]]; }
  const MapRow& op(std::size_t tensor) const { return rows[row[tensor]]; }
  const std::string& role_of(std::size_t tensor) const { return roles[role[tensor]]; }
  /// Of a dump as its producer wrote it; else empty.
  const std::string& name(std::size_t tensor) const;
  Place place(std::size_t tensor) const;
  std::optional<std::size_t> find(TensorId id) const;
};

/// `clipped`: rows of codes that a dump's casts clipped, once they are known; may be null. Errors: rows cannot be
/// read; stopped.
Result<TensorIndex> make_tensor_index(RunView& view, RunData& rows, const ClippedRows* clipped, std::stop_token stop);

}  // namespace nanscope::gui
