#include "instrument/diff/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/run/key_columns.h"
#include "core/run/kv_cache.h"
#include "core/run/mask.h"

namespace nanscope::align {
namespace {

constexpr std::size_t kBlocks = 16;

/// The positions that the columns of a head stand for; of a mask, which has no heads, all columns.
std::vector<std::int64_t> key_positions(const Sequences& places, const Sheet& sheet, std::int64_t row) {
  const Span* span = places.span(sheet.tensor->step, row);
  const Step* step = places.step(sheet.tensor->step);
  if (span == nullptr || step == nullptr) return {};
  return column_positions(*step, *span, keys_of(*sheet.tensor));
}

}  // namespace

std::string_view name(Join join) {
  switch (join) {
    case Join::alone:
      return "alone";
    case Join::columns:
      return "columns";
    case Join::each:
      return "each";
    case Join::replicated:
      return "replicated";
    case Join::sum:
      break;
  }
  return "sum";
}

namespace {

/// Places of a row: several where one row is of all sequences of a batch.
std::vector<RowPlace> places_of(const Sheet& sheet, const Sequences& places, std::int64_t row) {
  const Tensor& tensor = *sheet.tensor;
  const Step* step = places.step(tensor.step);
  if (sheet.meeting == Meeting::whole || step == nullptr) return {{-1, row}};
  if (sheet.meeting == Meeting::keys) return {places.place(tensor, row)};
  if (tensor.axis != Axis::rows && tensor.axis != Axis::none && sheet.rows == tensor.tokens) {
    return {places.place(tensor, row)};
  }
  std::vector<RowPlace> all;
  for (std::int64_t at = row; at < step->rows; at += std::max<std::int64_t>(1, sheet.rows)) {
    all.push_back(places.place_in_step(tensor.step, at));
  }
  return all;
}

}  // namespace

RowIndex index_rows(const Group& group, const Sequences& places, const std::vector<std::int64_t>& names) {
  RowIndex index;
  std::map<std::pair<RowPlace, std::int64_t>, std::size_t> turns;  // by rank
  for (std::size_t at = 0; at < group.sheets.size(); ++at) {
    const Sheet& sheet = group.sheets[at];
    for (std::int64_t row = 0; row < sheet.rows; ++row) {
      for (RowPlace place : places_of(sheet, places, row)) {
        if (sheet.meeting != Meeting::whole) {
          if (place.sequence < 0) continue;
          place.sequence = names[static_cast<std::size_t>(place.sequence)];
        }
        std::vector<Occurrence>& all = index[place];
        std::size_t& turn = turns[{place, sheet.rank}];
        if (turn == all.size()) all.emplace_back();
        if (sheet.meeting == Meeting::keys) {
          const Step* step = places.step(sheet.tensor->step);
          for (const Span& span : step->spans) all[turn].context = std::max(all[turn].context, span.context);
        }
        all[turn++].ranks.push_back({at, row});
      }
    }
  }
  return index;
}

std::size_t readings(const Part& part, const Occurrence& at) {
  if (part.join == Join::columns) return static_cast<std::size_t>(part.every);
  return part.join == Join::replicated || part.join == Join::each ? at.ranks.size() : 1;
}

std::string index_key(const Group& group) {
  std::string key;
  for (const Sheet& sheet : group.sheets) {
    const Tensor& tensor = *sheet.tensor;
    key += fmt::format("{} {} {} {} {} {} {} {}|", tensor.step, static_cast<int>(sheet.meeting),
                       static_cast<int>(tensor.axis), sheet.rows, tensor.tokens, tensor.sequence, tensor.first_token,
                       sheet.rank);
  }
  return key;
}

std::span<const float> RowReader::row(const Sheet& sheet, std::int64_t row) {
  const Tensor& tensor = *sheet.tensor;
  const auto width = static_cast<std::size_t>(sheet.channels);
  auto found = blocks_.find(tensor.id);
  if (found == blocks_.end() || row < found->second.first || row >= found->second.first + found->second.rows) {
    if (found == blocks_.end() && blocks_.size() >= kBlocks) blocks_.clear();
    const bool flat = sheet.rows != tensor.tokens;
    const std::int64_t at_once = std::max<std::int64_t>(1, elements_ / std::max<std::int64_t>(1, tensor.channels));
    const std::int64_t first = flat ? 0 : row;
    const std::int64_t count = flat ? tensor.tokens : std::min(at_once, tensor.tokens - row);
    const Fact<TensorData> data = run_.read(tensor, first, count);
    if (!data) return {};
    Block& block = blocks_[tensor.id];
    block.first = first;
    block.rows = flat ? sheet.rows : count;
    data->decode_into(block.values);
    found = blocks_.find(tensor.id);
  }
  const auto at = static_cast<std::size_t>(row - found->second.first) * width;
  return std::span<const float>(found->second.values).subspan(at, width);
}

std::int64_t JoinedRows::keys(const Occurrence& at) const {
  const std::vector<std::int64_t> positions =
      key_positions(places_, group_.sheets[at.ranks.front().sheet], at.ranks.front().row);
  return positions.empty() ? 0 : *std::max_element(positions.begin(), positions.end()) + 1;
}

bool JoinedRows::add(const RowRef& ref, std::int64_t keys, std::vector<float>& into) {
  const Sheet& sheet = group_.sheets[ref.sheet];
  const std::span<const float> values = reader_.row(sheet, ref.row);
  if (values.empty() && sheet.channels > 0) return false;
  if (sheet.meeting != Meeting::scores && sheet.meeting != Meeting::mask) {
    const auto width = static_cast<std::size_t>(part_.width > 0 ? part_.width : sheet.channels);
    const auto part = values.subspan(static_cast<std::size_t>(part_.first), width);
    if (part_.join == Join::sum && !into.empty()) {
      std::transform(part.begin(), part.end(), into.begin(), into.begin(), std::plus<>());
    } else {
      into.insert(into.end(), part.begin(), part.end());
    }
    return true;
  }
  const std::vector<std::int64_t> positions = key_positions(places_, sheet, ref.row);
  if (positions.empty()) return false;
  const bool is_mask = sheet.meeting == Meeting::mask;
  const bool adds = is_mask && *std::min_element(values.begin(), values.end()) < 0;
  // A mask of numbers that are all 0 hides nothing; one of truth values that are all false, everything.
  const bool numbers = sheet.tensor->format != Format::i32;
  for (std::size_t head = 0; head * positions.size() < values.size(); ++head) {
    const std::size_t begin = into.size();
    into.resize(begin + static_cast<std::size_t>(keys), 0.0F);
    for (std::size_t key = 0; key < positions.size(); ++key) {
      if (positions[key] < 0 || positions[key] >= keys) continue;
      const float value = values[head * positions.size() + key];
      const bool visible = adds || numbers ? !hidden_by_mask(double{value}) : value != 0;
      into[begin + static_cast<std::size_t>(positions[key])] = is_mask ? (visible ? 1.0F : 0.0F) : value;
    }
  }
  return true;
}

bool JoinedRows::read(const Occurrence& at, std::size_t rank, std::int64_t keys, std::vector<float>& into) {
  into.clear();
  if (part_.join != Join::columns && part_.join != Join::sum) {
    return add(at.ranks[std::min(rank, at.ranks.size() - 1)], keys, into);
  }
  for (std::size_t i = 0; i < at.ranks.size(); ++i) {
    const bool repeated = part_.join == Join::columns && static_cast<std::int64_t>(i + rank) % part_.every != 0;
    if (!repeated && !add(at.ranks[i], keys, into)) return false;
  }
  if (part_.total > 0 && std::ssize(into) > part_.total) into.resize(static_cast<std::size_t>(part_.total));
  return true;
}

}  // namespace nanscope::align
