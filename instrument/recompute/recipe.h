#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/recompute/values.h"

/// How each kind of op is done again: one file a kind of arithmetic, one line in recipes.def.
namespace nanscope {

struct Recipe {
  /// Ways in which healthy models do it, the usual one first; which one it was is told by the numbers of all layers.
  std::vector<OpForm> (*forms)(Values& values, const Op& op, const Tensor& out);
  /// Ways in which it goes wrong, each with `fault` set or a text that says what is wrong.
  std::vector<OpForm> (*faults)(Values& values, const Op& op, const Tensor& out);
  /// Rows [first, first + count) of an output. False when its inputs cannot be had; `why` then says which.
  bool (*predict)(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                  std::int64_t count, Prediction& into, std::string& why);
  /// Its inputs leave nothing open: one op that does not come out is wrong, whatever others do.
  bool determined;
  /// Multiplications an element of the output costs, for the budget.
  std::int64_t (*cost)(Values& values, const Op& op, const Tensor& out);
};

/// The ways in which a model may compute an output, where its configuration is known.
using OpForms = std::function<std::vector<OpForm>(Values& values, const Op& op, const Tensor& out)>;

/// Null for kinds that cannot be done again.
const Recipe* recipe_of(OpKind kind);

/// Why a product is not computed.
inline constexpr std::string_view kWeightNotDumped = "its weight was not dumped";

/// Whether its weight is one of which a recording has the name alone; `why` may be null. Statistics have another
/// reason.
bool lacks_weight(const Op& op, const Tensor& out, std::string* why);

// What recipes share.
std::vector<OpForm> no_forms(Values&, const Op&, const Tensor&);
std::vector<OpForm> one_form(Values&, const Op&, const Tensor&);
std::int64_t unit_cost(Values&, const Op&, const Tensor&);
/// Rows of `in` that stand where those of `out` do.
bool rows_like(Values& values, const Tensor& in, const Tensor& out, std::int64_t first, std::int64_t count,
               Block& into);
/// The input's rows that stand where those of the output do. False, with the reason, when they cannot be had.
bool input_rows(Values& values, const Op& op, std::string_view role, const Tensor& out, std::int64_t first,
                std::int64_t count, Block& into, std::string& why);
/// The narrowest format that an output went through: numbers of f16 in a container of f32 are off by the least of f16.
/// Adds the same norms over the residual sum before them, where that was stored in a narrower format than it was
/// computed in: vLLM's native RMSNorm adds, squares and scales in f32 and rounds what it hands on (layernorm.py of
/// 0.33).
void add_unrounded_sums(Values& values, const Op& op, std::vector<OpForm>& forms);

Format stored_format(Values& values, const Tensor& out);
/// Half a unit in the last place of what is stored, and of what it is computed in, for `roundings` roundings.
double stored_roundoff(Values& values, const Tensor& out);

}  // namespace nanscope
