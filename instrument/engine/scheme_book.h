#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/engine/scale_policies.h"
#include "instrument/engine/workspace.h"
#include "instrument/kv_schemes/kv_scheme.h"
#include "instrument/kv_schemes/scale_chooser.h"
#include "kernels/device.h"

namespace nanscope {

/// How one layer keeps K and V.
struct KvSchemes {
  KvScheme k, v;
  const KvScheme& of(KvTarget target) const { return target == KvTarget::k ? k : v; }
};

/// Of a layer, as kv.scheme, kv.scheme_k and kv.scheme_v say; nothing where kv.format and kv.policy do. The
/// configuration has passed check_kv_schemes().
std::optional<KvSchemes> kv_schemes(const EngineConfig& config, std::int64_t layer);
/// Errors: a text that is no scheme, one that nobody can store, or that does not go with the model or another knob.
Status check_kv_schemes(const EngineConfig& config);
/// Whether some layer keeps rows beside its codes: blocks of the pool then cannot be shared.
bool keeps_rows(const EngineConfig& config);
/// "bf16|vllm-locked|...": of policies that any model can have.
std::string kv_policy_names();

/// Scales and zero points of a slot.
struct SchemeGroups {
  std::int64_t scales = 0;
  std::int64_t zeros = 0;
};
SchemeGroups groups_of(const KvScheme& scheme, const ModelConfig& model, KvTarget target);

/// A run's scales under schemes: who chooses them for each attention layer's K and V, and up to where each request's
/// rows have codes.
class SchemeBook {
 public:
  SchemeBook(const EngineConfig& config, kernels::Device& device);

  const KvScheme& scheme(std::int64_t attention_rank, KvTarget target) const;
  std::string_view text(std::int64_t attention_rank, KvTarget target) const;

  /// Scales for some rows, and the device's copy of them.
  struct Use {
    KvScales chosen;
    kernels::TensorView scales, kept, zeros;  ///< as kv_store takes them
    float largest = 1;
    double absmax = 0;  ///< of the rows' finite and infinite values
    double headroom = 0;

    /// What codes are read with.
    const kernels::TensorView& read_with() const { return kept.given() ? kept : scales; }
  };
  Result<Use> use(const ScaleContext& context, std::int64_t attention_rank, const kernels::TensorView& rows,
                  Workspace& workspace);
  ScaleRow ledger_row(const ScaleContext& context, std::int64_t attention_rank, std::int64_t op, const Use& use) const;
  /// Channels that share a scale and a zero point.
  std::pair<std::int64_t, std::int64_t> widths(std::int64_t attention_rank, KvTarget target) const;

  /// Positions of a request that have codes are those from keep_first up to here.
  std::int64_t coded_end(std::int64_t attention_rank, KvTarget target, std::int64_t request) const;
  void set_coded_end(std::int64_t attention_rank, KvTarget target, std::int64_t request, std::int64_t end);

 private:
  struct Kept {
    KvScheme scheme;
    std::string text;
    std::optional<ScaleChooser> chooser;
    std::map<std::int64_t, std::int64_t> coded_end;  ///< by request
  };
  Kept& kept(std::int64_t attention_rank, KvTarget target);
  const Kept& kept(std::int64_t attention_rank, KvTarget target) const;
  Result<kernels::TensorView> uploaded(Workspace& workspace, Slot slot, std::span<const float> values,
                                       std::int64_t rows);

  const EngineConfig* config_;
  kernels::Device* device_;
  std::vector<Kept> kept_;  ///< K and V of each attention layer
};

}  // namespace nanscope
