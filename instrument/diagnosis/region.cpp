#include "instrument/diagnosis/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

namespace nanscope {
namespace {

constexpr std::size_t kRows = 64;  ///< that are looked at

constexpr std::size_t kMostRanges = 8;

std::string counted_text(const std::vector<std::int64_t>& numbers, std::string_view noun) {
  const std::string text = ranges_text(numbers);
  const auto ranges = static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 1;
  if (ranges > kMostRanges)
    return fmt::format("{} {}s between {} and {}", numbers.size(), noun, numbers.front(), numbers.back());
  return fmt::format("{}{} {}", noun, numbers.size() == 1 ? "" : "s", text);
}

std::vector<std::int64_t> from_to(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(last - first + 1));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// The wrong rows beside what they should be.
struct Compared {
  std::vector<std::int64_t> rows;
  std::vector<std::vector<float>> actual;
  std::vector<std::vector<float>> expected;
  std::vector<std::vector<bool>> wrong;
};

class Describer {
 public:
  Describer(Survey& survey, const Deviation& deviation)
      : survey_(survey),
        run_(survey.run()),
        deviation_(deviation),
        op_(*run_.op(deviation.op)),
        out_(*run_.tensor(deviation.tensor)) {}

  Region describe() {
    Region region;
    region.rows = wrong_rows();
    compare(region.rows);
    region.elements = deviation_.result.elements - deviation_.result.explained;
    shape(region);
    region.content = content(region);
    return region;
  }

 private:
  /// With those that the bound lets pass, but that are what the explanation gives and not what is right.
  std::vector<std::int64_t> wrong_rows() {
    constexpr std::int64_t kMostRows = 512;
    std::vector<std::int64_t> rows = deviation_.rows;
    const Recomputed* best = deviation_.explanation();
    if (best == nullptr || !best->form.fault || out_.tokens > kMostRows) return rows;
    for (std::int64_t row = 0; row < out_.tokens; ++row) {
      const bool known = std::binary_search(deviation_.rows.begin(), deviation_.rows.end(), row);
      if (!known && survey_.facts.live(out_, row) && explained_by(best->form, row)) rows.push_back(row);
    }
    std::sort(rows.begin(), rows.end());
    return rows;
  }

  /// Whether a row lies nearer to what a form gives than to what is right: by half, over all of its elements.
  bool explained_by(const OpForm& form, std::int64_t row) {
    const auto right = expect(row);
    const auto told = survey_.recomputer.predict(op_, out_, form, row, 1);
    const auto actual = run_.row_values(out_, row);
    if (!right || !told || !actual || right->value.size() != actual->size() || told->value.size() != actual->size())
      return false;
    double from_right = 0;
    double from_told = 0;
    for (std::size_t c = 0; c < actual->size(); ++c) {
      if (right->bound[c] < 0 || told->bound[c] < 0 || !std::isfinite((*actual)[c])) continue;
      from_right += std::pow(double{(*actual)[c]} - double{right->value[c]}, 2);
      from_told += std::pow(double{(*actual)[c]} - double{told->value[c]}, 2);
    }
    return 4 * from_told < from_right;
  }

  void compare(const std::vector<std::int64_t>& rows) {
    for (const std::int64_t row : rows) {
      if (compared_.rows.size() >= kRows) break;
      const auto expected = expect(row);
      const auto actual = run_.row_values(out_, row);
      if (!expected || !actual || expected->value.size() != actual->size()) continue;
      std::vector<bool> wrong(actual->size());
      for (std::size_t c = 0; c < wrong.size(); ++c) {
        const double off = std::abs(double{(*actual)[c]} - double{expected->value[c]});
        wrong[c] = expected->bound[c] >= 0 && std::isfinite((*actual)[c]) && off > double{expected->bound[c]};
      }
      compared_.rows.push_back(row);
      compared_.actual.push_back(*actual);
      compared_.expected.push_back(expected->value);
      compared_.wrong.push_back(std::move(wrong));
    }
  }

  std::optional<Prediction> expect(std::int64_t row) {
    if (row < 0 || row >= out_.tokens) return std::nullopt;
    return survey_.recomputer.predict(op_, out_, deviation_.result.form, row, 1);
  }

  void shape(Region& region) {
    std::vector<bool> wrong(static_cast<std::size_t>(std::max<std::int64_t>(1, out_.channels)));
    for (const auto& row : compared_.wrong) {
      for (std::size_t c = 0; c < row.size() && c < wrong.size(); ++c) wrong[c] = wrong[c] || row[c];
    }
    const auto first = std::find(wrong.begin(), wrong.end(), true) - wrong.begin();
    const auto last =
        static_cast<std::int64_t>(wrong.size()) - 1 - (std::find(wrong.rbegin(), wrong.rend(), true) - wrong.rbegin());
    if (last < first) return;
    region.first_channel = first;
    region.channels = last - first + 1;
    region.heads = wrong_heads(wrong);
    region.all_rows = static_cast<std::int64_t>(region.rows.size()) >= std::min(live_rows(), deviation_.result.rows);
    region.all_channels = region.heads.empty() && region.channels >= out_.channels - out_.channels / 16;
    const std::string columns =
        region.heads.empty() ? counted_text(from_to(first, last), "column") : counted_text(region.heads, "head");
    const std::string rows = counted_text(region.rows, "row");
    region.shape = region.all_channels && region.all_rows ? "all of it"
                   : region.all_channels                  ? rows
                   : region.all_rows                      ? columns + " of every row"
                                                          : columns + " of " + rows;
  }

  /// Of attention whose output states none, those that its healthy form has.
  std::int64_t heads() const {
    if (out_.heads > 1) return out_.heads;
    const bool attends = op_.kind == OpKind::attention || op_.kind == OpKind::attention_mix;
    const std::int64_t shown = deviation_.result.form.heads;
    return attends && shown > 1 && out_.channels % shown == 0 ? shown : 1;
  }

  /// None where all are wrong, or where what is wrong is a part of a head: of keys a row sees some, of channels all.
  std::vector<std::int64_t> wrong_heads(const std::vector<bool>& wrong) const {
    const std::int64_t count = heads();
    const std::int64_t width = out_.channels / std::max<std::int64_t>(1, count);
    const bool of_keys = op_.kind == OpKind::softmax || op_.kind == OpKind::attention_scores;
    std::vector<std::int64_t> found;
    for (std::int64_t head = 0; count > 1 && head < count; ++head) {
      const auto begin = wrong.begin() + head * width;
      const auto bad = std::count(begin, begin + width, true);
      if (bad > 0 && !of_keys && bad < width - width / 8) return {};
      if (bad > 0) found.push_back(head);
    }
    if (static_cast<std::int64_t>(found.size()) == count) found.clear();
    return found;
  }

  std::int64_t live_rows() {
    std::int64_t live = 0;
    for (std::int64_t row = 0; row < out_.tokens; ++row) live += survey_.facts.live(out_, row) ? 1 : 0;
    return live > 0 ? live : out_.tokens;
  }

  using Row = std::shared_ptr<const std::vector<float>>;

  /// Whether nearly all wrong elements of the compared rows are what `give(row)` holds, which may be nothing. A row can
  /// cost much to find, and mostly the first one differs: no more are asked for then.
  bool all_are(const std::function<Row(std::int64_t)>& give) const {
    std::ptrdiff_t all = 0;
    for (const auto& wrong : compared_.wrong) all += std::count(wrong.begin(), wrong.end(), true);
    std::ptrdiff_t others = 0;
    for (std::size_t i = 0; i < compared_.rows.size(); ++i) {
      const Row row = give(compared_.rows[i]);
      for (std::size_t c = 0; c < compared_.actual[i].size(); ++c) {
        if (!compared_.wrong[i][c]) continue;
        const double actual = double{compared_.actual[i][c]};
        const bool given = row != nullptr && c < row->size();
        if (given && std::abs(actual - double{(*row)[c]}) <= 0.02 * std::abs(actual) + 1e-6) continue;
        if (++others * 100 > all * 3) return false;
      }
    }
    return all > 0;
  }

  std::string content(const Region& region) {
    if (compared_.rows.empty()) return {};
    Row zeros = std::make_shared<const std::vector<float>>(compared_.actual.front().size());
    if (all_are([&](std::int64_t) { return zeros; })) return "zeros";
    for (const std::int64_t shift : {-1, 1, -2, 2}) {
      if (all_are([&](std::int64_t row) { return expected_of(row + shift); }))
        return fmt::format("what the row {} {} should hold", std::abs(shift) == 1 ? "one" : "two",
                           shift < 0 ? "before" : "behind");
    }
    if (std::string head = other_head(region); !head.empty()) return head;
    if (std::string row = other_row(); !row.empty()) return row;
    return other_step();
  }

  Row expected_of(std::int64_t row) {
    std::optional<Prediction> expected = expect(row);
    return expected ? std::make_shared<const std::vector<float>>(std::move(expected->value)) : nullptr;
  }

  std::string other_head(const Region& region) {
    if (region.heads.empty()) return {};
    const std::int64_t count = heads();
    const auto width = static_cast<std::size_t>(out_.channels / count);
    std::string text;
    for (const std::int64_t to : region.heads) {
      const auto begin = static_cast<std::size_t>(to) * width;
      for (std::int64_t from = 0; from < count; ++from) {
        if (from == to) continue;
        if (!holds_head(begin, static_cast<std::size_t>(from) * width, width)) continue;
        text += fmt::format("{}what head {} should hold in head {}", text.empty() ? "" : ", ", from, to);
        break;
      }
    }
    return text;
  }

  /// Whether all rows with a wrong element behind column `to` hold there what is right behind column `from`.
  bool holds_head(std::size_t to, std::size_t from, std::size_t width) const {
    bool any = false;
    for (std::size_t i = 0; i < compared_.rows.size(); ++i) {
      const auto wrong = compared_.wrong[i].begin() + static_cast<std::ptrdiff_t>(to);
      if (std::find(wrong, wrong + static_cast<std::ptrdiff_t>(width), true) ==
          wrong + static_cast<std::ptrdiff_t>(width))
        continue;
      any = true;
      for (std::size_t c = 0; c < width; ++c) {
        const double a = double{compared_.actual[i][to + c]};
        if (!(std::abs(a - double{compared_.expected[i][from + c]}) <= 0.02 * std::abs(a) + 1e-6)) return false;
      }
    }
    return any;
  }

  /// One wrong row that holds what another should, or does.
  std::string other_row() {
    if (compared_.rows.size() != 1) return {};
    for (std::int64_t row = 0; row < out_.tokens; ++row) {
      if (row == compared_.rows.front()) continue;
      if (all_are([&](std::int64_t) { return run_.row_values(out_, row); }))
        return fmt::format("what row {} holds", row);
    }
    return {};
  }

  /// What the tensor of a step before, or of an op before in this one, holds in the same place. What comes behind may
  /// hold it because it was copied from here.
  std::string other_step() {
    for (const Step& step : run_.steps()) {
      for (const Tensor& other : run_.content(step.id).tensors) {
        const Op* maker = run_.maker(other);
        const bool alike = other.known && other.id != out_.id && other.channels == out_.channels && maker != nullptr &&
                           maker->kind == op_.kind && (maker->name == op_.name || step.id == out_.step);
        const bool before = step.id < out_.step || (step.id == out_.step && other.op < op_.id);
        if (!alike || !before || other.tokens < compared_.rows.back() + 1) continue;
        if (all_are([&](std::int64_t row) { return run_.row_values(other, row); }))
          return fmt::format("what {} holds there", survey_.facts.name_of(other));
      }
    }
    return {};
  }

  Survey& survey_;
  RunView& run_;
  const Deviation& deviation_;
  const Op& op_;
  const Tensor& out_;
  Compared compared_;
};

}  // namespace

std::string ranges_text(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (end > i + 1) text += fmt::format(" to {}", numbers[end - 1]);
    i = end;
  }
  return text;
}

Region region_of(Survey& survey, const Deviation& deviation) { return Describer(survey, deviation).describe(); }

}  // namespace nanscope
