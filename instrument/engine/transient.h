#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"

namespace nanscope {

enum class TransientKind : std::uint8_t {
  multiply,       ///< weights times a number
  shift,          ///< each element moves by as much, up or down, as steps of Adam are under a rate that is too large
  load,           ///< other weights take their place
  forget_scores,  ///< what scores.policy has seen of the run is lost, as in a resume without its scaling state
};

/// What happens to a run between two of its steps, as training and serving have it.
struct Transient {
  TransientKind kind = TransientKind::multiply;
  std::int64_t step = 1;   ///< StepRow::id of the first step that runs with it
  std::int64_t until = 1;  ///< the last step that `shift` moves weights before; of the others `step`
  /// Names of weights, `*` standing for any part of one; empty: all.
  std::vector<std::string> weights;
  double size = 1;         ///< the factor of `multiply`; of `shift`, the way's length as a part of the weight's norm
  std::uint64_t seed = 1;  ///< of `shift`, and of weights that are drawn
  double init_scale = 1;   ///< of weights that are drawn
  std::string load;        ///< as model.weights
  double start = 0;        ///< of `forget_scores`: what a history stands for from then on; 0: scores.start

  bool of_weights() const { return kind != TransientKind::forget_scores; }
  /// Whether it changes a weight before that step.
  bool changes_weights_before(std::int64_t id) const { return of_weights() && step <= id && id <= until; }
  /// Whether it is about a weight of that name.
  bool names(std::string_view weight) const;
};

/// `*` stands for any number of characters.
bool matches(std::string_view pattern, std::string_view text);

/// Refuses steps that are no steps of a run, and what needs one rank.
Status check(std::span<const Transient> transients, const EngineConfig& config);

/// As the configuration of a recording has them: a JSON array.
std::string to_json(std::span<const Transient> transients);
/// Reads it back. Errors say which is wrong.
Result<std::vector<Transient>> transients_from_json(std::string_view json);

}  // namespace nanscope
