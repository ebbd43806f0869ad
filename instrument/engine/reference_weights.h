#pragma once
#include <memory>
#include <vector>

#include "instrument/engine/config.h"
#include "instrument/engine/weight_source.h"

namespace nanscope {

/// The reference model: weights that are constructed, not trained, so that every structure in them
/// can be named. docs/reference-model.md tells the construction and its reasons.
///
/// - Text embeddings are Gaussian rows of unit variance plus a common direction c.
/// - Layer 0 holds "look back by n" heads: with RoPE, query and key vectors that are constant along
///   c peak exactly n tokens back. They give the residual stream the last few tokens.
/// - Layers 1 and later are Gaussian, plus one outlier direction u: queries, keys and values get a
///   component that is proportional to the input's u component and equal in all channels. Text has
///   none. Bright image patches have it: an outlier feature of the kind that vision towers show
///   (Darcet et al. 2023; Sun et al. 2024, "massive activations").
/// - The output head is fitted in closed form (ridge regression of the next token on the final
///   hidden state) to the shipped text; see fit_reference_head.cpp.
///
/// Shapes are fixed: 4 layers, width 256, 4 heads of 64, mlp_width 512, the shipped vocabulary.
/// `model.seed` is not used. An error names the knob that differs.
Result<std::unique_ptr<WeightSource>> make_reference_weights(const ModelConfig& model);

/// The same with another head (vocabulary x width, row-major), or zeros when empty: what the fit runs.
Result<std::unique_ptr<WeightSource>> make_reference_weights(const ModelConfig& model, std::vector<float> head);

}  // namespace nanscope
