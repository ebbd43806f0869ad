#include "instrument/verify/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "instrument/model/family.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/verify/rope_variants.h"

namespace nanscope {
namespace {

/// The rows of a table and where they stand.
struct Table {
  const Tensor* tensor = nullptr;
  const Op* op = nullptr;
  bool sine = false;
  std::vector<float> values;
  std::vector<std::int64_t> positions;  ///< of its rows; -1: nobody's
  double u = 0;                         ///< of what it was rounded to
  bool in_turns = false;                ///< each angle stands twice, and not all of them behind all
};

std::vector<std::int64_t> positions_of(const Step& step, std::int64_t rows) {
  const std::int64_t frame = std::max<std::int64_t>(1, step.rows / std::max<std::int64_t>(1, step.batch));
  std::vector<std::int64_t> positions(static_cast<std::size_t>(rows), -1);
  if (rows != step.rows && rows != frame) return positions;
  for (std::int64_t row = 0; row < rows; ++row) {
    const Span* span = step.span_at(row);
    if (span != nullptr) positions[static_cast<std::size_t>(row)] = span->position(row);
  }
  return positions;
}

Recomputed judge(const Table& table, const RopeAngles& angles, std::int64_t shift) {
  Recomputed made;
  made.op = table.op->id;
  made.step = table.tensor->step;
  made.tensor = table.tensor->id;
  made.rows_in_all = table.tensor->tokens;
  const std::int64_t width = table.tensor->channels;
  const auto pairs = static_cast<std::int64_t>(angles.frequencies.size());
  const bool fits = width == pairs || width == 2 * pairs;
  const bool in_turns = table.in_turns && width == 2 * pairs;
  for (std::int64_t row = 0; row < table.tensor->tokens; ++row) {
    const std::int64_t position = table.positions[static_cast<std::size_t>(row)];
    if (position < 0) continue;
    bool bad = false;
    ++made.rows;
    for (std::int64_t c = 0; c < width; ++c) {
      const auto value = double{table.values[static_cast<std::size_t>(row * width + c)]};
      ++made.elements;
      const double frequency =
          fits ? double{angles.frequencies[static_cast<std::size_t>(in_turns ? c / 2 : c % pairs)]} : 0;
      const double angle = static_cast<double>(position + shift) * frequency;
      const double amplitude = double{angles.amplitude};
      const double expected = amplitude * (table.sine ? std::sin(angle) : std::cos(angle));
      // The frequency and the angle are rounded to f32, then the value.
      const double bound = amplitude * 4 * kF32 * (std::abs(angle) + 1) + 1.01 * table.u * std::abs(expected) + 1e-30;
      const double ratio = fits ? std::abs(value - expected) / bound : kFarthest;
      made.squares += std::min(ratio * ratio, kFarthest * kFarthest);
      if (ratio <= 1) {
        ++made.explained;
        continue;
      }
      bad = true;
      if (ratio > made.worst.ratio) made.worst = {row, c, value, expected, bound, ratio};
    }
    if (bad) made.bad_rows.push_back(row);
  }
  return made;
}

std::vector<ExplainedBy> explain(const Table& table, const ModelForms& model, bool local, std::int64_t context) {
  std::vector<ExplainedBy> found;
  const auto keep = [&](std::string_view name, std::string text, const Recomputed& judged) {
    if (judged.elements == 0 || judged.share() < kComesOut) return;
    found.push_back({std::string(name), std::move(text), table.op->name, judged.share(),
                     std::sqrt(judged.squares / static_cast<double>(judged.elements))});
  };
  const auto own = model.angles(local, context);
  constexpr std::int64_t kFarthestShift = 64;
  for (std::int64_t by = 1; by <= kFarthestShift; ++by) {
    for (const std::int64_t shift : {by, -by})
      keep("rope-position", fmt::format("positions off by {}", shift), judge(table, *own, shift));
  }
  for (const RopeVariant& variant : rope_variants(model, local, context))
    keep("rope-angles", variant.text, judge(table, *variant.angles, 0));
  std::stable_sort(found.begin(), found.end(), [](const ExplainedBy& a, const ExplainedBy& b) {
    return std::pair(-a.share, a.distance) < std::pair(-b.share, b.distance);
  });
  return found;
}

std::optional<Table> table_of(RunView& run, Values& values, const Tensor& tensor, const Step& step, bool sine_first) {
  const bool first = tensor.role == "cos";
  const bool cosine = first != sine_first;
  if ((!first && tensor.role != "sin") || !tensor.known || tensor.stated || tensor.count() == 0) return std::nullopt;
  const auto numbers = run.values(tensor);
  const Op* op = run.maker(tensor);
  if (!numbers || op == nullptr) return std::nullopt;
  Table table{&tensor, op, !cosine, *numbers, positions_of(step, tensor.tokens), roundoff(values.precision(tensor))};
  // A table for a rotation of neighbours has each angle twice: next to each other (Cohere), or in two halves (Helium).
  for (std::int64_t row = 0; row < tensor.tokens && !table.in_turns; ++row) {
    const auto at = [&](std::int64_t c) { return (*numbers)[static_cast<std::size_t>(row * tensor.channels + c)]; };
    const std::int64_t half = tensor.channels / 2;
    bool alike = tensor.channels % 2 == 0;
    bool halves = alike;
    for (std::int64_t c = 0; c < half && (alike || halves); ++c) {
      alike = alike && at(2 * c) == at(2 * c + 1);
      halves = halves && at(c) == at(half + c);
    }
    table.in_turns = alike && !halves;
  }
  return table;
}

std::int64_t context_of(const Step& step) {
  std::int64_t context = 0;
  for (const Span& span : step.spans) context = std::max(context, span.context);
  return context;
}

struct JudgedTable {
  Table table;
  Recomputed result;
  bool local = false;  ///< of layers with a window
};

std::vector<JudgedTable> judged_tables(Recomputer& recomputer, const ModelForms& model, const Step& step) {
  std::vector<JudgedTable> all;
  RunView& run = recomputer.facts().run;
  if (model.spec().model.positions > 0 || !step.placed) return all;
  const std::int64_t context = context_of(step);
  const ModelFamily* family = find_family(model.spec().model.family);
  const bool sine_first = family != nullptr && family->sine_first;
  for (const Tensor& tensor : run.content(step.id).tensors) {
    auto table = table_of(run, recomputer.values(), tensor, step, sine_first);
    if (!table) continue;
    // Outside of layers nothing says of which kind of layers they are.
    const bool two = model.spec().model.local_rope_base > 0;
    bool local = two && table->op->layer && model.local(*table->op);
    Recomputed judged = judge(*table, *model.angles(local, context), 0);
    if (two && !table->op->layer && deviates(judged)) {
      const Recomputed other = judge(*table, *model.angles(true, context), 0);
      if (other.share() > judged.share()) judged = other, local = true;
    }
    if (judged.elements > 0) all.push_back({std::move(*table), std::move(judged), local});
  }
  return all;
}

}  // namespace

TensorId nearest_table(Values& values, const ModelForms& model, const Op& op) {
  const std::vector<TensorId> others = other_cosines(op);
  const Step* step = values.run().step(op.step);
  if (others.empty() || step == nullptr) return 0;
  const ModelFamily* family = find_family(model.spec().model.family);
  const bool sine_first = family != nullptr && family->sine_first;
  const auto angles = model.angles(model.local(op), context_of(*step));
  // How far it is from the model's, as a mean square; infinite where it cannot be told.
  const auto apart = [&](const Tensor* cosines) {
    const auto table = cosines != nullptr ? table_of(values.run(), values, *cosines, *step, sine_first) : std::nullopt;
    const Recomputed judged = table ? judge(*table, *angles, 0) : Recomputed{};
    return judged.elements > 0 ? judged.squares / static_cast<double>(judged.elements)
                               : std::numeric_limits<double>::infinity();
  };
  TensorId nearest = 0;
  double least = apart(values.run().input(op, "cos"));
  for (const TensorId other : others) {
    const double distance = apart(values.run().tensor(other));
    if (distance < least) nearest = other, least = distance;
  }
  return nearest;
}

std::vector<Recomputed> judge_tables(Recomputer& recomputer, const ModelForms& model, const Step& step) {
  std::vector<Recomputed> results;
  for (const JudgedTable& one : judged_tables(recomputer, model, step)) results.push_back(one.result);
  return results;
}

std::vector<VerifiedOutput> check_tables(Recomputer& recomputer, const ModelForms& model, const Step& step) {
  std::vector<VerifiedOutput> all;
  for (const JudgedTable& one : judged_tables(recomputer, model, step)) {
    VerifiedOutput& out = all.emplace_back();
    const Recomputed& judged = one.result;
    out.tensor = judged.tensor;
    out.name = recomputer.facts().name_of(*one.table.tensor);
    out.op = one.table.sine ? "sin" : "cos";
    out.kind = "rope_table";
    out.layer = one.table.op->layer;
    out.step = step.id;
    out.pass = step.pass;
    out.elements = judged.elements;
    out.explained = judged.explained;
    out.distance = std::sqrt(judged.squares / static_cast<double>(judged.elements));
    out.worst = judged.worst;
    out.rows = judged.rows;
    out.bad_rows = judged.bad_rows;
    out.off = deviates(judged);
    if (out.off) out.explanations = explain(one.table, model, one.local, context_of(step));
  }
  return all;
}

}  // namespace nanscope
