#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/numbers/format.h"
#include "core/recording/rows.h"
#include "core/run/op_attributes.h"
#include "core/run/op_kind.h"
#include "core/tensor/health.h"

/// What a run consists of, whatever it was read from: steps that work on rows of sequences, ops with typed attributes,
/// tensors that are matrices.
namespace nanscope {

using StepId = std::int64_t;
using OpId = std::int64_t;
using TensorId = std::int64_t;  ///< from 1, ascending in order of execution; 0: none

/// What stands before every step: weights, scales and whatever else a dump holds outside of its passes.
inline constexpr StepId kBeforeSteps = 0;

/// One forward pass of one rank. Rows that no span covers are nobody's: padding.
struct Step {
  StepId id = 0;
  StepKind kind = StepKind::prefill;
  std::int64_t rank = 0;
  std::string run;         ///< tells runs apart that were dumped side by side; empty for one
  std::string pass;        ///< how the dump's folders call it; empty in recordings
  std::int64_t rows = 0;   ///< of its activations
  std::int64_t batch = 1;  ///< rows are `batch` sequences of rows / batch frame positions each
  bool placed = true;      ///< false: nothing says at which positions the rows stand, it was guessed
  std::vector<Span> spans;

  const Span* span_at(std::int64_t row) const;
  /// The first span's, for what speaks of one request.
  std::int64_t request() const { return spans.empty() ? 0 : spans.front().request; }
  std::int64_t index() const { return spans.empty() ? 0 : spans.front().index; }
  std::int64_t first_token() const { return spans.empty() ? 0 : spans.front().first_token; }
  std::int64_t tokens() const;  ///< rows that are somebody's
};

/// A matrix of `tokens` rows by `channels`; heads lie side by side in a row. Scores and probabilities have
/// channels = heads * keys.
struct Tensor {
  TensorId id = 0;
  OpId op = 0;
  StepId step = 0;
  std::string role;  ///< which output of the op: out, stats, k_codes, probs ...
  std::string name;  ///< as the producer wrote it; empty in recordings, where its place is its name
  Format format = Format::f32;
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::int64_t heads = 1;
  Axis axis = Axis::rows;
  std::int64_t first_token = 0;  ///< Axis::keys and part: position of row 0
  std::int64_t sequence = -1;    ///< Axis::keys and part: of which of the step's spans; -1: the only one, or all
  Health health;
  std::optional<std::uint64_t> hash;  ///< of the stored bytes, where the producer took one
  bool known = true;                  ///< false: not dumped, there for what lies before and behind it
  bool hides = false;                 ///< scores: -Inf stands for keys that are not seen, whatever the role is called
  bool guessed = false;               ///< bytes whose format nothing states
  bool stated = false;                ///< its health was measured by the producer; elements and rows are not known

  std::int64_t count() const { return tokens * channels; }
  std::int64_t width() const { return heads > 0 ? channels / heads : channels; }
};

struct Input {
  std::string role;  ///< x, weight, bias, q, k, scale ...
  TensorId tensor = 0;
  std::string weight;  ///< of a recording whose weights are rows of their own, where `tensor` is 0
};

struct Op {
  OpId id = 0;
  StepId step = 0;
  std::optional<std::int64_t> layer;
  std::string name;  ///< its place in the model: attn_norm, q_proj, kv_store ...
  OpKind kind = OpKind::dumped;
  OpAttributes attributes;
  std::vector<Input> inputs;
  std::vector<TensorId> outputs;
  bool by_name = true;  ///< its kind is stated, or known by its name; else guessed by shapes

  /// 0 when there is none.
  TensorId input(std::string_view role) const;
  template <class T>
  const T* get() const {
    return std::get_if<T>(&attributes);
  }
};

}  // namespace nanscope
