#include "core/dump/clipping.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace nanscope {
namespace {

constexpr std::int64_t kFew = 4;  ///< ties for the largest value happen
constexpr double kSmallShare = 1.0 / 1024;
constexpr double kTies = 1.5;  ///< elements at the largest value for each scale, at most

/// Every group has one at the largest value, and few have more: what a scale a group does.
bool one_a_group(std::int64_t saturated, std::int64_t groups, std::int64_t groups_with) {
  return groups > 1 && groups_with * 10 >= groups * 9 &&
         static_cast<double>(saturated) <= kTies * static_cast<double>(groups);
}

}  // namespace

bool holds_codes(const DumpTensor& tensor) {
  if (!tensor.format || tensor.dtype == nullptr) return false;
  const int bits = info(*tensor.format).bits;
  const std::string& role = tensor.at.role;
  const bool cast = role.ends_with("_cache") || role.ends_with("_codes") || tensor.at.port != Port::state;
  return bits <= 8 && *tensor.format != Format::e8m0 && cast;
}

std::optional<Clipping> clipping_of(DumpFacts& facts, TensorIndex codes) {
  const DumpTensor& tensor = facts.tensor(codes);
  Clipping out;
  out.count = tensor.count();
  out.saturated = static_cast<std::int64_t>(tensor.health.saturated);
  if (out.saturated < kFew) return out;
  const auto values = facts.values(codes);
  if (!values) return std::nullopt;
  const float largest = info(*tensor.format).max_finite;
  const std::int64_t channels = tensor.channels();
  std::vector<std::int64_t> columns(static_cast<std::size_t>(channels));
  std::int64_t rows_with = 0;
  std::array<std::int64_t, 4> blocks_with{};
  std::array<std::int64_t, 4> last_block{-1, -1, -1, -1};
  for (std::int64_t i = 0; i < out.count; ++i) {
    if (!(std::abs((*values)[static_cast<std::size_t>(i)]) >= largest)) continue;
    ++columns[static_cast<std::size_t>(i % channels)];
    if (out.rows.empty() || out.rows.back() != i / channels) {
      out.rows.push_back(i / channels);
      ++rows_with;
    }
    for (std::size_t size = 0; size < blocks_with.size(); ++size) {
      const std::int64_t block = i / (std::int64_t{16} << size);
      if (block != last_block[size]) ++blocks_with[size];
      last_block[size] = block;
    }
  }
  const auto columns_with = std::count_if(columns.begin(), columns.end(), [](std::int64_t n) { return n > 0; });
  bool blocks = false;
  for (std::size_t size = 0; size < blocks_with.size(); ++size) {
    blocks = blocks || one_a_group(out.saturated, out.count / (std::int64_t{16} << size), blocks_with[size]);
  }
  if (one_a_group(out.saturated, tensor.rows(), rows_with)) {
    out.kind = Saturating::per_row;
  } else if (one_a_group(out.saturated, channels, columns_with)) {
    out.kind = Saturating::per_channel;
  } else if (blocks) {
    out.kind = Saturating::per_block;
  } else {
    out.kind = out.share() < kSmallShare ? Saturating::per_tensor : Saturating::clipped;
  }
  if (out.kind != Saturating::clipped) out.rows.clear();
  return out;
}

}  // namespace nanscope
