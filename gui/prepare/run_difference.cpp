#include "gui/prepare/run_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/counted.h"

namespace nanscope::gui {
namespace {

constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 22;  ///< elements that are read at once

std::uint64_t combine(std::uint64_t seed, std::uint64_t with) {
  return seed ^ (with + 0x9e3779b97f4a7c15U + (seed << 6U) + (seed >> 2U));
}

/// Of the bytes of all elements; 0 when they cannot be had.
std::uint64_t hash_of(RunView& run, const Tensor& tensor, const std::stop_token& stop) {
  if (tensor.hash) return *tensor.hash;
  std::uint64_t hash = 1;
  const auto add = [&hash](std::span<const std::byte> bytes) {
    hash = combine(hash, std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  };
  const std::int64_t at_once = std::max<std::int64_t>(1, kElementsAtOnce / std::max<std::int64_t>(1, tensor.channels));
  for (std::int64_t first = 0; first < tensor.tokens; first += at_once) {
    const Fact<TensorData> data = run.read(tensor, first, std::min(at_once, tensor.tokens - first));
    if (!data || stop.stop_requested()) return 0;
    add(data->bytes);
  }
  return hash;
}

/// Of its first token. A file may claim any.
std::int64_t position_of(const MapStep& step) {
  constexpr std::int64_t kFar = std::int64_t{1} << 41;
  return std::clamp(step.row.first_token, -kFar, kFar);
}

Cell compare(Cell here, Cell there, bool same_bits) {
  if (here == kAbsent && there == kAbsent) return kCellNowhere;
  if (there == kAbsent) return kCellOnlyHere;
  if (here == kAbsent) return kCellOnlyThere;
  const Cell class_here = health_class(here);
  const Cell class_there = health_class(there);
  if (class_here > class_there) return class_here;
  if (class_here < class_there) return kCellWorseThere;
  return same_bits ? kCellEqual : kCellOtherBits;
}

}  // namespace

Cell health_class(Cell cell) {
  if (cell >= kLowHeadroom) return cell;
  return cell == kAbsent ? kAbsent : kHealthyFirst;
}

std::string_view difference_name(Cell difference) {
  switch (difference) {
    case kCellNowhere:
      return "recorded in neither run";
    case kCellEqual:
      return "equal bits";
    case kCellOnlyHere:
      return "the other run has no such cell";
    case kCellOnlyThere:
      return "this run has no such cell";
    case kCellOtherBits:
      return "as healthy, but this op wrote other bits in this step";
    case kCellWorseThere:
      return "worse there";
    default:
      return "worse here";
  }
}

std::string RunDifference::words() const {
  const std::int64_t compared = equal + other_bits + worse_here + worse_there;
  if (compared == 0) return "the other run has none of these cells";
  std::vector<std::string> parts;
  if (worse_here > 0) parts.push_back(fmt::format("{} worse here", worse_here));
  if (worse_there > 0) parts.push_back(fmt::format("{} worse there", worse_there));
  if (other_bits > 0) parts.push_back(fmt::format("{} with other bits", other_bits));
  if (only_here > 0) parts.push_back(fmt::format("{} here only", only_here));
  if (only_there > 0) parts.push_back(fmt::format("{} there only", only_there));
  if (parts.empty()) return fmt::format("all {} have equal bits", counted(compared, "cell"));
  return fmt::format("of {}: {}", counted(compared + only_here + only_there, "cell"), fmt::join(parts, ", "));
}

std::vector<std::uint64_t> RunDifferenceMaker::fingerprints(RunView& run, const RunMap& map,
                                                            const MapStep& step) const {
  std::unordered_map<std::int64_t, std::uint32_t> row_of;
  for (std::size_t i = step.first_op; i < map.ops.size() && map.steps[map.ops[i].step].row.id == step.row.id; ++i) {
    row_of.emplace(map.ops[i].id, map.ops[i].row);
  }
  std::vector<std::uint64_t> out(map.rows.size(), 0);
  for (const Tensor& tensor : run.content(step.row.id).tensors) {
    const auto row = row_of.find(tensor.op);
    if (row == row_of.end() || !tensor.known) continue;
    std::uint64_t& seen = out[row->second];
    seen = combine(seen, std::hash<std::string>{}(tensor.role));
    seen = combine(seen, static_cast<std::uint64_t>(tensor.format));
    seen = combine(seen, static_cast<std::uint64_t>(tensor.tokens));
    seen = combine(seen, static_cast<std::uint64_t>(tensor.channels));
    seen = combine(seen, hash_of(run, tensor, stop_));
  }
  return out;
}

RunDifferenceMaker::RunDifferenceMaker(std::shared_ptr<const RunMap> here, RunView& here_run,
                                       std::shared_ptr<const RunMap> there, RunView& there_run, std::stop_token stop)
    : here_(std::move(here)),
      here_run_(here_run),
      there_(std::move(there)),
      there_run_(there_run),
      stop_(std::move(stop)) {
  std::map<std::pair<std::int64_t, std::string>, std::size_t> found;
  for (std::size_t i = 0; i < there_->rows.size(); ++i)
    found.emplace(std::pair{there_->rows[i].layer, there_->rows[i].op}, i);
  for (const MapRow& row : here_->rows) {
    const auto at = found.find({row.layer, row.op});
    row_there_.push_back(at == found.end() ? there_->rows.size() : at->second);
  }
  out_.columns = here_->columns;
  out_.cells.assign(here_->cells.size(), kCellNowhere);
  out_.there.assign(here_->cells.size(), kAbsent);
}

Status RunDifferenceMaker::refine(Clock::time_point deadline) {
  while (!done()) {
    if (stop_.stop_requested()) return fail("stopped");
    compare_step(here_->steps[next_++]);
    for (const RunView* run : {&here_run_, &there_run_}) {
      if (Status status = run->status(); !status) return status;
    }
    if (Clock::now() >= deadline) break;
  }
  return {};
}

void RunDifferenceMaker::compare_step(const MapStep& step) {
  const MapStep* twin = there_->find_step(step.row.request, step.row.index, step.rank);
  const std::vector<std::uint64_t> bits_here = fingerprints(here_run_, *here_, step);
  const std::vector<std::uint64_t> bits_there =
      twin != nullptr ? fingerprints(there_run_, *there_, *twin) : std::vector<std::uint64_t>();
  // The same token: a run may reuse another's prefix and begin later.
  const std::int64_t ahead = twin != nullptr ? position_of(step) - position_of(*twin) : 0;
  for (std::size_t row = 0; row < here_->rows.size(); ++row) {
    const std::size_t row_there = twin != nullptr ? row_there_[row] : there_->rows.size();
    const bool met = row_there < there_->rows.size();
    const bool same_bits = met && bits_here[row] == bits_there[row_there];
    for (std::int64_t i = 0; i < step.tokens; ++i) {
      const std::int64_t column = step.first_column + i;
      const std::int64_t in_twin = ahead + i;
      const bool in = met && in_twin >= 0 && in_twin < twin->tokens;
      const Cell here = here_->row(row)[static_cast<std::size_t>(column)];
      const Cell there = in ? there_->row(row_there)[static_cast<std::size_t>(twin->first_column + in_twin)] : kAbsent;
      const std::size_t at = row * static_cast<std::size_t>(out_.columns) + static_cast<std::size_t>(column);
      out_.there[at] = there;
      out_.cells[at] = compare(here, there, same_bits);
      count(out_.cells[at]);
    }
  }
}

void RunDifferenceMaker::count(Cell cell) {
  if (cell == kCellEqual) ++out_.equal;
  if (cell == kCellOtherBits) ++out_.other_bits;
  if (cell == kCellWorseThere) ++out_.worse_there;
  if (cell >= kLowHeadroom) ++out_.worse_here;
  if (cell == kCellOnlyHere) ++out_.only_here;
  if (cell == kCellOnlyThere) ++out_.only_there;
}

}  // namespace nanscope::gui
