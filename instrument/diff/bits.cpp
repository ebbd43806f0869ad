#include "instrument/diff/bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "instrument/diff/compare_rows.h"

namespace nanscope::align {
namespace {

constexpr std::int64_t kBlockElements = std::int64_t{1} << 20;

/// The tensor of B that a tensor of A meets row by row, if there is one.
struct Met {
  std::size_t sheet = 0;
  std::int64_t rows = 0;
  bool in_order = true;
};

/// By the sheets of A.
std::map<std::size_t, Met> sheets_that_meet(const RowMeetings& meetings) {
  std::map<std::size_t, Met> met;
  for (const RowMeeting& one : meetings.rows) {
    for (std::size_t rank = 0; rank < std::min(one.a->ranks.size(), one.b->ranks.size()); ++rank) {
      const RowRef& left = one.a->ranks[rank];
      const RowRef& right = one.b->ranks[rank];
      Met& pair = met.try_emplace(left.sheet, Met{right.sheet}).first->second;
      pair.in_order = pair.in_order && pair.sheet == right.sheet && left.row == right.row;
      ++pair.rows;
    }
  }
  return met;
}

/// Some rows at a time; nothing when they cannot be had.
std::optional<TensorComparison> compare_elements(RunView& a, const Tensor& of_a, RunView& b, const Tensor& of_b) {
  TensorComparison all;
  all.comparable = true;
  const std::int64_t at_once = std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, of_a.channels));
  for (std::int64_t row = 0; row < of_a.tokens; row += at_once) {
    const std::int64_t rows = std::min(at_once, of_a.tokens - row);
    const Fact<TensorData> left = a.read(of_a, row, rows);
    const Fact<TensorData> right = left ? b.read(of_b, row, rows) : Fact<TensorData>(TensorData{});
    if (!left || !right) return std::nullopt;
    TensorComparison block = compare(*left, *right);
    if (!block.comparable) return std::nullopt;
    all.compared += block.compared;
    all.differing += block.differing;
    all.max_ulps = std::max(all.max_ulps, block.max_ulps);
    if (!all.first && block.first) {
      all.first = block.first;
      all.first->index += row * of_a.channels;
    }
  }
  return all;
}

class Bits {
 public:
  Bits(Side& a, Side& b, DiffReport& report, std::vector<Moved>& found)
      : a_(a), b_(b), report_(report), found_(found) {}

  void compare(const Partner& partner) {
    const RowMeetings meetings = row_meetings(a_, b_, partner);
    report_.rows += meetings.rows.size();
    report_.rows_only_in_a += meetings.only_a;
    report_.rows_only_in_b += meetings.only_b;
    const Group& left = a_.group(partner.a);
    const Group& right = b_.group(partner.b);
    std::vector<std::size_t> by_rows;
    for (const auto& [sheet, met] : sheets_that_meet(meetings)) {
      const Tensor& a = *left.sheets[sheet].tensor;
      const Tensor& b = *right.sheets[met.sheet].tensor;
      if (left.ranks == right.ranks && met.in_order && a.tokens == b.tokens) {
        compare_pair(a, b);
      } else {
        by_rows.push_back(sheet);
      }
    }
    if (!by_rows.empty()) compare_by_rows(partner, meetings, by_rows);
  }

 private:
  void add(DifferenceKind kind, const Tensor& a, const Tensor& b) {
    ++report_.differing;
    Difference one;
    one.kind = kind;
    one.a = a;
    one.b = b;
    found_.push_back({{}, std::move(one)});
  }

  void compare_pair(const Tensor& a, const Tensor& b) {
    ++report_.compared;
    if (a.format != b.format || a.channels != b.channels) {
      add(DifferenceKind::shape, a, b);
    } else if (*a.hash != *b.hash) {
      add(DifferenceKind::content, a, b);
    } else {
      ++report_.equal;
    }
  }

  /// Where the rows lie otherwise.
  void compare_by_rows(const Partner& partner, const RowMeetings& meetings, const std::vector<std::size_t>& sheets) {
    const PairApart apart = compare_rows(a_, b_, partner, meetings);
    const Group& left = a_.group(partner.a);
    const Group& right = b_.group(partner.b);
    for (const std::size_t sheet : sheets) {
      ++report_.compared;
      const auto of_sheet = [&](const RowApart& row) { return row.a.sheet == sheet; };
      if (std::none_of(apart.rows.begin(), apart.rows.end(), of_sheet)) {
        ++report_.unknown;
        continue;
      }
      const auto worst = std::find_if(apart.rows.begin(), apart.rows.end(),
                                      [&](const RowApart& row) { return of_sheet(row) && row.differing > 0; });
      if (worst == apart.rows.end()) {
        ++report_.equal;
        continue;
      }
      add(DifferenceKind::content, *left.sheets[sheet].tensor, *right.sheets[worst->b.sheet].tensor);
      Difference& one = found_.back().difference;
      one.first = worst->a.row * left.channels() + worst->channel;
      one.token = worst->a.row;
      one.value_a = double{worst->value_a};
      one.value_b = double{worst->value_b};
      one.differing = worst->differing;
      one.count = worst->columns;
    }
  }

  Side& a_;
  Side& b_;
  DiffReport& report_;
  std::vector<Moved>& found_;
};

void describe_rows(Facts& facts, Difference& difference) {
  const std::int64_t channel = difference.first % std::max<std::int64_t>(1, difference.a->channels);
  difference.where = facts.where(*difference.a, Range{difference.token, difference.token}, Range{channel, channel});
  difference.summary =
      fmt::format("{} is {} in A, {} in B; {} of the row's {} elements differ", place_text(difference.where),
                  difference.value_a, difference.value_b, difference.differing, difference.count);
}

}  // namespace

void compare_bits(Side& a, Side& b, const std::vector<Partner>& partners, DiffReport& report,
                  std::vector<Moved>& found) {
  Bits bits(a, b, report, found);
  for (const Partner& partner : partners) bits.compare(partner);
}

void describe_bits(Facts& facts_a, Facts& facts_b, Difference& difference) {
  const Tensor& a = *difference.a;
  const Tensor& b = *difference.b;
  difference.where = facts_a.where(a);
  const std::string place = place_text(difference.where);
  if (difference.kind == DifferenceKind::shape) {
    difference.summary = fmt::format("{} is {} x {} {} in A, {} x {} {} in B", place, a.tokens, a.channels,
                                     name(a.format), b.tokens, b.channels, name(b.format));
    return;
  }
  if (difference.first >= 0) {
    describe_rows(facts_a, difference);
    return;
  }
  difference.elements = compare_elements(facts_a.run, a, facts_b.run, b);
  if (!difference.elements) {
    difference.summary = fmt::format("{} differs: hash {:016x} in A, {:016x} in B; its elements are not available",
                                     place, a.hash.value_or(0), b.hash.value_or(0));
  } else if (!difference.elements->first) {
    difference.summary = fmt::format("{} has other hashes but the same elements: a hash is wrong", place);
  } else {
    const ElementDifference& first = *difference.elements->first;
    const std::int64_t row = first.index / a.channels;
    const std::int64_t channel = first.index % a.channels;
    difference.where = facts_a.where(a, Range{row, row}, Range{channel, channel});
    difference.summary =
        fmt::format("{} is {} ({}) in A, {} ({}) in B{}; {} of {} elements differ", place_text(difference.where),
                    first.value_a, code_text(a.format, first.code_a), first.value_b, code_text(a.format, first.code_b),
                    first.ulps ? fmt::format(", {} ulp apart", *first.ulps) : std::string(),
                    difference.elements->differing, difference.elements->compared);
  }
}

}  // namespace nanscope::align
