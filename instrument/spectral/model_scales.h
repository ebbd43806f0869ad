#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/spectral/layer_scales.h"
#include "instrument/spectral/score_policy.h"

namespace nanscope {

struct ModelScales {
  ModelConfig model;
  TailShape shape;
  double gamma = 0;      ///< typicality()
  double alpha_min = 0;  ///< smallest_alpha()
  double alpha = 0;      ///< that the calibrated bounds were made with
  double chance = 0;     ///< overflow_chance() of that alpha
  ScaleSettings settings;
  std::string policy = "geometry";  ///< whose scales the layers have
  std::vector<LayerScales> layers;  ///< those with attention that were asked for

  bool any_warning() const;
};

struct ModelScalesOptions {
  ScaleSettings settings;
  std::vector<std::int64_t> layers;  ///< empty: all
  std::stop_token stop;
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// Of a Hugging Face checkpoint folder, a layer at a time: memory for the projections of one. Quantized weights are
/// taken at what they decode to. Errors are those of the checkpoint, a layer that the model does not have, or that it
/// was stopped.
Result<ModelScales> model_scales(const std::filesystem::path& folder, const ModelScalesOptions& options);

/// Gives all layers the scales that a policy has before anything ran: `geometry` and `auto_alpha` those of (15), the
/// others what their history begins as. Error: `current`, which has none without a step's scores.
Status use_policy(ModelScales& scales, std::string_view name, const ScorePolicyEntry& policy,
                  const ScorePolicySettings& settings);

}  // namespace nanscope
