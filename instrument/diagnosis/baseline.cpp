#include "instrument/diagnosis/baseline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/parse_json.h"

namespace nanscope {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kOne = "nanscope.diagnosis/3";
constexpr std::string_view kOlder = "nanscope.diagnosis/2";  // its faults are written alike
constexpr std::string_view kSeveral = "nanscope.diagnoses/1";

std::string own_name(const std::string& tensor) {
  const std::size_t before = tensor.find_last_of("/:");
  return before == std::string::npos ? tensor : tensor.substr(before + 1);
}

/// The text of a member; nothing where it is missing, null or of another type.
std::optional<std::string> text(const Json& object, const char* key) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_string()) return std::nullopt;
  return member->get<std::string>();
}

Status add_faults(const Json& diagnosis, const std::string& where, std::set<KnownFault>& known) {
  const auto faults = diagnosis.find("faults");
  if (faults == diagnosis.end() || !faults->is_array()) return fail(where + "no list of faults");
  for (std::size_t i = 0; i < faults->size(); ++i) {
    const Json& one = (*faults)[i];
    const auto fault_class = one.is_object() ? text(one, "class") : std::nullopt;
    const auto tensor = one.is_object() ? text(one, "tensor") : std::nullopt;
    if (!fault_class || !tensor) return fail(fmt::format("{}faults[{}] has no class and tensor", where, i));
    KnownFault fault{*fault_class, {}, text(one, "op").value_or(""), own_name(*tensor)};
    const auto layer = one.find("layer");
    if (layer != one.end() && layer->is_number_integer()) fault.layer = layer->get<std::int64_t>();
    known.insert(std::move(fault));
  }
  return {};
}

}  // namespace

KnownFault known_form(const Fault& fault) {
  return {fault.fault_class, fault.where.layer, fault.where.op, own_name(fault.tensor)};
}

std::string to_string(const KnownFault& fault) { return fmt::format("{} in {}", fault.fault_class, fault.tensor); }

Result<Baseline> Baseline::parse(std::string_view json) {
  const Json whole = parse_json_or_none<Json>(json);
  if (!whole.is_object()) return fail("is no JSON object; expected what diagnose --format json prints");
  const std::string schema = text(whole, "schema").value_or("");
  Baseline baseline;
  if (schema == kOne || schema == kOlder) {
    if (Status added = add_faults(whole, "", baseline.known_); !added) return tl::unexpected(added.error());
    return baseline;
  }
  if (schema != kSeveral)
    return fail(fmt::format("is of schema '{}', expected {} or {}", schema.substr(0, 64), kOne, kSeveral));
  const auto list = whole.find("targets");
  if (list == whole.end() || !list->is_array()) return fail("has no list of targets");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& one = (*list)[i];
    if (!one.is_object()) return fail(fmt::format("targets[{}] is no object", i));
    if (one.contains("error")) continue;
    const Status added = add_faults(one, fmt::format("targets[{}]: ", i), baseline.known_);
    if (!added) return tl::unexpected(added.error());
  }
  return baseline;
}

std::vector<KnownFault> Baseline::gone(const std::vector<const Diagnosis*>& diagnoses) const {
  std::set<KnownFault> left = known_;
  for (const Diagnosis* diagnosis : diagnoses) {
    for (const Fault& fault : diagnosis->faults) left.erase(known_form(fault));
  }
  return {left.begin(), left.end()};
}

}  // namespace nanscope
