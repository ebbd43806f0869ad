#pragma once
#include <cstdint>
#include <vector>

#include "instrument/model/model_config.h"

namespace nanscope {

/// Angles of a rotary embedding, as kernels::RopeArgs takes them.
struct RopeTable {
  std::vector<float> frequencies;  ///< radians a position, by pair of channels
  float amplitude = 1;             ///< of cosine and sine
};

/// Channels of a head that are rotated.
std::int64_t rotated_channels(const ModelConfig& model);

/// Whether the model's angles are a table; else the op makes them from base and stretch.
bool has_rope_table(const ModelConfig& model, const RopeConfig& rope);

/// The table of layers with a window (`local`) or without. `context` is how many positions the step's last token sees,
/// itself included: LongRoPE has other factors beyond rope.trained.
///
/// Plain angles are base^(-2i/R). linear divides them by factor (Chen et al. 2023, 2306.15595). llama3 divides those
/// whose wave is longer than trained / low_factor, keeps those below trained / high_factor, and blends in between
/// (Llama 3.1's code). YaRN blends by the number of turns within `trained` (Peng et al. 2023, 2309.00071, section 3.2),
/// with amplitude 0.1 ln(factor) + 1; LongRoPE divides each by a factor of its own (Ding et al. 2024, 2402.13753), with
/// amplitude sqrt(1 + ln(factor) / ln(trained)). Everything in f64, rounded to f32 once.
RopeTable rope_table(const ModelConfig& model, const RopeConfig& rope, bool local, std::int64_t context);

}  // namespace nanscope
