#include "instrument/diagnosis/why_brief.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace nanscope {
namespace {

enum class ValueKind : std::uint8_t { finite, nan, inf, bad };

/// Of a hop whose bits are not there, `bad` is all that is known.
ValueKind value_kind(const Hop& hop) {
  if (!hop.value) return hop.bad ? ValueKind::bad : ValueKind::finite;
  if (std::isnan(*hop.value)) return ValueKind::nan;
  return std::isinf(*hop.value) ? ValueKind::inf : ValueKind::finite;
}

bool changes(const Hop& from, const Hop& to, bool behind_origin) {
  const bool of_values =
      from.value.has_value() == to.value.has_value() ? value_kind(from) != value_kind(to) : from.bad != to.bad;
  return of_values || (behind_origin && from.format != to.format);
}

}  // namespace

std::vector<std::size_t> hops_that_matter(const WhyPath& path) {
  std::vector<std::size_t> found;
  const Hop* before = nullptr;  // the element before, whatever lies between
  for (std::size_t i = 0; i < path.hops.size(); ++i) {
    const Hop& hop = path.hops[i];
    const bool is_element = hop.kind == HopKind::element;
    const bool end = i == 0 || i + 1 == path.hops.size();
    const bool behind_origin = path.origin && i > *path.origin;
    if (end || path.origin == i || !is_element || (before != nullptr && changes(*before, hop, behind_origin)))
      found.push_back(i);
    if (is_element) before = &hop;
  }
  return found;
}

nlohmann::ordered_json to_brief_json(const WhyPath& path) {
  nlohmann::ordered_json whole = to_json(path);
  nlohmann::ordered_json hops = nlohmann::ordered_json::array();
  nlohmann::ordered_json origin = nullptr;
  for (const std::size_t number : hops_that_matter(path)) {
    if (path.origin == number) origin = hops.size();
    nlohmann::ordered_json hop = std::move(whole["hops"][number]);
    hop["number"] = number;
    hops.push_back(std::move(hop));
  }
  whole["hops"] = std::move(hops);
  whole["origin"] = std::move(origin);
  whole["hops_in_all"] = path.hops.size();
  return whole;
}

}  // namespace nanscope
