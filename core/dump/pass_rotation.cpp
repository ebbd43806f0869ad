/// Tables of cosines and sines: which of them a layer's rotation may have used.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/dump/pass_builder.h"

namespace nanscope {

/// Models with layers of two kinds, as Gemma 3, make a pair for each: where layers' inputs were not dumped, nothing
/// says which pair a layer uses.
void PassBuilder::take_tower_tables() {
  const bool sine_first = geometry_[scope_.tower].sine_first;
  const std::vector<Index> cosines = find_role(sine_first ? "sin" : "cos");
  const std::vector<Index> sines = find_role(sine_first ? "cos" : "sin");
  for (const Index index : cosines) cos_ = emit_parameter(index);
  for (const Index index : sines) sin_ = emit_parameter(index);
  other_tables_.clear();
  if (cosines.size() != sines.size()) return;
  std::vector<std::size_t> kept;
  for (std::size_t i = cosines.size(); i-- > 0;) {
    const bool again = std::any_of(kept.begin(), kept.end(), [&](std::size_t one) {
      return same_bytes(*run_.tensor(emit_parameter(cosines[one])), cosines[i]) &&
             same_bytes(*run_.tensor(emit_parameter(sines[one])), sines[i]);
    });
    if (again) continue;
    if (!kept.empty()) other_tables_.emplace_back(emit_parameter(cosines[i]), emit_parameter(sines[i]));
    kept.push_back(i);
  }
}

void PassBuilder::take_layer_tables() {
  const bool sine_first = geometry_[scope_.tower].sine_first;
  for (const bool sine : {false, true}) {
    for (const Index index : find_role(sine == sine_first ? "cos" : "sin")) {
      (sine ? sin_ : cos_) = emit_parameter(index);
      other_tables_.clear();
    }
  }
}

/// Inputs of a rotation. `other_cos`, `other_sin`: pairs that it may have used as well.
PassBuilder::Inputs PassBuilder::rotation_of(TensorId x) const {
  Inputs inputs{{"x", x, {}}, {"cos", cos_, {}}, {"sin", sin_, {}}, {"positions", positions_, {}}};
  for (const auto& [cosines, sines] : other_tables_) {
    inputs.push_back({"other_cos", cosines, {}});
    inputs.push_back({"other_sin", sines, {}});
  }
  return inputs;
}

}  // namespace nanscope
