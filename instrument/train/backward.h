#pragma once
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "instrument/engine/emitter.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/op_plan.h"
#include "instrument/engine/workspace.h"
#include "instrument/train/arena.h"
#include "instrument/train/tape.h"

namespace nanscope::train {

/// What a backward pass works on; all outlive it.
struct BackwardParts {
  const EngineConfig& config;
  const LoadedModel& model;
  kernels::Device& device;
  const Tape& tape;
  Arena& memory;   ///< of gradients: until the next step
  Arena& scratch;  ///< of one op
  Emitter& emitter;
  std::span<const Span> spans;           ///< sequences of the step, from row 0 on
  kernels::TensorView tokens;            ///< (rows, 1) i32
  kernels::TensorView positions;         ///< (rows, 1) i32
  kernels::TensorView rope, local_rope;  ///< tables of angles, (1, pairs) f32, or not given
  float rope_amplitude = 1, local_rope_amplitude = 1;
  std::uint32_t seed = 0;  ///< of stochastic rounding, of this step
};

/// Rows of a gradient that are not all there is: of what an expert computed, tokens that it was chosen for. The other
/// rows are zeros, which say nothing of the expert, and what the forward pass has in them nobody asked for.
struct RowSelection {
  std::int64_t count = 0;
  kernels::TensorView rows;    ///< (count, 1) i32, ascending
  kernels::TensorView places;  ///< (all rows, 1) i32: which of `rows` a row is, -1 for none
};

/// Gradients of what an op of the forward pass put out, walked back from the loss: each kind of op has a function in
/// gradients.def that reads the gradient of its output and adds those of its inputs. Ops of the backward pass are told
/// to the emitter under the name NAME_grad. Quantization to codes and back has the gradient of what it stands for
/// (straight-through, Bengio et al. 2013).
class Backward {
 public:
  explicit Backward(const BackwardParts& parts) : parts_(parts), emitter_(parts.emitter) {}

  /// `logits` is a tensor of the tape, `gradient` that of the loss by it. The error is in the emitter's status.
  void run(std::int64_t logits, const Live& gradient);

  /// By the weight's name in this version; weights that nothing came to are not among them.
  const std::map<std::string, Live, std::less<>>& weight_gradients() const { return weights_; }

  // For gradients:
  const BackwardParts& parts() const { return parts_; }
  const EngineConfig& config() const { return parts_.config; }
  /// The value of a tensor of the forward pass; not given, with the error in the emitter's status, where there is none.
  kernels::TensorView value(std::int64_t tensor);
  /// The op that made it; null for what is not of the tape.
  const TapedOp* maker(std::int64_t tensor) const;
  const Weight* weight(std::string_view name) const;
  /// The gradient of a tensor, all that came to it added up; not given where nothing did.
  Live gradient(const TapedTensor& tensor);
  /// Which rows of that gradient there are; null for all, and where several gradients are added up.
  const RowSelection* rows_of(const TapedTensor& tensor) const;
  void add(std::int64_t tensor, const Live& gradient, const RowSelection* rows = nullptr);
  /// The part of a sequence, whose rows of the tensor begin at row `first`.
  void add_rows(std::int64_t tensor, std::int64_t first, const Live& gradient);
  void add_to_weight(std::string_view name, const Live& gradient);

  /// Rows of all sequences, of one of them, or a parameter's: what the next outputs are.
  void at_rows();
  void at_sequence(std::size_t index, Axis axis = Axis::part);
  void at_parameter();
  ProbeTensor output(std::string_view role, const kernels::TensorView& view, std::int64_t heads = 1) {
    return emitter_.output(role, view, heads);
  }
  /// The backward pass of `op`, of sequence `index` where it ran for each, was launched.
  void emit(const TapedOp& op, OpKind kind, std::span<const ProbeInput> inputs, std::span<const ProbeTensor> outputs,
            OpAttributes attributes);

  kernels::TensorView memory(Format format, std::int64_t rows, std::int64_t columns) {
    return taken(parts_.memory.matrix(format, rows, columns));
  }
  /// Until the next op.
  kernels::TensorView scratch(Format format, std::int64_t rows, std::int64_t columns) {
    return taken(parts_.scratch.matrix(format, rows, columns));
  }
  template <class Args>
  void launch(const Args& args) {
    if (emitter_.ok()) emitter_.check(parts_.device.launch(args));
  }
  bool ok() const { return emitter_.ok(); }
  void fail_with(std::string message) { emitter_.check(fail(std::move(message))); }
  std::size_t sequences() const { return parts_.spans.size(); }
  /// Which sequence an output of a span's op is of.
  std::size_t sequence_of(const TapedTensor& tensor) const {
    return tensor.sequence < 0 ? 0 : static_cast<std::size_t>(tensor.sequence);
  }
  /// A tensor of the forward pass that the backward pass made again in another form; empty at first.
  Live& remade(std::int64_t tensor) { return remade_[tensor]; }
  /// For as long as the pass lasts.
  const RowSelection& keep(const RowSelection& rows) { return selections_.emplace_back(rows); }
  /// A seed of stochastic rounding that no other rounding of the step has.
  std::uint32_t next_seed() { return parts_.seed + ++seeds_ * 0x9e3779b9U; }

 private:
  struct Part {
    Live live;
    const RowSelection* rows = nullptr;
  };
  struct Gradient {
    std::vector<Part> whole;  ///< to be added up
    Live rows;                ///< parts of sequences lie in it; its id is not given yet
    std::vector<ProbeInput> parts;
  };
  kernels::TensorView taken(Result<kernels::TensorView> matrix);
  Live sum(const std::string& name, std::int64_t layer, const Live& a, const Live& b);
  void join_rows(const TapedOp& op, Gradient& gradient);

  BackwardParts parts_;
  Emitter& emitter_;
  std::unordered_map<std::int64_t, Gradient> gradients_;
  std::unordered_map<std::int64_t, Live> remade_;
  std::deque<RowSelection> selections_;
  std::map<std::string, Live, std::less<>> weights_;
  std::map<std::string, int, std::less<>> weight_sums_;  ///< how many were added to a weight's first
  std::uint32_t seeds_ = 0;
};

}  // namespace nanscope::train
