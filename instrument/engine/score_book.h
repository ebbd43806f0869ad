#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/rows.h"
#include "core/result.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/scale_policies.h"
#include "instrument/engine/workspace.h"
#include "instrument/spectral/layer_scales.h"
#include "instrument/spectral/scale_file.h"
#include "instrument/spectral/score_policy.h"
#include "kernels/device.h"

namespace nanscope {

/// What attention quantizes.
enum class ScoreTarget : std::uint8_t { scores, queries, keys };
inline constexpr std::array kScoreTargets{ScoreTarget::scores, ScoreTarget::queries, ScoreTarget::keys};

/// "scores", "queries", "keys".
std::string_view name(ScoreTarget target);
/// The format of a target's codes; f32: it is not quantized.
Format score_format(const ScoresConfig& scores, ScoreTarget target);
/// Whether any of them is.
bool quantizes_attention(const ScoresConfig& scores);

/// What counts as one step for policies that remember steps.
enum class ScoreSteps : std::uint8_t {
  each_use,  ///< a request's part of a step, as a server answers it
  end_step,  ///< all uses until ScoreBook::end_step(), as a batch is trained
};
/// Of each scale, by "LAYER.TARGET.HEAD": ScorePolicy::memory().
using ScoreMemory = std::map<std::string, std::vector<double>, std::less<>>;

/// A run's scales of attention's scores, queries and keys, where they are quantized: one policy for each attention
/// layer and target, or under scores.per=head for each head of it.
class ScoreBook {
 public:
  /// Policies that follow from weights read those of `model`, each layer's once. Errors: those of layer_scales(), a
  /// layer that nothing bounds; those of read_scale_file(), a file that lacks a layer, or is of other weights.
  static Result<ScoreBook> create(const EngineConfig& config, kernels::Device& device, const LoadedModel& model,
                                  ScoreSteps steps = ScoreSteps::each_use);

  /// Scales that follow from weights are those of `model` from the next step on. Errors: those of layer_scales(), a
  /// layer that nothing bounds.
  Status weights_changed(const LoadedModel& model);
  /// What was seen of the run is lost: histories begin anew, as `start`.
  void forget(double start);
  /// A step of a scale: of several uses that with the largest values.
  struct StepUse {
    std::int64_t layer = 0;  ///< of those with attention
    ScoreTarget target = ScoreTarget::scores;
    std::int64_t head = -1;  ///< -1: of all heads
    double scale = 1;
    double absmax = 0;   ///< NaN where a value is
    double largest = 0;  ///< of the format: values beyond `scale` times it overflow

    /// The part of the format's range that is used; above 1 where values overflow.
    double used() const { return absmax / (scale * largest); }
    /// Also where a value is NaN. Two roundings to f32, of the scale and of a value over it, are no overflow.
    bool overflows() const { return !(used() <= 1 + 0x1p-22); }
  };
  /// ScoreSteps::end_step: what was used since the last call was one step, and is returned.
  std::vector<StepUse> end_step();
  /// What policies have seen of the run, for restore() of a book of the same configuration.
  ScoreMemory memory() const;
  /// Error: a scale that is missing, or whose memory is not of its policy.
  Status restore(const ScoreMemory& memory);

  /// The scale of a layer, or of one of its heads.
  struct Use {
    float scale = 1;
    double absmax = 0;  ///< of what is cast, NaN where one is
    ScaleOrigin origin;
  };
  /// One, or one a head. Shape: x (rows, heads * width).
  Result<std::vector<Use>> use(const ScaleContext& context, std::int64_t attention_rank, ScoreTarget target,
                               const kernels::TensorView& x, Workspace& workspace);
  /// Of each Use. The target is "x", and of head h "x[h]".
  std::vector<ScaleRow> ledger_rows(const ScaleContext& context, std::int64_t op, ScoreTarget target,
                                    const std::vector<Use>& uses) const;

 private:
  ScoreBook(const EngineConfig& config, kernels::Device& device, ScoreSteps steps)
      : config_(&config), device_(&device), steps_(steps) {}

  struct Scale {
    std::unique_ptr<ScorePolicy> policy;
    ScorePolicySettings settings;  ///< that it was made with
    double bound = 0;              ///< calibrated, of policies that follow from weights
    ScaleOrigin before;            ///< of the step that had the largest values so far
    std::int64_t since = 0;        ///< steps since that one
    std::optional<Use> in_step;    ///< the largest of a step that has not ended
  };
  using Layer = std::array<std::vector<Scale>, kScoreTargets.size()>;

  /// `bounds` are given where a policy asks for them, `file` where scores.scales names one.
  Result<std::vector<Scale>> scales_of(ScoreTarget target, std::int64_t layer, const LayerScales* bounds,
                                       const FiledLayer* file) const;
  /// Sets what policies of weights ask for.
  Status bound(ScoreTarget target, std::int64_t layer, const LayerScales* bounds, std::vector<Scale>& scales) const;
  Use use_one(const ScaleContext& context, ScoreTarget target, Scale& scale, double absmax) const;
  /// A step of the scale is done, with these largest values.
  void remember(ScoreTarget target, Scale& scale, const ScaleOrigin& now) const;
  const std::string& policy(ScoreTarget target) const;

  const EngineConfig* config_;
  kernels::Device* device_;
  ScoreSteps steps_;
  std::vector<Layer> layers_;  ///< those with attention
};

/// Refuses scores.* that do not go together, by name.
Status check_scores(const EngineConfig& config);

}  // namespace nanscope
