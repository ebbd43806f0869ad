#pragma once
#include "instrument/recompute/recipe.h"

/// Declarations of recipes.def. Internal to the recipes.
namespace nanscope {

#define NANSCOPE_RECIPE(kind, determined)                                                                      \
  std::vector<OpForm> forms_##kind(Values& values, const Op& op, const Tensor& out);                           \
  std::vector<OpForm> faults_##kind(Values& values, const Op& op, const Tensor& out);                          \
  bool predict_##kind(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first, \
                      std::int64_t count, Prediction& into, std::string& why);                                 \
  std::int64_t cost_##kind(Values& values, const Op& op, const Tensor& out);
#include "instrument/recompute/recipes.def"
#undef NANSCOPE_RECIPE

/// Cosines that a rotation may have used as well as its input `cos`, by OpForm::other.
std::vector<TensorId> other_cosines(const Op& op);

}  // namespace nanscope
