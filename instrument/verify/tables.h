#pragma once
#include <vector>

#include "instrument/verify/alternative.h"
#include "instrument/verify/verify.h"

namespace nanscope {

/// The cosines and sines of a pass, compared with the model's at the positions of its rows.
std::vector<Recomputed> judge_tables(Recomputer& recomputer, const ModelForms& model, const Step& step);
/// The same, with what explains those that differ. The cosines and sines that a pass was dumped with, against the
/// model's at the positions of its rows.
std::vector<VerifiedOutput> check_tables(Recomputer& recomputer, const ModelForms& model, const Step& step);

/// Of the cosines that a rotation may have used (its inputs `cos` and `other_cos`) those nearest to the model's angles
/// in its layer; 0: the first, or it has no other.
TensorId nearest_table(Values& values, const ModelForms& model, const Op& op);

}  // namespace nanscope
