#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/dump/dump.h"
#include "core/dump/frame.h"

/// How the elements of a dumped tensor are a matrix of rows by channels with the heads of a row side by side.
namespace nanscope {

/// What a model's gated delta nets are; no heads: nothing says it.
struct DeltaGeometry {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_width = 0;  ///< of a head
  std::int64_t value_width = 0;
};

/// What is known of the attention of a tower; 0: not known.
struct Geometry {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t width = 0;   ///< of a head
  std::int64_t shared = 0;  ///< of it: the last channels, which all heads of keys share in latent attention
  /// Tensors, by op and role, that put heads before rows wherever their extents tell the two apart.
  std::set<std::pair<std::string, std::string>> heads_first = {};
  std::int64_t layers = 0;      ///< of the model
  bool fused_by_heads = false;  ///< a fused projection has each key head's queries, key and value in turns
  bool attention_gate = false;  ///< behind each head's query its projection has that head's gate
  DeltaGeometry delta = {};
  bool sine_first = false;                     ///< of two tables of angles the first is the sine
  bool parallel = false;                       ///< attention and MLP read the same stream
  std::optional<double> embedding_scale = {};  ///< what the embedding's rows are multiplied by
};

/// Element (row, head, channel of the head) lies at offset + row / inner * outer_stride + row % inner * inner_stride +
/// head * head_stride + channel * channel_stride.
struct Layout {
  Axis axis = Axis::none;
  std::int64_t rows = 1;
  std::int64_t heads = 1;
  std::int64_t width = 1;  ///< of a head
  std::int64_t inner = 1;
  std::int64_t outer_stride = 0;
  std::int64_t inner_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t channel_stride = 1;
  std::int64_t offset = 0;

  std::int64_t channels() const { return heads * width; }
  std::int64_t at(std::int64_t row, std::int64_t head, std::int64_t channel) const {
    return offset + row / inner * outer_stride + row % inner * inner_stride + head * head_stride +
           channel * channel_stride;
  }
  /// Rows follow each other as they are stored.
  bool plain() const;
};

/// Of a tensor in its pass. `half` chooses K (0) or V (1) of a cache that holds both.
Layout layout_of(const DumpTensor& tensor, const Frame& frame, const Geometry& geometry, int half = 0);

/// Its last dimension by all others, of no rows of the pass.
Layout matrix_of(const DumpTensor& tensor);

/// Heads and their width, from the shapes of all tensors of one tower and, where a layer is given, of that layer.
Geometry geometry_of(std::span<const DumpTensor* const> tensors);

}  // namespace nanscope
