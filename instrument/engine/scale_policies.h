#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/rows.h"
#include "core/result.h"
#include "instrument/engine/config.h"

/// Who computes the scale of the KV cache, from what, when, and for how long it holds. To add a
/// policy: docs/adding-a-scale-policy.md.
namespace nanscope {

enum class KvTarget : std::uint8_t { k, v };

/// Channels of a head of keys or values, and of all heads of a token.
inline std::int64_t head_channels(const ModelConfig& model, KvTarget target) {
  return target == KvTarget::k ? model.head_dim : value_dim(model);
}
inline std::int64_t kv_channels(const ModelConfig& model, KvTarget target) {
  return model.kv_heads * head_channels(model, target);
}

/// The rows that are about to be stored: one layer's K or V of one step.
struct ScaleContext {
  std::int64_t layer = 0;
  KvTarget target = KvTarget::k;
  std::int64_t request = 0;  ///< -1 is the warm-up
  std::int64_t step = 0;     ///< StepRow::id
  std::int64_t tokens = 0;
  std::span<const Span> spans = {};  ///< whose the rows are; empty: all are of `request`
};

/// Magnitudes of those rows, measured on the device when they are asked for. A NaN row gives NaN,
/// as torch's abs().max() does.
class RowMagnitudes {
 public:
  virtual ~RowMagnitudes() = default;
  virtual Result<float> tensor() = 0;
  virtual Result<std::span<const float>> rows() = 0;
};

/// Where a scale comes from, for the ledger.
struct ScaleOrigin {
  ScaleSource source = ScaleSource::none;
  std::int64_t request = -1;  ///< whose row it is of, or kPaddingRows
  std::int64_t step = -1;
  std::int64_t tokens = 0;
  double absmax = 0;
  bool locked = false;
};

struct ScaleChoice {
  std::vector<float> scales{1.0F};  ///< one for all rows, or one a row
  ScaleOrigin origin;
};

/// One instance serves one layer's K or V during one run.
class ScalePolicy {
 public:
  virtual ~ScalePolicy() = default;
  virtual Result<ScaleChoice> choose(const ScaleContext& context, RowMagnitudes& rows) = 0;
};

struct ScalePolicyEntry {
  std::string_view name;
  std::string_view doc;
  /// Each slot keeps the scale that it was written with; else the newest scale reads all slots.
  bool per_slot;
  std::unique_ptr<ScalePolicy> (*make)(const KvConfig& config, KvTarget target);
};

/// The registry, one entry a policy.
std::span<const ScalePolicyEntry> scale_policies();
/// Null when there is no such policy.
const ScalePolicyEntry* find_scale_policy(std::string_view name);
/// "auto|locked|...": the allowed values of kv.policy.
std::string scale_policy_names();

/// A line of the ledger of what an op stored, with where its scale comes from; who chose it fills in the rest.
template <class Origin>
ScaleRow ledger_row_of(const ScaleContext& context, std::int64_t op, const Origin& origin) {
  ScaleRow row;
  row.step = context.step;
  row.op = op;
  row.layer = context.layer;
  row.target.assign(1, context.target == KvTarget::k ? 'k' : 'v');
  row.source = origin.source;
  row.calibrated_request = origin.request;
  row.calibrated_step = origin.step;
  row.calibrated_tokens = origin.tokens;
  row.calibrated_absmax = origin.absmax;
  row.locked = origin.locked;
  return row;
}

/// How far values are from clipping: largest finite value of `format` x scale / absmax; below 1 the
/// largest of them clips. +Inf when all values are 0.
double headroom(Format format, double scale, double absmax);

}  // namespace nanscope
