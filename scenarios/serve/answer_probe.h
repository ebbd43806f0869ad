#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "instrument/probe.h"
#include "instrument/tokenizer/tokenizer.h"
#include "kernels/device.h"
#include "scenarios/serve/question.h"

namespace nanscope::serve {

/// The position of a row of logits: log probabilities of `token` and of the `count` most likely ones. Of equal ones the
/// token with the smaller id comes first.
Position position_of(std::span<const float> logits, std::int32_t token, int count, const Tokenizer& tokenizer);

/// Hands on what it is told, and keeps of each request what its answer states.
class AnswerProbe final : public Probe {
 public:
  /// A token was generated; called from the thread that runs the engine.
  using Listener = std::function<void(std::int64_t request, const Position& position)>;

  AnswerProbe(Probe& next, kernels::Device& device, const Tokenizer& tokenizer)
      : next_(next), device_(device), tokenizer_(tokenizer) {}

  /// What the request that will have this id asks for. Forgets the requests before `request`.
  void expect(std::int64_t request, const Question& question);
  void listen(Listener listener) { listener_ = std::move(listener); }
  /// The positions of a request, moved out.
  void give(std::int64_t request, Answer& answer);

  bool listening() const override { return true; }
  Status on_weight(const WeightRow& row, const kernels::TensorView& view) override {
    return next_.on_weight(row, view);
  }
  Status on_request_begin(const RequestRow& row) override;
  Status on_request_end(const RequestRow& row) override { return next_.on_request_end(row); }
  Status on_step_begin(const StepRow& row) override;
  Status on_op(const ProbeOp& op) override;
  Status on_scale(const ScaleRow& row) override { return next_.on_scale(row); }
  Status on_kv(const KvRow& row) override { return next_.on_kv(row); }
  Status on_token(const TokenRow& row) override;
  Status on_step_end(const StepRow& row) override { return next_.on_step_end(row); }

 private:
  struct Asked {
    int chances = 0;
    int prompt_chances = 0;
    bool wants_prompt = false;
    std::vector<std::int32_t> prompt;
    std::vector<float> last;  ///< logits of the token that comes next
    std::vector<Position> generated;
    std::map<std::int64_t, Position> of_prompt;
  };
  Status read_logits(const kernels::TensorView& view);
  /// The position of a prompt's token, where `at` is one.
  void take_prompt(Asked& asked, std::int64_t at, std::span<const float> logits) const;
  Result<std::vector<float>> row_of(const kernels::TensorView& view, std::int64_t row);

  Probe& next_;
  kernels::Device& device_;
  const Tokenizer& tokenizer_;
  Listener listener_;
  std::map<std::int64_t, Asked> asked_;
  StepRow step_;
};

}  // namespace nanscope::serve
