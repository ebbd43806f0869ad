#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "core/counted.h"
#include "core/text/safe_text.h"
#include "instrument/inspect/check.h"

/// Scales of the KV cache, as vllm/model_executor/model_loader/weight_utils.py (maybe_remap_kv_scale_name) and
/// layers/quantization/kv_cache.py take them, SGLang with other words for 0 and 0.
namespace nanscope {
namespace {

struct KvScales {
  std::optional<float> k, v, q;
  bool many = false;   ///< more than one number
  bool heads = false;  ///< the many are of shape [heads,1,1]
};

/// "k", "v" or "q" of a tensor that one of the known names stands for, and the attention that it belongs to.
struct KvName {
  std::string attention;
  char which = 'k';
};

bool drop_end(std::string_view& path, std::string_view end) {
  if (!path.ends_with(end)) return false;
  path.remove_suffix(end.size());
  return true;
}

/// Nothing where the name is none that is looked for.
std::optional<KvName> kv_name(std::string_view path, std::string_view part) {
  KvName name;
  if (part == "k_scale" || part == "kv_scale") {
    name.which = 'k';
  } else if (part == "v_scale") {
    name.which = 'v';
  } else if (part == "q_scale") {
    name.which = 'q';
  } else if (part == "output_scale" && (path.ends_with(".k_proj") || path.ends_with(".v_proj"))) {
    name.which = path.ends_with(".k_proj") ? 'k' : 'v';
  } else if (part == "weight_scale_inv" && (path.ends_with(".k_cache") || path.ends_with(".v_cache"))) {
    name.which = path.ends_with(".k_cache") ? 'k' : 'v';  // "k_cache.scale"
  } else {
    return std::nullopt;
  }
  for (const char* end :
       {".q_proj", ".k_proj", ".v_proj", ".qkv_proj", ".qkqkv_proj", ".k_cache", ".v_cache", ".attn"}) {
    if (drop_end(path, end)) break;
  }
  if (!path.ends_with("attn") && !path.ends_with("attention") && !path.ends_with("mixer")) return std::nullopt;
  name.attention = path;
  return name;
}

/// A name that looks like a scale of the cache.
bool looks_like_one(std::string_view path, std::string_view part) {
  const std::string leaf(path.substr(path.rfind('.') + 1));
  for (const char* word :
       {"k_scale", "v_scale", "kv_scale", "key_scale", "value_scale", "k_cache_scale", "v_cache_scale"}) {
    if (part == word) return true;
  }
  return (leaf == "k_cache" || leaf == "v_cache" || leaf == "key_cache" || leaf == "value_cache") &&
         part.find("scale") != std::string_view::npos;
}

struct Found {
  std::map<std::string, KvScales> attentions;
  std::vector<std::string> other;  ///< names that nobody looks for
};

Found find_scales(const InspectSubject& subject) {
  Found found;
  for (const Inspected& one : subject.modules) {
    const std::string_view leaf = one.module->leaf();
    if (leaf == "k_proj" || leaf == "qkv_proj") {
      std::string_view parent = one.module->parent();
      if (!parent.empty()) parent.remove_suffix(1);
      found.attentions[std::string(parent)];
    }
    for (const auto& [part, tensor] : one.module->tensors) {
      const auto name = kv_name(one.module->path, part);
      if (!name) {
        if (looks_like_one(one.module->path, part)) found.other.push_back(tensor.entry->name);
        continue;
      }
      const auto values = scale_values(tensor);
      if (!values || values->empty()) continue;
      KvScales& scales = found.attentions[name->attention];
      const std::vector<std::int64_t>& shape = tensor.entry->shape;
      scales.many = scales.many || values->size() > 1;
      scales.heads = shape.size() == 3 && shape[1] == 1 && shape[2] == 1;
      (name->which == 'k' ? scales.k : name->which == 'v' ? scales.v : scales.q) = values->front();
    }
  }
  return found;
}

struct Rule {
  std::string_view id;
  Severity severity;
  bool (*applies)(const KvScales&);
  std::string_view text;  ///< what stands behind "N attentions (names) "
};

constexpr std::array<Rule, 4> kRules = {{
    {"kv-scale-nan", Severity::error,
     [](const KvScales& one) { return (one.k && !std::isfinite(*one.k)) || (one.v && !std::isfinite(*one.v)); },
     "have a scale of the KV cache that is not finite: loading stops at an assertion"},
    {"kv-scale-v-alone", Severity::error, [](const KvScales& one) { return one.v && !one.k; },
     "have a v_scale and no k_scale: loading stops at an assertion"},
    {"kv-scale-v-replaced", Severity::warning,
     [](const KvScales& one) { return one.k && *one.k > 0 && one.v && *one.v == 0; },
     "have a v_scale of 0: k_scale is taken for it without a word"},
    {"kv-scale-k-for-both", Severity::note, [](const KvScales& one) { return one.k && *one.k > 0 && !one.v; },
     "have a k_scale alone, which is taken for V as well"},
}};

void check_kv_values(const InspectSubject& subject, const Found& found, std::vector<InspectFinding>& findings) {
  for (const Rule& rule : kRules) {
    InspectFinding finding{
        .id = std::string(rule.id), .severity = rule.severity, .text = {}, .known_as = {}, .modules = {}};
    for (const auto& [attention, scales] : found.attentions) {
      if (rule.applies(scales)) finding.modules.push_back(attention);
    }
    if (finding.modules.empty()) continue;
    finding.text =
        fmt::format("{} ({}) {}", counted(finding.modules.size(), "attention"), some_of(finding.modules), rule.text);
    findings.push_back(std::move(finding));
  }
  const bool of_ct = subject.config.method == QuantMethod::compressed_tensors;
  InspectFinding shape{.id = "kv-scale-shape", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  for (const auto& [attention, scales] : found.attentions) {
    if (scales.many && subject.loader.kv->one_number && !(of_ct && scales.heads)) shape.modules.push_back(attention);
  }
  if (!shape.modules.empty()) {
    shape.text = fmt::format("{} ({}) have more than one number as a scale of the KV cache: loading stops",
                             counted(shape.modules.size(), "attention"), some_of(shape.modules));
    findings.push_back(std::move(shape));
  }
  InspectFinding zeros{.id = "kv-scale-zero",
                       .severity = subject.loader.kv->zeros_are_one ? Severity::warning : Severity::error,
                       .text = {},
                       .known_as = {},
                       .modules = {}};
  InspectFinding ones{.id = "kv-scale-one",
                      .severity = Severity::warning,
                      .text = {},
                      .known_as = "NVIDIA/Model-Optimizer #20",
                      .modules = {}};
  for (const auto& [attention, scales] : found.attentions) {
    if (scales.k == 0.0F && scales.v == 0.0F) zeros.modules.push_back(attention);
    if (scales.k == 1.0F && scales.v == 1.0F) ones.modules.push_back(attention);
  }
  if (!zeros.modules.empty()) {
    zeros.text = fmt::format(
        "{} ({}) have scales of 0 for K and V: {}", counted(zeros.modules.size(), "attention"), some_of(zeros.modules),
        subject.loader.kv->zeros_are_one ? "1.0 is used for them" : "loading stops at an assertion");
    findings.push_back(std::move(zeros));
  }
  if (!ones.modules.empty() && ones.modules.size() == found.attentions.size()) {
    ones.text = fmt::format(
        "all {} have 1.0 as the scales of K and V, as an export that clamps them, or was never "
        "calibrated, writes: what is beyond 448 is clipped, and small values lose their low bits",
        counted(ones.modules.size(), "attention"));
    findings.push_back(std::move(ones));
  }
}

std::string_view without_scales(const InspectSubject& subject) {
  const bool of_ct = subject.config.method == QuantMethod::compressed_tensors;
  return of_ct ? subject.loader.kv->neither_in_ct : subject.loader.kv->neither;
}

void check_kv_names(const InspectSubject& subject, const Found& found, std::vector<InspectFinding>& findings) {
  if (!found.other.empty()) {
    findings.push_back(
        {.id = "kv-scale-name",
         .severity = Severity::error,
         .text = fmt::format("{} ({}) look like scales of the KV cache, under names that {} does not know: "
                             "they are dropped, and {}",
                             counted(found.other.size(), "tensor"), some_of(found.other), subject.loader.name,
                             without_scales(subject)),
         .known_as = "vllm-project/vllm #54623",
         .modules = found.other});
  }
  InspectFinding missing{.id = "kv-scale-missing",
                         .severity = Severity::warning,
                         .text = {},
                         .known_as = "vllm-project/vllm #25047",
                         .modules = {}};
  bool any = false;
  for (const auto& [attention, scales] : found.attentions) {
    if (scales.k || scales.v) any = true;
    if (!scales.k && !scales.v) missing.modules.push_back(attention);
  }
  if (!missing.modules.empty() && (any || !subject.config.kv_cache.empty()) && found.other.empty()) {
    missing.text = fmt::format("{} of {} attentions ({}) have no scale of the KV cache{}: {}", missing.modules.size(),
                               found.attentions.size(), some_of(missing.modules),
                               any ? ", which the others have" : ", and the config says that it is quantized",
                               without_scales(subject));
    findings.push_back(std::move(missing));
  }
  if (any && subject.config.kv_cache.find("NVFP4") != std::string::npos) {
    findings.push_back({.id = "kv-scale-nvfp4",
                        .severity = Severity::note,
                        .text =
                            "ModelOpt writes amax / 448 as k_scale and v_scale for a cache of NVFP4 too; engines have "
                            "read it as amax / 2688, which is 6 times off",
                        .known_as = {},
                        .modules = {}});
  }
}

void add(std::vector<InspectFinding>& findings, std::string_view id, Severity severity, std::string text) {
  findings.push_back(
      {.id = std::string(id), .severity = severity, .text = std::move(text), .known_as = {}, .modules = {}});
}

/// What the cache is stored in decides whether there is a use for scales at all.
void check_kv_dtype(const InspectSubject& subject, const Found& found, std::vector<InspectFinding>& findings) {
  const std::string_view dtype = subject.kv_cache_dtype;
  const Loader& loader = subject.loader;
  const bool fp8_weights = subject.config.method == QuantMethod::fp8;
  if (dtype == "fp8_e5m2" && fp8_weights) {
    add(findings, "kv-dtype-refused", Severity::error,
        fmt::format("{} refuses a cache of fp8_e5m2 beside weights of fp8", loader.name));
  }
  const auto has = [&](const auto& which) {
    return std::any_of(found.attentions.begin(), found.attentions.end(),
                       [&](const auto& one) { return which(one.second); });
  };
  if (!has([](const KvScales& one) { return one.k || one.v; })) return;
  const bool of_heads = dtype.find("per_token_head") != std::string_view::npos;
  const bool fp8 = dtype.starts_with("fp8") || dtype.starts_with("nvfp4");
  if (of_heads && loader.kv->makes_scales_of_heads) {
    add(findings, "kv-scale-not-used", Severity::note,
        fmt::format("the scales of the KV cache are dropped: {} makes one for each token and head of a cache of {}",
                    loader.name, one_line(dtype)));
  } else if (dtype == "auto" && subject.config.kv_cache.empty()) {
    add(findings, "kv-scale-not-used", Severity::note,
        fmt::format("the scales of the KV cache are used where an fp8 cache is asked for; the config does not, and {} "
                    "does not do so of itself for quant_method {}",
                    loader.name, one_line(subject.config.name)));
  } else if (dtype != "auto" && !fp8) {
    add(findings, "kv-scale-not-used", Severity::note,
        fmt::format("the scales of the KV cache are not used: a cache of {} has none", one_line(dtype)));
  } else if (!of_heads && !loader.kv->q_missing.empty() &&
             !has([](const KvScales& one) { return one.q.has_value(); })) {
    add(findings, "kv-scale-q-missing", Severity::note,
        fmt::format("there is no q_scale beside them: {}", loader.kv->q_missing));
  }
}

}  // namespace

void check_kv_scales(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  const Found found = find_scales(subject);
  if (subject.loader.kv != nullptr) {
    check_kv_values(subject, found, findings);
    check_kv_names(subject, found, findings);
    check_kv_dtype(subject, found, findings);
    return;
  }
  const bool any = std::any_of(found.attentions.begin(), found.attentions.end(),
                               [](const auto& one) { return one.second.k || one.second.v; });
  if (!any) return;
  findings.push_back({.id = "kv-scale-not-used",
                      .severity = Severity::note,
                      .text = fmt::format("{} reads no scales of the KV cache", subject.loader.name),
                      .known_as = {},
                      .modules = {}});
}

}  // namespace nanscope
