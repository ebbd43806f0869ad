#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/corpus/matrix.h"
#include "tests/corpus/quantize.h"
#include "tests/corpus/shape.h"

/// Weights of the corpus' models, drawn by seed, and what a deployment may do to a linear layer.
namespace nanscope::corpus {

/// A weight as its checkpoint holds it, out x in.
struct Linear {
  std::int64_t out = 0;
  std::int64_t in = 0;
  Format format = Format::bf16;
  std::vector<std::uint32_t> codes;
  std::vector<float> bias;     ///< empty: none
  std::optional<float> scale;  ///< of weights in fp8

  int scale_power = 1;            ///< how often the server applies it
  std::optional<Format> read_as;  ///< what the server takes the codes for, when not `format`
  std::optional<Cast> input;      ///< the input is cast to codes first
  int input_power = 1;            ///< how often the server applies the input's scale

  /// As the server reads them, unscaled.
  Matrix values() const;
  void set(const Matrix& weight, Format stored_as);
  /// To codes of `stored_as` with one scale for all.
  void quantize_weight(Format stored_as);
};

struct Norm {
  std::vector<float> weight;
  std::vector<float> bias;  ///< of LayerNorm
};

struct Expert {
  Linear gate, up, down;
};

struct Layer {
  Norm attn_norm, mlp_norm;
  Linear q, k, v, o;
  Linear gate, up, down;
  Linear router;
  std::vector<float> router_bias;
  std::vector<Expert> experts;
};

struct Model {
  Shape shape;
  Matrix embed;
  std::vector<Layer> layers;
  Norm final_norm;
  Linear lm_head;
};

Model make_model(const Shape& shape, std::uint64_t seed);

/// Rows of `weight` answer to the direction `towards` by `gain` times a random amount each: what training does to
/// keys and values for tokens of another kind, such as those of images.
void answer_to(Linear& weight, std::span<const float> towards, double gain, std::uint64_t seed, std::string_view name);

}  // namespace nanscope::corpus
