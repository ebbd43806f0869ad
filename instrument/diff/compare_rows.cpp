#include "instrument/diff/compare_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/run/mask.h"

namespace nanscope::align {
namespace {

/// Each of the more is met by one of the fewer: keys by who read them, rows by their turn.
void meet(const std::vector<Occurrence>& a, const std::vector<Occurrence>& b, bool by_context, const RowPlace& place,
          std::vector<RowMeeting>& into) {
  const bool more_of_a = a.size() >= b.size();
  const std::vector<Occurrence>& more = more_of_a ? a : b;
  const std::vector<Occurrence>& fewer = more_of_a ? b : a;
  for (std::size_t i = 0; i < more.size(); ++i) {
    std::size_t other = std::min(i, fewer.size() - 1);
    if (by_context) {
      const auto later = std::find_if(fewer.begin(), fewer.end(),
                                      [&](const Occurrence& one) { return one.context >= more[i].context; });
      other = later == fewer.end() ? fewer.size() - 1 : static_cast<std::size_t>(later - fewer.begin());
    }
    into.push_back(more_of_a ? RowMeeting{place, &more[i], &fewer[other]} : RowMeeting{place, &fewer[other], &more[i]});
  }
}

/// Numbers of f32 that bf16 computed: so many others would have the lower half of their bits 0 once in 2^256 cases.
class Narrow {
 public:
  void add(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    wide_ = wide_ || (bits & 0xFFFFU) != 0;
    if (bits != last_ && value != 0) ++numbers_;
    last_ = bits;
  }
  bool found() const { return !wide_ && numbers_ >= 16; }

 private:
  bool wide_ = false;
  std::uint32_t last_ = 0;
  std::size_t numbers_ = 0;
};

bool same(float a, float b, bool hides) {
  return a == b || (std::isnan(a) && std::isnan(b)) ||
         (hides && hidden_by_mask(double{a}) && hidden_by_mask(double{b}));
}

void size_up(RowApart& row, double& own, double& others, float a, float b) {
  if (std::isfinite(a)) own += double{a} * double{a};
  if (std::isfinite(b)) others += double{b} * double{b};
  for (const float value : {a, b}) {
    if (std::isfinite(value)) row.size = std::max(row.size, std::abs(double{value}));
  }
}

void note(RowApart& row, double& differences, double& fourth, std::int64_t channel, float a, float b) {
  ++row.differing;
  if (!std::isfinite(a) || !std::isfinite(b)) {
    if (!row.not_finite) std::tie(row.channel, row.value_a, row.value_b) = std::tuple(channel, a, b);
    row.not_finite = true;
    return;
  }
  const double apart = std::abs(double{a} - double{b});
  differences += apart * apart;
  fourth += apart * apart * apart * apart;
  if (apart <= row.largest) return;
  row.largest = apart;
  if (!row.not_finite) std::tie(row.channel, row.value_a, row.value_b) = std::tuple(channel, a, b);
}

class Comparison {
 public:
  Comparison(Side& a, Side& b, const Partner& partner)
      : a_(a),
        partner_(partner),
        left_(a.run, a.places, a.group(partner.a), partner.part_a),
        right_(b.run, b.places, b.group(partner.b), partner.part_b) {
    const Group& group = a.group(partner.a);
    hides_ = may_hide(group.role) || group.sheets.front().tensor->hides;
  }

  PairApart run(const RowMeetings& meetings) {
    for (const RowMeeting& one : meetings.rows) {
      if (partner_.part_a.join == Join::each) {
        for (std::size_t rank = 0; rank < std::min(one.a->ranks.size(), one.b->ranks.size()); ++rank) {
          compare(one, rank, rank);
        }
        continue;
      }
      for (std::size_t rank = 0; rank < readings(partner_.part_a, *one.a); ++rank) compare(one, rank, 0);
      for (std::size_t rank = 1; rank < readings(partner_.part_b, *one.b); ++rank) compare(one, 0, rank);
    }
    out_.square = count_ > 0 ? squares_ / static_cast<double>(count_) : 0;
    out_.narrow = narrow_a_.found() || narrow_b_.found();
    return std::move(out_);
  }

  bool read(const RowApart& row, const Occurrence& a, const Occurrence& b, std::vector<float>& x,
            std::vector<float>& y) {
    std::int64_t keys = 0;
    if (a_.group(partner_.a).meeting() == Meeting::scores || a_.group(partner_.a).meeting() == Meeting::mask) {
      keys = std::max(left_.keys(a), right_.keys(b));
      // Scores that no mask was added to mean nothing behind the query.
      if (a_.group(partner_.a).role != "probs") keys = std::min(keys, row.place.position + 1);
    }
    return left_.read(a, row.rank_a, keys, x) && right_.read(b, row.rank_b, keys, y);
  }

 private:
  void compare(const RowMeeting& meeting, std::size_t rank_a, std::size_t rank_b) {
    RowApart row;
    row.place = meeting.place;
    row.rank_a = rank_a;
    row.rank_b = rank_b;
    row.a = meeting.a->ranks[std::min(rank_a, meeting.a->ranks.size() - 1)];
    row.b = meeting.b->ranks[std::min(rank_b, meeting.b->ranks.size() - 1)];
    if (!read(row, *meeting.a, *meeting.b, x_, y_) || x_.size() != y_.size()) {
      ++out_.unread;
      return;
    }
    double differences = 0;
    double fourth = 0;
    double own = 0;
    double others = 0;
    row.columns = std::ssize(x_);
    for (std::size_t i = 0; i < std::min(x_.size(), y_.size()); ++i) {
      const auto channel = static_cast<std::int64_t>(i);
      narrow_a_.add(x_[i]);
      narrow_b_.add(y_[i]);
      size_up(row, own, others, x_[i], y_[i]);
      if (!same(x_[i], y_[i], hides_)) note(row, differences, fourth, channel, x_[i], y_[i]);
    }
    squares_ += own;
    count_ += x_.size();
    const double size = std::max(own, others);
    row.relative = row.not_finite ? std::numeric_limits<double>::infinity()
                   : size > 0     ? std::sqrt(differences / size)
                                  : 0;
    row.spread = fourth > 0 ? differences * differences / fourth : 0;
    out_.rows.push_back(row);
  }

  Side& a_;
  const Partner& partner_;
  JoinedRows left_;
  JoinedRows right_;
  bool hides_ = false;
  Narrow narrow_a_;
  Narrow narrow_b_;
  std::vector<float> x_;
  std::vector<float> y_;
  double squares_ = 0;
  std::size_t count_ = 0;
  PairApart out_;
};

/// The occurrence of a place that has a row.
const Occurrence* occurrence(const RowIndex& index, const RowPlace& place, const RowRef& ref) {
  const auto found = index.find(place);
  if (found == index.end()) return nullptr;
  for (const Occurrence& one : found->second) {
    for (const RowRef& own : one.ranks) {
      if (own.sheet == ref.sheet && own.row == ref.row) return &one;
    }
  }
  return nullptr;
}

/// Adds those of one row. A number that is missing in one of both is as far off as the row is large.
void add_squares(std::vector<double>& squares, const std::vector<float>& x, const std::vector<float>& y) {
  RowApart row;
  double own = 0;
  double others = 0;
  const std::size_t columns = std::min(x.size(), y.size());
  for (std::size_t i = 0; i < columns; ++i) size_up(row, own, others, x[i], y[i]);
  const double size = std::max(own, others);
  for (std::size_t i = 0; i < columns; ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double apart = double{x[i]} - double{y[i]};
    squares[i] += std::isfinite(apart) && size > 0 ? apart * apart / size : 1;
  }
}

}  // namespace

RowMeetings row_meetings(Side& a, Side& b, const Partner& partner) {
  RowMeetings found;
  found.met_a.resize(a.group(partner.a).sheets.size());
  found.met_b.resize(b.group(partner.b).sheets.size());
  const RowIndex& rows_a = a.index(partner.a);
  const RowIndex& rows_b = b.index(partner.b);
  const bool by_context = a.group(partner.a).meeting() == Meeting::keys;
  for (const auto& [place, all] : rows_a) {
    const auto other = rows_b.find(place);
    if (other == rows_b.end()) {
      ++found.only_a;
    } else {
      meet(all, other->second, by_context, place, found.rows);
    }
  }
  for (const auto& [place, all] : rows_b) found.only_b += rows_a.contains(place) ? 0 : 1;
  const auto order = [](const RowMeeting& one) {
    const RowRef& of_a = one.a->ranks.front();
    const RowRef& of_b = one.b->ranks.front();
    return std::tuple(of_a.sheet, of_a.row, of_b.sheet, of_b.row);
  };
  std::stable_sort(found.rows.begin(), found.rows.end(),
                   [&](const RowMeeting& x, const RowMeeting& y) { return order(x) < order(y); });
  for (const RowMeeting& one : found.rows) {
    for (const RowRef& ref : one.a->ranks) found.met_a[ref.sheet] = true;
    for (const RowRef& ref : one.b->ranks) found.met_b[ref.sheet] = true;
  }
  return found;
}

PairApart compare_rows(Side& a, Side& b, const Partner& partner, const RowMeetings& meetings) {
  return Comparison(a, b, partner).run(meetings);
}

std::vector<double> squares_by_column(Side& a, Side& b, const Partner& partner, const std::vector<RowApart>& rows) {
  Comparison comparison(a, b, partner);
  std::vector<double> squares;
  std::vector<float> x;
  std::vector<float> y;
  for (const RowApart& row : rows) {
    const Occurrence* of_a = occurrence(a.index(partner.a), row.place, row.a);
    const Occurrence* of_b = occurrence(b.index(partner.b), row.place, row.b);
    if (of_a == nullptr || of_b == nullptr || !comparison.read(row, *of_a, *of_b, x, y)) continue;
    squares.resize(std::max(squares.size(), x.size()));
    add_squares(squares, x, y);
  }
  return squares;
}

}  // namespace nanscope::align
