#include "instrument/engine/scale_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/ops/absmax.h"

namespace nanscope {
namespace {

using kernels::TensorView;

/// Launches absmax and brings the result to the host: one value, or one a row.
class DeviceMagnitudes final : public RowMagnitudes {
 public:
  DeviceMagnitudes(kernels::Device& device, Workspace& workspace, const TensorView& rows, KvTarget target)
      : device_(device), workspace_(workspace), rows_(rows), target_(target) {}

  Result<float> tensor() override {
    if (Status status = measure(1, kernels::NanRule::propagate); !status) return tl::unexpected(status.error());
    return values_[0];
  }
  Result<std::span<const float>> rows() override {
    if (Status status = measure(rows_.rows, kernels::NanRule::propagate); !status) {
      return tl::unexpected(status.error());
    }
    return values_;
  }
  Result<float> without_nan() {
    if (Status status = measure(1, kernels::NanRule::ignore); !status) return tl::unexpected(status.error());
    return values_[0];
  }

 private:
  Status measure(std::int64_t count, kernels::NanRule nan) {
    const Slot slot = target_ == KvTarget::k ? Slot::k_absmax : Slot::v_absmax;
    const Result<TensorView> out = workspace_.matrix(slot, Format::f32, count, 1);
    if (!out) return tl::unexpected(out.error());
    if (Status status = device_.launch(kernels::AbsmaxArgs{.x = rows_, .out = *out, .nan = nan}); !status) {
      return status;
    }
    values_.resize(static_cast<std::size_t>(count));
    return device_.download(std::as_writable_bytes(std::span(values_)), out->data);
  }

  kernels::Device& device_;
  Workspace& workspace_;
  const TensorView& rows_;
  KvTarget target_;
  std::vector<float> values_;
};

/// A policy whose kept scale was overwritten: it believes in the old one, and another is read.
class Overwritten final : public ScalePolicy {
 public:
  Overwritten(std::unique_ptr<ScalePolicy> policy, float value) : policy_(std::move(policy)), value_(value) {}
  Result<ScaleChoice> choose(const ScaleContext& context, RowMagnitudes& rows) override {
    Result<ScaleChoice> choice = policy_->choose(context, rows);
    if (choice && choice->origin.locked) choice->scales = {value_};
    return choice;
  }

 private:
  std::unique_ptr<ScalePolicy> policy_;
  float value_;
};

}  // namespace

void ScaleBook::overwrite(std::span<const float> values) {
  for (std::size_t i = 0; i < std::min(policies_.size(), values.size()); ++i) {
    policies_[i] = std::make_unique<Overwritten>(std::move(policies_[i]), values[i]);
  }
}

Result<ScaleBook> ScaleBook::create(const EngineConfig& config, kernels::Device& device) {
  const ScalePolicyEntry* entry = find_scale_policy(config.kv.policy);
  if (entry == nullptr) return fail(fmt::format("kv.policy='{}' is no scale policy", config.kv.policy));
  ScaleBook book(config, device);
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    if (is_recurrent(config.model, layer)) continue;
    book.policies_.push_back(entry->make(config.kv, KvTarget::k));
    book.policies_.push_back(entry->make(config.kv, KvTarget::v));
  }
  return book;
}

Result<ScaleBook::Use> ScaleBook::use(const ScaleContext& context, std::int64_t attention_rank, const TensorView& rows,
                                      Workspace& workspace) {
  const bool is_value = context.target == KvTarget::v;
  const auto index = static_cast<std::size_t>(2 * attention_rank + (is_value ? 1 : 0));
  DeviceMagnitudes magnitudes(*device_, workspace, rows, context.target);
  Result<ScaleChoice> choice = policies_[index]->choose(context, magnitudes);
  if (!choice) return tl::unexpected(choice.error());
  Use use{std::move(*choice), {}, 1};
  const std::vector<float>& scales = use.choice.scales;
  const Result<TensorView> view = workspace.matrix(is_value ? Slot::v_scales : Slot::k_scales, Format::f32,
                                                   static_cast<std::int64_t>(scales.size()), 1);
  if (!view) return tl::unexpected(view.error());
  if (Status status = device_->upload(view->data, std::as_bytes(std::span(scales))); !status) {
    return tl::unexpected(status.error());
  }
  use.scales = *view;
  // A NaN among the scales of tokens is told, wherever it stands.
  use.largest = *std::max_element(scales.begin(), scales.end(),
                                  [](float a, float b) { return !std::isnan(a) && (std::isnan(b) || a < b); });
  return use;
}

Result<ScaleRow> ScaleBook::ledger_row(const ScaleContext& context, std::int64_t op, const Use& use,
                                       const TensorView& rows, Workspace& workspace) {
  DeviceMagnitudes magnitudes(*device_, workspace, rows, context.target);
  const Result<float> absmax = magnitudes.without_nan();
  if (!absmax) return tl::unexpected(absmax.error());
  ScaleRow row = ledger_row_of(context, op, use.choice.origin);
  row.policy = config_->kv.policy;
  row.format = config_->kv.format;
  row.scale = use.largest;
  row.absmax = *absmax;
  row.headroom = headroom(row.format, row.scale, row.absmax);
  return row;
}

}  // namespace nanscope
