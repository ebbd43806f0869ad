#include "instrument/engine/transient.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/parse_json.h"

namespace nanscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kKinds = {"multiply", "shift", "load", "forget_scores"};

Json to_json(const Transient& transient) {
  Json json{{"kind", kKinds.at(static_cast<std::size_t>(transient.kind))}, {"step", transient.step}};
  if (transient.kind == TransientKind::forget_scores) {
    json["start"] = transient.start;
    return json;
  }
  json["weights"] = transient.weights;
  if (transient.kind == TransientKind::shift) json["until"] = transient.until;
  if (transient.kind != TransientKind::load) json["size"] = transient.size;
  if (transient.kind == TransientKind::load) json["load"] = transient.load;
  if (transient.kind == TransientKind::load) json["init_scale"] = transient.init_scale;
  if (transient.kind != TransientKind::multiply) json["seed"] = transient.seed;
  return json;
}

/// Null where the member is not there, or of another kind.
template <class T>
const T* member(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() ? nullptr : found->get_ptr<const T*>();
}

std::optional<Transient> from_json(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto* kind = member<nlohmann::json::string_t>(json, "kind");
  const auto found = std::find(kKinds.begin(), kKinds.end(), kind == nullptr ? std::string_view() : *kind);
  const auto* step = member<nlohmann::json::number_integer_t>(json, "step");
  if (found == kKinds.end() || step == nullptr || *step < 1) return std::nullopt;
  Transient transient;
  transient.kind = static_cast<TransientKind>(found - kKinds.begin());
  transient.step = transient.until = *step;
  if (const auto* until = member<nlohmann::json::number_integer_t>(json, "until")) transient.until = *until;
  if (const auto* seed = member<nlohmann::json::number_unsigned_t>(json, "seed")) transient.seed = *seed;
  if (const auto* load = member<nlohmann::json::string_t>(json, "load")) transient.load = *load;
  const auto number = [&json](const char* name, double& into) {
    if (const auto at = json.find(name); at != json.end() && at->is_number()) into = at->get<double>();
  };
  number("size", transient.size);
  number("init_scale", transient.init_scale);
  number("start", transient.start);
  if (const auto* weights = member<nlohmann::json::array_t>(json, "weights")) {
    for (const nlohmann::json& one : *weights) {
      if (!one.is_string()) return std::nullopt;
      transient.weights.push_back(one.get<std::string>());
    }
  }
  const bool in_order = transient.until >= transient.step;
  const bool finite =
      std::isfinite(transient.size) && std::isfinite(transient.init_scale) && std::isfinite(transient.start);
  return in_order && finite && transient.start >= 0 ? std::optional(transient) : std::nullopt;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view text) {
  // Where the last star stands, and up to where it has taken the text.
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;
  std::size_t p = 0;
  std::size_t t = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool Transient::names(std::string_view weight) const {
  return weights.empty() ||
         std::any_of(weights.begin(), weights.end(), [&](const std::string& one) { return matches(one, weight); });
}

Status check(std::span<const Transient> transients, const EngineConfig& config) {
  for (std::size_t i = 0; i < transients.size(); ++i) {
    const Transient& one = transients[i];
    const auto refuse = [i](std::string_view why) { return fail(fmt::format("transient {}: {}", i, why)); };
    if (one.step < 1 || one.until < one.step) return refuse("steps count from 1, and until is not before step");
    if (config.ranks.count > 1) return refuse("it needs one rank, engine.ranks=1");
  }
  return {};
}

std::string to_json(std::span<const Transient> transients) {
  Json json = Json::array();
  for (const Transient& one : transients) json.push_back(to_json(one));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::vector<Transient>> transients_from_json(std::string_view text) {
  const auto json = parse_json_or_none(text);
  if (!json.is_array()) return fail("the transients are no list");
  std::vector<Transient> all;
  for (const nlohmann::json& item : json) {
    auto one = from_json(item);
    if (!one) return fail(fmt::format("transient {} is none that this version knows", all.size()));
    all.push_back(std::move(*one));
  }
  return all;
}

}  // namespace nanscope
