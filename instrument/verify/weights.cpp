#include "instrument/verify/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/recompute/bounds.h"
#include "instrument/verify/linear_change.h"

namespace nanscope {
namespace {

constexpr std::int64_t kAtOnce = std::int64_t{1} << 20;
constexpr std::int64_t kMostCompared = std::int64_t{1} << 24;  ///< elements of a weight that is looked for elsewhere

double u_of(const DumpTensor& tensor) { return tensor.format ? roundoff(*tensor.format) : 0; }

/// What a weight that is stored in another format than the file's may be off by, of itself.
double rounding(const DumpTensor& dumped, const DumpTensor& own) {
  return dumped.format == own.format ? 0 : std::max(u_of(dumped), u_of(own));
}

/// How far one is from the other, in units of what the narrower of their formats rounds.
VerifiedOutput compared(OpenDump& dump, const DumpTensor& dumped, const DumpTensor& own) {
  VerifiedOutput one;
  one.name = dumped.name;
  one.op = dumped.at.known ? dumped.at.op : dumped.at.module;
  one.kind = "weight";
  one.layer = dumped.at.layer;
  one.elements = std::min(dumped.count(), own.count());
  const double u = rounding(dumped, own);
  const std::int64_t width = std::max<std::int64_t>(1, dumped.channels());
  double squares = 0;
  for (std::int64_t first = 0; first < one.elements; first += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, one.elements - first);
    const auto a = dump.values(dumped, first, count);
    const auto b = dump.values(own, first, count);
    if (!a || !b) {
      one.elements = 0;
      return one;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = double{(*a)[static_cast<std::size_t>(i)]};
      const double expected = double{(*b)[static_cast<std::size_t>(i)]};
      const double bound = u * std::abs(expected);
      const double off = std::abs(value - expected);
      if (off <= bound || (std::isnan(value) && std::isnan(expected))) {
        ++one.explained;
        continue;
      }
      const double ratio = bound > 0 && std::isfinite(off) ? off / bound : kFarthest;
      squares += std::min(ratio * ratio, kFarthest * kFarthest);
      const std::int64_t row = (first + i) / width;
      if (one.bad_rows.empty() || one.bad_rows.back() != row) one.bad_rows.push_back(row);
      if (one.worst.row < 0 || off > std::abs(one.worst.actual - one.worst.expected))
        one.worst = {row, (first + i) % width, value, expected, bound, ratio};
    }
  }
  one.rows = dumped.rows();
  one.distance = one.elements > 0 ? std::sqrt(squares / static_cast<double>(one.elements)) : 0;
  one.off = one.explained < one.elements;
  return one;
}

bool same(OpenDump& dump, const DumpTensor& a, const DumpTensor& b) {
  const VerifiedOutput one = compared(dump, a, b);
  return one.elements > 0 && !one.off;
}

/// Whether it is another weight of the checkpoint, its own transposed, or its own with a change of low rank.
void explain_weight(OpenDump& dump, const ReplacedWeight& pair, VerifiedOutput& one) {
  const DumpTensor& dumped = pair.dumped;
  const auto add = [&](std::string name, std::string text) {
    one.explanations.push_back({std::move(name), std::move(text), one.op, 1, 0});
  };
  if (dumped.count() > kMostCompared) return;
  for (const DumpTensor& other : dump.dump().tensors) {
    const bool fits = other.at.role == dumped.at.role && other.shape == dumped.shape &&
                      other.source != pair.own.source && other.name.starts_with("checkpoint/");
    if (fits && same(dump, dumped, other))
      add("other-weight", other.at.module == dumped.at.module
                              ? std::string("it is the checkpoint's without the adapter")
                              : "it is " + other.name.substr(other.name.find('/') + 1));
  }
  const std::int64_t rows = dumped.rows();
  const std::int64_t columns = dumped.channels();
  const auto a = dump.values(dumped, 0, dumped.count());
  const auto b = dump.values(pair.own, 0, dumped.count());
  if (!a || !b || !one.explanations.empty()) return;
  bool turned = rows == columns && rows > 1;
  std::vector<double> off(a->size());
  double noise = 0;
  const double u = std::max(u_of(dumped), u_of(pair.own));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<std::size_t>(row * columns + c);
      turned = turned && (*a)[at] == (*b)[static_cast<std::size_t>(c * columns + row)];
      off[at] = double{(*a)[at]} - double{(*b)[at]};
      noise += std::pow(2 * u * double{(*a)[at]}, 2);
    }
  }
  if (turned) add("weight-transposed", "the weight transposed");
  constexpr std::int64_t kMostSide = 512;  ///< of the smaller Gram matrix
  if (turned || rows > kMostSide || std::min(rows, columns) < 4) return;
  const std::int64_t rank = rank_beyond(off, rows, noise);
  const bool everywhere = static_cast<std::int64_t>(one.bad_rows.size()) * 2 > rows;
  if (everywhere && rank >= 1 && rank <= std::min(rows, columns) / 2)
    add("low-rank", fmt::format("the file's with a change of rank {}, as a merged adapter (LoRA)", rank));
}

}  // namespace

Result<Prediction> weight_of_file(OpenDump& dump, const ReplacedWeight& pair, std::int64_t first, std::int64_t count) {
  const std::int64_t width = pair.own.channels();
  const auto values = dump.values(pair.own, first * width, count * width);
  if (!values) return tl::unexpected(values.error());
  Prediction made;
  made.resize(count, width);
  made.value = *values;
  const double u = rounding(pair.dumped, pair.own);
  for (std::size_t i = 0; i < made.value.size(); ++i)
    made.bound[i] = static_cast<float>(u * std::abs(double{made.value[i]}));
  return made;
}

std::vector<VerifiedOutput> check_weights(OpenDump& dump, DumpRun& run) {
  static_cast<void>(run);
  std::vector<VerifiedOutput> all;
  for (const ReplacedWeight& pair : dump.replaced()) {
    if (pair.dumped.count() != pair.own.count() || pair.dumped.channels() != pair.own.channels()) {
      VerifiedOutput one;
      one.name = pair.dumped.name;
      one.op = pair.dumped.at.op;
      one.kind = "weight";
      one.layer = pair.dumped.at.layer;
      one.elements = pair.dumped.count();
      one.off = true;
      all.push_back(std::move(one));
      continue;
    }
    VerifiedOutput one = compared(dump, pair.dumped, pair.own);
    if (one.off) explain_weight(dump, pair, one);
    if (one.off && one.explanations.empty())
      one.explanations.push_back(
          {"weight-in-memory", "it changed after it was read, or was read from another file", one.op, 1, 0});
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace nanscope
