#include "instrument/recompute/recipe.h"

#include <algorithm>

#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"

namespace nanscope {

const Recipe* recipe_of(OpKind kind) {
  switch (kind) {
#define NANSCOPE_RECIPE(name, is_determined)                                                                  \
  case OpKind::name: {                                                                                        \
    static constexpr Recipe kRecipe{forms_##name, faults_##name, predict_##name, is_determined, cost_##name}; \
    return &kRecipe;                                                                                          \
  }
#include "instrument/recompute/recipes.def"
#undef NANSCOPE_RECIPE
    default:
      return nullptr;
  }
}

bool lacks_weight(const Op& op, const Tensor& out, std::string* why) {
  const bool lacks = out.role != "stats" && std::any_of(op.inputs.begin(), op.inputs.end(), [](const Input& input) {
                       return input.role == "weight" && input.tensor == 0 && !input.weight.empty();
                     });
  if (lacks && why != nullptr) *why = kWeightNotDumped;
  return lacks;
}

std::vector<OpForm> no_forms(Values&, const Op&, const Tensor&) { return {}; }
std::vector<OpForm> one_form(Values&, const Op&, const Tensor&) { return {OpForm{}}; }
std::int64_t unit_cost(Values&, const Op&, const Tensor&) { return 1; }

bool rows_like(Values& values, const Tensor& in, const Tensor& out, std::int64_t first, std::int64_t count,
               Block& into) {
  const auto give = [&](std::int64_t row, std::int64_t length) -> std::optional<Block> {
    return row >= 0 && row + length <= in.tokens ? values.rows(in, row, length) : std::nullopt;
  };
  if (in.axis == out.axis && in.tokens == out.tokens && in.sequence == out.sequence) {
    auto block = give(first, count);
    if (block) into = std::move(*block);
    return block.has_value();
  }
  // Rows in another order: those of the ends of sequences, of somebody alone, of one sequence.
  into = {count, in.channels, {}, {}};
  for (std::int64_t row = first; row < first + count; ++row) {
    const auto from = values.run().same_row(out, row, in);
    const auto block = from ? give(*from, 1) : std::nullopt;
    if (!block) return false;
    into.columns = block->columns;
    into.value.insert(into.value.end(), block->value.begin(), block->value.end());
    into.error.insert(into.error.end(), block->error.begin(), block->error.end());
  }
  if (into.error.size() != into.value.size()) into.error.clear();
  return true;
}

bool input_rows(Values& values, const Op& op, std::string_view role, const Tensor& out, std::int64_t first,
                std::int64_t count, Block& into, std::string& why) {
  const Tensor* in = values.run().input(op, role);
  if (in == nullptr || !rows_like(values, *in, out, first, count, into)) {
    why = "what it reads as " + std::string(role) + " was not dumped";
    return false;
  }
  return true;
}

Format stored_format(Values& values, const Tensor& out) {
  return out.known ? values.precision(out) : values.activation_format(out.step);
}

double stored_roundoff(Values& values, const Tensor& out) {
  const Format computed = values.activation_format(out.step);
  if (!out.known) return roundoff(computed);
  // What was computed in a narrow format may be dumped in a wider one.
  return std::max(roundoff(values.precision(out)), kF32);
}

}  // namespace nanscope
