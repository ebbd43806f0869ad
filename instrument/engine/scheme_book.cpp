#include "instrument/engine/scheme_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/numbers/decode_span.h"
#include "instrument/kv_schemes/scheme_ops.h"

namespace nanscope {
namespace {

using kernels::TensorView;

bool has_schemes(const KvConfig& kv) { return !kv.scheme.empty() || !kv.scheme_k.empty() || !kv.scheme_v.empty(); }

Result<KvSchemes> parsed(const KvConfig& kv) {
  KvSchemes schemes;
  if (const KvPolicy* policy = find_kv_policy(kv.scheme)) schemes = {policy->k, policy->v};
  for (const auto& [text, scheme] : {std::pair(&kv.scheme_k, &schemes.k), std::pair(&kv.scheme_v, &schemes.v)}) {
    if (text->empty()) continue;
    Result<KvScheme> own = parse_kv_scheme(*text);
    if (!own) return tl::unexpected(own.error());
    *scheme = std::move(*own);
  }
  return schemes;
}

/// Of rows beyond the dump's own NaN.
double absmax_of(std::span<const float> values) {
  double largest = 0;
  for (const float value : values) {
    if (!std::isnan(value)) largest = std::max(largest, std::abs(double{value}));
  }
  return largest;
}

Status check_one(const EngineConfig& config, const KvScheme& scheme, std::string_view which) {
  const std::int64_t channels = head_channels(config.model, which == "V" ? KvTarget::v : KvTarget::k);
  if (Status status = check(scheme, config.model.kv_heads, channels); !status) return status;
  if (!scheme.before_rope) return {};
  if (which == "V") return fail("kv.scheme_v: before_rope is of keys");
  if (is_latent(config.model))
    return fail("kv.scheme_k: before_rope: keys of a latent (model.kv_rank) are joined behind RoPE");
  if (config.model.positions > 0 || !config.model.unrotated_layers.empty()) {
    return fail("kv.scheme_k: before_rope needs a model with rotary positions in every layer");
  }
  if (scheme.transform == KvTransform::hadamard)
    return fail("kv.scheme_k: a head that is rotated by hadamard has no RoPE behind it: no before_rope beside it");
  return {};
}

}  // namespace

std::optional<KvSchemes> kv_schemes(const EngineConfig& config, std::int64_t layer) {
  if (!has_schemes(config.kv)) return std::nullopt;
  Result<KvSchemes> schemes = parsed(config.kv);
  if (!schemes) return std::nullopt;
  return KvSchemes{scheme_of_layer(schemes->k, layer, config.model.layers),
                   scheme_of_layer(schemes->v, layer, config.model.layers)};
}

Status check_kv_schemes(const EngineConfig& config) {
  if (!has_schemes(config.kv)) return {};
  const KvPolicy* policy = find_kv_policy(config.kv.scheme);
  if (policy != nullptr && !policy->needs.empty())
    return fail(fmt::format("kv.scheme={} is for models with {}", policy->name, policy->needs));
  const Result<KvSchemes> schemes = parsed(config.kv);
  if (!schemes) return tl::unexpected(schemes.error());
  if (Status status = check_one(config, schemes->k, "K"); !status) return status;
  if (Status status = check_one(config, schemes->v, "V"); !status) return status;
  if (!config.model.recurrent_layers.empty()) return fail("kv.scheme needs a model without recurrent layers");
  if (config.ranks.count > 1)
    return fail(fmt::format("kv.scheme needs one rank; engine.ranks is {}", config.ranks.count));
  if (config.kv.wake == WakeScales::stale && config.kv.sleep_after > 0)
    return fail("kv.wake=stale overwrites the scales of kv.policy; kv.scheme has its own");
  return {};
}

bool keeps_rows(const EngineConfig& config) {
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    const std::optional<KvSchemes> schemes = kv_schemes(config, layer);
    if (schemes && (keeps_rows(schemes->k) || keeps_rows(schemes->v))) return true;
  }
  return false;
}

std::string kv_policy_names() {
  std::string names;
  for (const KvPolicy& policy : kv_policies()) {
    if (!names.empty()) names += '|';
    names += policy.name;
  }
  return names;
}

SchemeGroups groups_of(const KvScheme& scheme, const ModelConfig& model, KvTarget target) {
  if (!quantizes(scheme)) return {};
  const ScaleChooser chooser(scheme, model.kv_heads, head_channels(model, target));
  const std::int64_t channels = kv_channels(model, target);
  const bool shifted = scheme.statistic == KvStatistic::min_max || scheme.transform == KvTransform::minus_mean;
  return {kernels::group_count(channels, chooser.scale_group()),
          shifted ? kernels::group_count(channels, chooser.zero_group()) : 0};
}

SchemeBook::SchemeBook(const EngineConfig& config, kernels::Device& device) : config_(&config), device_(&device) {
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    const std::optional<KvSchemes> schemes = kv_schemes(config, layer);
    if (!schemes) continue;
    for (const KvTarget target : {KvTarget::k, KvTarget::v}) {
      Kept& kept = kept_.emplace_back();
      kept.scheme = schemes->of(target);
      kept.text = to_text(kept.scheme);
      if (quantizes(kept.scheme)) {
        kept.chooser.emplace(kept.scheme, config.model.kv_heads, head_channels(config.model, target));
      }
    }
  }
}

SchemeBook::Kept& SchemeBook::kept(std::int64_t attention_rank, KvTarget target) {
  return kept_[static_cast<std::size_t>(2 * attention_rank + (target == KvTarget::v ? 1 : 0))];
}
const SchemeBook::Kept& SchemeBook::kept(std::int64_t attention_rank, KvTarget target) const {
  return kept_[static_cast<std::size_t>(2 * attention_rank + (target == KvTarget::v ? 1 : 0))];
}

const KvScheme& SchemeBook::scheme(std::int64_t attention_rank, KvTarget target) const {
  return kept(attention_rank, target).scheme;
}

std::string_view SchemeBook::text(std::int64_t attention_rank, KvTarget target) const {
  return kept(attention_rank, target).text;
}

std::pair<std::int64_t, std::int64_t> SchemeBook::widths(std::int64_t attention_rank, KvTarget target) const {
  const auto& chooser = kept(attention_rank, target).chooser;
  return chooser ? std::pair(chooser->scale_group(), chooser->zero_group()) : std::pair<std::int64_t, std::int64_t>();
}

std::int64_t SchemeBook::coded_end(std::int64_t attention_rank, KvTarget target, std::int64_t request) const {
  const Kept& of = kept(attention_rank, target);
  const auto found = of.coded_end.find(request);
  return found == of.coded_end.end() ? of.scheme.keep_first : found->second;
}

void SchemeBook::set_coded_end(std::int64_t attention_rank, KvTarget target, std::int64_t request, std::int64_t end) {
  kept(attention_rank, target).coded_end[request] = end;
}

Result<TensorView> SchemeBook::uploaded(Workspace& workspace, Slot slot, std::span<const float> values,
                                        std::int64_t rows) {
  if (values.empty()) return TensorView{};
  Result<TensorView> view = workspace.matrix(slot, Format::f32, rows, std::ssize(values) / rows);
  if (!view) return view;
  if (Status status = device_->upload(view->data, std::as_bytes(values)); !status) {
    return tl::unexpected(status.error());
  }
  return view;
}

Result<SchemeBook::Use> SchemeBook::use(const ScaleContext& context, std::int64_t attention_rank,
                                        const TensorView& rows, Workspace& workspace) {
  Kept& of = kept(attention_rank, context.target);
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows.elements()) * info(rows.format).storage_bytes());
  if (Status status = device_->download(bytes, rows.data); !status) return tl::unexpected(status.error());
  std::vector<float> values(static_cast<std::size_t>(rows.elements()));
  decode(rows.format, bytes, values);
  Use use;
  use.absmax = absmax_of(values);
  use.headroom = headroom(of.scheme.format, 1, use.absmax);
  if (!of.chooser) return use;
  use.chosen = of.chooser->choose(values, context.spans, context.step);
  use.largest = use.chosen.largest();
  use.headroom = of.chooser->headroom(use.chosen, values);
  const bool is_key = context.target == KvTarget::k;
  const auto upload = [&](Slot slot, const std::vector<float>& from, std::int64_t count, TensorView& into) -> Status {
    const Result<TensorView> view = uploaded(workspace, slot, from, count);
    if (!view) return tl::unexpected(view.error());
    into = *view;
    return {};
  };
  const KvScales& chosen = use.chosen;
  Status status = upload(is_key ? Slot::k_scales : Slot::v_scales, chosen.scales, chosen.rows, use.scales);
  if (status) status = upload(is_key ? Slot::k_kept_scales : Slot::v_kept_scales, chosen.kept, chosen.rows, use.kept);
  if (status) status = upload(is_key ? Slot::k_zeros : Slot::v_zeros, chosen.zeros, chosen.zero_rows, use.zeros);
  if (!status) return tl::unexpected(status.error());
  return use;
}

ScaleRow SchemeBook::ledger_row(const ScaleContext& context, std::int64_t attention_rank, std::int64_t op,
                                const Use& use) const {
  const KvScheme& scheme = kept(attention_rank, context.target).scheme;
  ScaleRow row = ledger_row_of(context, op, use.chosen.origin);
  row.policy = config_->kv.scheme.empty() ? kept(attention_rank, context.target).text : config_->kv.scheme;
  row.format = scheme.format;
  row.scale = use.largest;
  row.absmax = use.absmax;
  row.headroom = use.headroom;
  return row;
}

}  // namespace nanscope
