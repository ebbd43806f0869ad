#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/json_parts.h"
#include "instrument/diagnosis/why.h"

namespace nanscope {

nlohmann::ordered_json to_json(const WhyPath& path) {
  using json::Json;
  Json hops = Json::array();
  for (const Hop& hop : path.hops) {
    Json object{{"kind", name(hop.kind)},
                {"place", json::text_or_null(place_text(hop.where))},
                {"tensor", json::text_or_null(hop.tensor)}};
    json::add_place(object, hop.where);
    object["op_kind"] = hop.kind == HopKind::element ? Json(name(hop.op_kind)) : Json(nullptr);
    object["format"] = name(hop.format);
    object["code"] = hop.code ? Json(code_text(hop.format, *hop.code)) : Json(nullptr);
    object["value"] = hop.value ? json::of(EvidenceValue{double{*hop.value}}) : Json(nullptr);
    object["bad"] = hop.bad;
    object["numbers"] = json::of(hop.numbers);
    object["text"] = hop.text;
    hops.push_back(std::move(object));
  }
  return Json{{"schema", "nanscope.why/1"},
              {"hops", std::move(hops)},
              {"origin", json::or_null(path.origin)},
              {"conclusion", path.conclusion},
              {"stopped", path.stopped}};
}

std::string_view name(HopKind kind) {
  switch (kind) {
    case HopKind::element:
      return "element";
    case HopKind::weight:
      return "weight";
    case HopKind::slot:
      return "slot";
    case HopKind::scale:
      return "scale";
  }
  return {};
}

}  // namespace nanscope
