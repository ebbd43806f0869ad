#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/model/model_config.h"
#include "instrument/spectral/concentration.h"
#include "instrument/spectral/element_bounds.h"
#include "instrument/spectral/interaction.h"

/// Scales of attention's scores from the weights alone: how large can they become, and by what are they to be divided
/// so that fp8 holds them?
namespace nanscope {

struct ScaleSettings {
  double delta = 1e-6;          ///< chance of a score beyond the calibrated bound, over the whole model
  std::int64_t length = 1024;   ///< tokens of a sequence
  std::optional<double> alpha;  ///< of the calibrated bound; not given: calibration()
  double utilization = 0.8;     ///< eta: the part of the format that the bound may take (15)
  double largest = 448;         ///< of the format
  int iterations = 5;           ///< of the power iteration that starts cold
  int threads = 0;
  bool mixed_channels = false;  ///< a Hadamard rotation mixes all channels of queries and keys
};

/// What keeps a layer's scores bounded.
enum class ScoreBound : std::uint8_t {
  interaction,  ///< the norm before attention: tokens of norm sqrt(width)
  qk_norm,      ///< norms on Q and K: what the weights do is no matter
  none,         ///< nothing
};
std::string_view name(ScoreBound bound);

/// Where the theory is thin. Names are stable.
struct ScaleWarning {
  std::string_view kind;
  std::int64_t head = -1;  ///< -1: the layer
  std::string figure;      ///< what shows it
  double excess = 1;       ///< how far what was found is beyond what the theory has room for, as a factor
};

/// Bounds on the magnitude of a head's scores, after the factor and the cap.
struct HeadBounds {
  double naive = 0;        ///< (norm(W_Q) B + norm(b_q)) (norm(W_K) B + norm(b_k)) (5), whatever positions do
  double interaction = 0;  ///< norm(M) B^2, and biases (7)
  double calibrated = 0;   ///< alpha norm(M) B^2, and biases (8)
  double scale = 0;        ///< calibrated / (eta x largest): scores are divided by it (15)
};

struct LayerScales {
  std::int64_t layer = 0;
  ScoreBound bound = ScoreBound::none;
  bool rotary = false;           ///< then `interaction` does not hold for all positions, only `naive` does
  double factor = 0;             ///< on scores
  double softcap = 0;            ///< 0: none
  std::vector<HeadNorms> norms;  ///< what rotary embeddings amplify (YaRN, LongRoPE) is folded in
  std::vector<HeadBounds> heads;
  std::vector<ElementBounds> queries;  ///< by head
  std::vector<ElementBounds> keys;     ///< by key head
  std::uint64_t identity = 0;          ///< content hash of the weights that all of this follows from
  double cold_once = 0;   ///< the layer's norm, all heads side by side, after one iteration from a cold start
  double cold = 0;        ///< after ScaleSettings::iterations
  double settled = 0;     ///< what it comes to
  double naive_norm = 0;  ///< norm(W_Q) x norm(W_K repeated)
  std::vector<ScaleWarning> warnings;

  double largest_head_norm() const;
  /// The largest of its heads.
  HeadBounds whole() const;
};

/// Weights by the names of docs/weights.md.
using NamedWeights =
    std::function<Result<std::vector<float>>(std::string_view name, std::int64_t rows, std::int64_t columns)>;

/// A layer's projections with the gain and bias of the norm before it folded in.
Result<QueryKeyWeights> query_key_weights(const ModelConfig& model, std::int64_t layer, const NamedWeights& weights);

/// LayerScales::identity alone. Errors: those of the weights.
Result<std::uint64_t> layer_identity(const ModelConfig& model, std::int64_t layer, const NamedWeights& weights);

/// alpha: what is asked for, else smallest_alpha(), and 1 where shapes are too small for it: the worst case itself.
double calibration(const TailShape& shape, const ScaleSettings& settings);

/// The shape of the whole model.
TailShape tail_shape(const ModelConfig& model, std::int64_t length);

/// Errors: those of the weights, values that are not finite (named), or that it was stopped.
Result<LayerScales> layer_scales(const ModelConfig& model, const RopeConfig& rope, std::int64_t layer,
                                 const NamedWeights& weights, const ScaleSettings& settings, std::stop_token stop = {});

}  // namespace nanscope
