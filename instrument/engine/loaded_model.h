#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/recording/rows.h"
#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/weight_source.h"
#include "kernels/device.h"
#include "kernels/scaled_weight.h"
#include "kernels/tensor_view.h"

namespace nanscope {

/// One weight on the device, under its own name, in its own dtype; `packed` is the panel form that gemm reads of
/// weights that were made in f32. Of a quantized weight that products read as it is stored there are codes and scales
/// alone: `view` has the f32 matrix's shape and no memory.
struct Weight {
  std::string name;
  kernels::TensorView view;
  kernels::TensorView packed;
  kernels::ScaledWeight scaled = {};
  std::optional<InputScale> input = {};  ///< fixed scale of what a product with it reads
};

/// A weight and its bias; either may be absent.
struct Affine {
  const Weight* weight = nullptr;
  const Weight* bias = nullptr;
};

struct MlpWeights {
  Affine gate_proj, up_proj, down_proj;
};

struct LayerWeights {
  Affine attn_norm, attn_post_norm, inner_norm, q_norm, k_norm, mlp_norm, mlp_post_norm;
  Affine q_proj, k_proj, v_proj, o_proj, sinks;
  Affine q_a_proj, q_a_norm, kv_a_proj, kv_a_norm, kv_b_proj;  ///< latent attention
  MlpWeights mlp;
  Affine router, router_bias;
  std::vector<MlpWeights> experts;  ///< instead of mlp, when the layer has any
  MlpWeights shared_expert;
  Affine shared_gate;
  Affine recurrent_in, recurrent_out, decay;
  Affine z_proj, b_proj, a_proj, q_conv, k_conv, v_conv, a_log, dt_bias, delta_norm;  ///< gated delta nets
  Affine attn_gate;
};

struct LoadedModel;

/// The model of a step, and which of its weights are new in it, under names of that version (weight_version()). What no
/// transient names, or leaves as it is, is shared with the model before.
struct ModelVersion {
  std::shared_ptr<const LoadedModel> model;
  std::vector<const Weight*> changed;
};

/// Versions that a run made of a model, for the next run with the same transients: a replay, a counterfactual.
struct VersionMemo {
  std::string transients;  ///< as JSON
  std::map<std::int64_t, ModelVersion> by_step;
  std::size_t bytes = 0;  ///< of their changed weights
};

/// All weights of a model on one device. docs/weights.md lists names and shapes.
struct LoadedModel {
  ModelConfig config;
  std::int64_t vocabulary = 0;
  const kernels::Device* device = nullptr;
  std::deque<Weight> weights;  ///< in logical order; a deque, so that the pointers below stay good
  std::vector<kernels::Buffer> memory;
  std::shared_ptr<const Checkpoint> checkpoint;     ///< whose files the weights lie in
  std::vector<std::shared_ptr<const void>> owners;  ///< of weights that were copied out of them
  Affine embed, positions, patch_embed, final_norm, lm_head;
  std::vector<LayerWeights> layers;
  std::shared_ptr<VersionMemo> versions;  ///< null of a version
};

/// A weight's values; of codes and scales those that products make of them, for as long as this lives.
struct DecodedWeight {
  kernels::TensorView view;
  std::shared_ptr<const void> host;
  kernels::Buffer memory;
};
Result<DecodedWeight> decoded_weight(const LoadedModel& model, const Weight& weight, kernels::Device& device);

/// What a recording says of a weight before its values are looked at.
WeightRow weight_row(const Weight& weight);

/// The same on the host, row-major.
Result<std::vector<float>> weight_values(const LoadedModel& model, const Weight& weight, kernels::Device& device);

/// `rows` x `columns` values as a weight of f32 on the device, with panels where products are to read it; its memory is
/// added to `memory`.
Result<Weight> upload_weight(std::string name, std::span<const float> values, std::int64_t rows, std::int64_t columns,
                             bool pack, kernels::Device& device, std::vector<kernels::Buffer>& memory);

/// A weight that a model has.
struct WeightShape {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool product = false;  ///< products read it: quantizers store it as codes
};
/// Those of a model, in the order in which they are loaded; nothing is loaded or allocated. A tied head has none.
std::vector<WeightShape> weight_shapes(const EngineConfig& config, std::int64_t vocabulary);

/// `vocabulary` is the number of rows of the embedding and of the head; `stop` ends it between two weights.
Result<std::shared_ptr<const LoadedModel>> load_model(const EngineConfig& config, kernels::Device& device,
                                                      WeightSource& source, std::int64_t vocabulary,
                                                      std::stop_token stop = {});

}  // namespace nanscope
