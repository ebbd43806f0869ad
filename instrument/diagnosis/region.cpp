#include "instrument/diagnosis/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace nanscope {
namespace {

constexpr std::size_t kRows = 64;  ///< that are looked at

std::string span_text(std::int64_t first, std::int64_t last, std::string_view noun) {
  return first == last ? fmt::format("{} {}", noun, first) : fmt::format("{}s {} to {}", noun, first, last);
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
    compare();
    Region region;
    region.rows = deviation_.rows;
    region.elements = deviation_.result.elements - deviation_.result.explained;
    shape(region);
    region.content = content(region);
    return region;
  }

 private:
  void compare() {
    for (const std::int64_t row : deviation_.rows) {
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
    std::vector<std::int64_t> counts(static_cast<std::size_t>(std::max<std::int64_t>(1, out_.channels)), 0);
    for (const auto& wrong : compared_.wrong) {
      for (std::size_t c = 0; c < wrong.size() && c < counts.size(); ++c) counts[c] += wrong[c] ? 1 : 0;
    }
    std::int64_t first = -1;
    std::int64_t last = -1;
    for (std::size_t c = 0; c < counts.size(); ++c) {
      if (counts[c] == 0) continue;
      if (first < 0) first = static_cast<std::int64_t>(c);
      last = static_cast<std::int64_t>(c);
    }
    if (first < 0) return;
    region.first_channel = first;
    region.channels = last - first + 1;
    const bool all_rows = region.rows.size() + 1 >= static_cast<std::size_t>(live_rows());
    const bool all_channels = region.channels >= out_.channels - out_.channels / 16;
    region.whole = all_rows && all_channels;
    const std::string columns = column_text(region, first, last);
    const std::string rows = span_text(region.rows.front(), region.rows.back(), "row");
    region.shape = region.whole   ? "all of it"
                   : all_channels ? rows
                   : all_rows     ? columns + " of every row"
                                  : columns + " of " + rows;
  }

  std::string column_text(Region& region, std::int64_t first, std::int64_t last) {
    const std::int64_t width = out_.width();
    if (out_.heads <= 1 || width <= 1) return span_text(first, last, "column");
    std::set<std::int64_t> heads;
    for (const auto& wrong : compared_.wrong) {
      for (std::size_t c = 0; c < wrong.size(); ++c) {
        if (wrong[c]) heads.insert(static_cast<std::int64_t>(c) / width);
      }
    }
    if (static_cast<std::int64_t>(heads.size()) == out_.heads) return span_text(first, last, "column");
    region.heads = static_cast<std::int64_t>(heads.size());
    if (*heads.rbegin() - *heads.begin() + 1 == region.heads) return span_text(*heads.begin(), *heads.rbegin(), "head");
    std::string text = "heads";
    for (const std::int64_t head : heads) text += fmt::format("{} {}", text == "heads" ? "" : ",", head);
    return text;
  }

  std::int64_t live_rows() {
    std::int64_t live = 0;
    for (std::int64_t row = 0; row < out_.tokens; ++row) live += survey_.facts.live(out_, row) ? 1 : 0;
    return live > 0 ? live : out_.tokens;
  }

  /// Whether the wrong elements of all compared rows are what `give(row, channel)` says.
  template <class Give>
  bool all_are(const Give& give) {
    std::int64_t same = 0;
    std::int64_t all = 0;
    for (std::size_t i = 0; i < compared_.rows.size(); ++i) {
      for (std::size_t c = 0; c < compared_.actual[i].size(); ++c) {
        if (!compared_.wrong[i][c]) continue;
        ++all;
        const std::optional<double> value = give(i, c);
        const double actual = double{compared_.actual[i][c]};
        same += value && std::abs(actual - *value) <= 0.02 * std::abs(actual) + 1e-6 ? 1 : 0;
      }
    }
    return all > 0 && same * 100 >= all * 97;
  }

  std::string content(const Region& region) {
    if (compared_.rows.empty()) return {};
    if (all_are([](std::size_t, std::size_t) { return 0.0; })) return "zeros";
    for (const std::int64_t shift : {-1, 1, -2, 2}) {
      if (shifted(shift))
        return fmt::format("what the row {} {} should hold", std::abs(shift) == 1 ? "one" : "two",
                           shift < 0 ? "before" : "behind");
    }
    if (const std::string head = other_head(region); !head.empty()) return head;
    if (const std::string row = other_row(); !row.empty()) return row;
    return other_step();
  }

  bool shifted(std::int64_t shift) {
    std::vector<std::optional<Prediction>> others;
    for (const std::int64_t row : compared_.rows) others.push_back(expect(row + shift));
    const bool any = std::any_of(others.begin(), others.end(), [](const auto& one) { return one.has_value(); });
    return any && all_are([&](std::size_t i, std::size_t c) -> std::optional<double> {
             return others[i] && c < others[i]->value.size() ? std::optional(double{others[i]->value[c]})
                                                             : std::nullopt;
           });
  }

  std::string other_head(const Region& region) {
    const auto width = static_cast<std::size_t>(out_.width());
    if (region.heads == 0 || width == 0) return {};
    std::string text;
    for (std::int64_t to = 0; to < out_.heads; ++to) {
      const auto begin = static_cast<std::size_t>(to) * width;
      const bool wrong = std::any_of(compared_.wrong.front().begin() + static_cast<std::ptrdiff_t>(begin),
                                     compared_.wrong.front().begin() + static_cast<std::ptrdiff_t>(begin + width),
                                     [](bool one) { return one; });
      for (std::int64_t from = 0; wrong && from < out_.heads; ++from) {
        if (from == to) continue;
        const auto& expected = compared_.expected.back();
        const auto& actual = compared_.actual.back();
        bool same = true;
        for (std::size_t c = 0; c < width && same; ++c) {
          const double a = double{actual[begin + c]};
          same =
              std::abs(a - double{expected[static_cast<std::size_t>(from) * width + c]}) <= 0.02 * std::abs(a) + 1e-6;
        }
        if (!same) continue;
        text += fmt::format("{}what head {} should hold in head {}", text.empty() ? "" : ", ", from, to);
        break;
      }
    }
    return text;
  }

  /// One wrong row that holds what another should, or does.
  std::string other_row() {
    if (compared_.rows.size() != 1) return {};
    for (std::int64_t row = 0; row < out_.tokens; ++row) {
      if (row == compared_.rows.front()) continue;
      const auto values = run_.row_values(out_, row);
      if (values && all_are([&](std::size_t, std::size_t c) { return std::optional(double{(*values)[c]}); }))
        return fmt::format("what row {} holds", row);
    }
    return {};
  }

  /// What the tensor of another step, or of another layer, holds in the same place.
  std::string other_step() {
    for (const Step& step : run_.steps()) {
      for (const Tensor& other : run_.content(step.id).tensors) {
        const Op* maker = run_.maker(other);
        const bool alike = other.known && other.id != out_.id && other.channels == out_.channels && maker != nullptr &&
                           maker->kind == op_.kind && (maker->name == op_.name || step.id == out_.step);
        if (!alike || other.tokens < compared_.rows.back() + 1) continue;
        std::vector<std::shared_ptr<const std::vector<float>>> rows;
        for (const std::int64_t row : compared_.rows) rows.push_back(run_.row_values(other, row));
        if (all_are([&](std::size_t i, std::size_t c) -> std::optional<double> {
              return rows[i] ? std::optional(double{(*rows[i])[c]}) : std::nullopt;
            }))
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

Region region_of(Survey& survey, const Deviation& deviation) { return Describer(survey, deviation).describe(); }

}  // namespace nanscope
