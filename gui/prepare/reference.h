#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/run/run_view.h"
#include "gui/prepare/prepared.h"
#include "instrument/verify/verify.h"

/// What the model makes of a dump's ops, as a run that stands beside.
namespace nanscope::gui {

/// What an output should have been, from its dumped inputs and the checkpoint's weights.
struct Reference {
  Format format = Format::f32;  ///< that it was served in
  bool hides = false;
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::vector<float> expected;  ///< before it is rounded to what was served
  std::vector<float> bound;     ///< how far rounding can move it; negative: it is not judged, as a mask hides it
  std::vector<bool> made;       ///< of each row; of pools only those that the step wrote or reads

  std::size_t bytes() const { return expected.size() * 2 * sizeof(float); }
  bool judged(std::int64_t row, std::int64_t channel) const {
    return made[static_cast<std::size_t>(row)] && bound[index(row, channel)] >= 0;
  }
  /// Of what was served, as distance_in_bounds() counts it.
  double distance(std::int64_t row, std::int64_t channel, double value) const;
  std::size_t index(std::int64_t row, std::int64_t channel) const {
    return static_cast<std::size_t>(row * channels + channel);
  }
};

/// All that a check found so far.
struct Findings final : Prepared {
  std::vector<std::shared_ptr<const VerifiedOutput>> checked;  ///< in order of execution, weights first
  std::vector<std::shared_ptr<const NotChecked>> not_checked;
  std::vector<std::string> notes;  ///< as of Verification, once the check is done
  std::string model;               ///< its folder
  std::string family;
  bool ended = false;     ///< done, stopped or failed
  bool complete = false;  ///< done
  std::string problem;    ///< why it failed

  std::size_t count() const { return checked.size() + not_checked.size() + (ended ? 1 : 0); }
  std::size_t off() const;
  const VerifiedOutput* first() const;  ///< that is off
};

/// A reference, or why there is none. Both empty: it is being made.
struct AskedReference {
  std::shared_ptr<const Reference> made;
  std::string problem;
};

/// Who makes references. The newest that was asked for is made first; those before it are forgotten.
class ReferenceSource {
 public:
  virtual ~ReferenceSource() = default;
  virtual AskedReference reference(const OutputName& output, const Tensor& served) = 0;
  /// How many were made: what was asked for may be there when it grows.
  virtual std::uint64_t references() const = 0;
};

/// The served run with what one tensor should have been in the place of its elements, rounded to its format. All other
/// elements are not there.
class ReferenceView final : public RunView {
 public:
  ReferenceView(RunView& served, ReferenceSource& source, TensorId tensor);

  const RunInfo& info() override { return served_.info(); }
  std::span<const RequestRow> requests() override { return served_.requests(); }
  std::span<const nanscope::Step> steps() override { return served_.steps(); }
  const StepContent& content(StepId step) override;
  std::vector<StepId> bad_steps() override { return {}; }
  std::span<const WeightRow> weights() override { return served_.weights(); }
  std::span<const ScaleRow> scales() override { return served_.scales(); }
  std::span<const KvRow> kv_history() override { return served_.kv_history(); }
  std::vector<TokenRow> tokens(std::int64_t request) override { return served_.tokens(request); }
  StepId step_of_op(OpId op) override { return served_.step_of_op(op); }
  StepId step_of_tensor(TensorId tensor) override { return served_.step_of_tensor(tensor); }
  Status status() const override { return {}; }

  /// Null while it is being made, and where there is none.
  std::shared_ptr<const Reference> reference() const { return asked_.made; }
  const std::string& problem() const { return asked_.problem; }

 protected:
  std::vector<Health> read_rows(const Tensor& tensor) override;
  Fact<TensorData> read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) override;

 private:
  RunView& served_;
  TensorId tensor_;
  AskedReference asked_;
  std::unordered_map<StepId, StepContent> contents_;
};

}  // namespace nanscope::gui
