#include "core/dump/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <tuple>

namespace nanscope {
namespace {

/// Everything of a name but the key, so that folders stay together.
std::string_view folder_of(const DumpTensor& tensor) {
  const std::size_t slash = tensor.name.rfind('/');
  return slash == std::string::npos ? std::string_view() : std::string_view(tensor.name).substr(0, slash);
}

/// Before, in and after the layers; a layer that is not known is no layer.
std::tuple<int, std::int64_t, int> place_in_pass(const TensorName& at) {
  if (at.layer) return {1, *at.layer, at.order};
  if (!at.known) return {3, 0, 0};
  return {at.order < 0 ? 0 : 2, 0, at.order};
}

bool executes_before(const DumpTensor& a, const DumpTensor& b) {
  if (natural_less(folder_of(a), folder_of(b))) return true;
  if (natural_less(folder_of(b), folder_of(a))) return false;
  const auto key = [](const TensorName& at) {
    // Encoders of pictures and sound run before the language model, what predicts more tokens after it.
    const int tower = at.tower.empty() ? 1 : at.tower == "mtp" ? 2 : 0;
    return std::tuple(at.request.value_or(0), at.step.value_or(0), at.rank.value_or(0), tower);
  };
  if (key(a.at) != key(b.at)) return key(a.at) < key(b.at);
  if (place_in_pass(a.at) != place_in_pass(b.at)) return place_in_pass(a.at) < place_in_pass(b.at);
  if (a.at.expert != b.at.expert) return a.at.expert.value_or(-1) < b.at.expert.value_or(-1);
  return natural_less(a.name, b.name);
}

}  // namespace

std::int64_t DumpTensor::channels() const { return shape.empty() ? 1 : shape.back(); }

std::int64_t DumpTensor::rows() const {
  if (shape.empty()) return 1;
  return std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1}, std::multiplies<>());
}

std::int64_t DumpTensor::tokens() const {
  const bool query_by_key = at.role == "scores" || at.role == "probs" || at.role == "mask";
  switch (shape.size()) {
    case 0:
      return 1;
    case 1:
    case 2:
      return rows();
    case 3:
      return query_by_key ? shape[1] : (shape[0] == 1 ? shape[1] : shape[0]);
    default:
      // (batch, heads, tokens, channels): what attention works on.
      return shape[shape.size() - 2];
  }
}

std::int64_t DumpTensor::token_of(std::int64_t row) const {
  if (shape.size() == 3 && shape[0] != 1 && tokens() == shape[0]) return row / std::max<std::int64_t>(1, shape[1]);
  return tokens() > 0 ? row % tokens() : 0;
}

void sort_by_execution(std::vector<DumpTensor>& tensors, std::span<const std::int64_t> recorded) {
  if (recorded.size() != tensors.size()) {
    std::stable_sort(tensors.begin(), tensors.end(), executes_before);
    return;
  }
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return recorded[a] < recorded[b]; });
  std::vector<DumpTensor> sorted;
  sorted.reserve(tensors.size());
  for (const std::size_t i : order) sorted.push_back(std::move(tensors[i]));
  tensors = std::move(sorted);
}

Result<std::vector<Health>> rows_of_stated(const DumpTensor& tensor) {
  constexpr std::int64_t kMostRows = std::int64_t{1} << 20;
  if (tensor.rows() > kMostRows) return fail(fmt::format("{}: {} rows without elements", tensor.name, tensor.rows()));
  Health row = empty_health();
  row.count = static_cast<std::uint64_t>(tensor.channels());
  row.nan = tensor.health.nan;
  row.pos_inf = tensor.health.pos_inf;
  row.neg_inf = tensor.health.neg_inf;
  return std::vector<Health>(static_cast<std::size_t>(tensor.rows()), row);
}

}  // namespace nanscope
