#include <cmath>
#include <nlohmann/json.hpp>

#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/json_parts.h"
#include "instrument/diff/diff.h"

namespace nanscope {
namespace {

using json::Json;

Json number(double value) { return json::of(EvidenceValue{value}); }

Json of_element(const ElementDifference& element, Format format) {
  return Json{{"index", element.index},
              {"code_a", code_text(format, element.code_a)},
              {"code_b", code_text(format, element.code_b)},
              {"a", number(double{element.value_a})},
              {"b", number(double{element.value_b})},
              {"ulps", json::or_null(element.ulps)}};
}

Json of_pattern(const align::RowPattern& pattern) {
  Json made{{"text", text(pattern)}, {"chance", number(pattern.chance)}};
  if (pattern.kind == align::RowPattern::Kind::period) {
    made["period"] = pattern.period;
    made["phases"] = pattern.phases;
  } else {
    made["first"] = pattern.first;
    made["last"] = pattern.last;
  }
  return made;
}

Json of_outstanding(const Outstanding& found) {
  Json places = Json::array();
  for (const align::RowPlace& place : found.places)
    places.push_back({{"sequence", place.sequence}, {"position", place.position}});
  return Json{{"whole", found.whole},
              {"rows", found.rows},
              {"of", found.of},
              {"places", std::move(places)},
              {"pattern", found.pattern ? of_pattern(*found.pattern) : Json(nullptr)},
              {"sequence", json::or_null(found.sequence)},
              {"rank", json::or_null(found.rank)},
              {"channels", json::of(found.channels)},
              {"heads", json::of(found.heads)},
              {"floor", number(found.floor)},
              {"largest", number(found.largest)},
              {"chance", number(found.chance)}};
}

void add_bits(Json& object, const Difference& one) {
  object["first"] = nullptr;
  object["differing"] = nullptr;
  if (!one.elements) return;
  object["differing"] = one.elements->differing;
  if (one.elements->first) object["first"] = of_element(*one.elements->first, one.a->format);
}

void add_numbers(Json& object, const Difference& one) {
  object["elements"] = one.count;
  object["differing"] = one.differing;
  object["first"] = one.first < 0 ? Json(nullptr) : Json(one.first);
  object["token"] = one.token < 0 ? Json(nullptr) : Json(one.token);
  object["a"] = number(one.value_a);
  object["b"] = number(one.value_b);
  object["relative"] = number(one.relative);
  object["expected_rounding"] = number(one.expected);
  object["stands_out"] = one.outstanding ? of_outstanding(*one.outstanding) : Json(nullptr);
}

Json of_difference(const Difference& one, bool bits) {
  const Tensor& tensor = one.a ? *one.a : *one.b;
  const bool by_name = !bits && !tensor.name.empty();
  Json object{{"kind", name(one.kind)}, {"tensor", json::text_or_null(by_name ? tensor.name : place_text(one.where))}};
  json::add_place(object, one.where);
  if (bits) {
    add_bits(object, one);
  } else {
    add_numbers(object, one);
  }
  object["reason"] = json::text_or_null(one.reason);
  object["nearest"] = json::text_or_null(one.candidate);
  object["summary"] = one.summary;
  return object;
}

Json of_alignment(const DiffReport& report) {
  Json sequences = Json::array();
  for (const align::SequencePair& pair : report.sequences) {
    sequences.push_back({{"a", pair.a},
                         {"b", pair.b},
                         {"equal_tokens", pair.tokens},
                         {"first_different", json::or_null(pair.first_apart)}});
  }
  Json joined = Json::array();
  for (const Joined& one : report.joined)
    joined.push_back({{"side", one.side}, {"join", name(one.join)}, {"ops", one.ops}});
  return Json{
      {"sequences", std::move(sequences)},       {"rows", report.rows},     {"rows_only_in_a", report.rows_only_in_a},
      {"rows_only_in_b", report.rows_only_in_b}, {"layout", report.layout}, {"ranks", std::move(joined)}};
}

Json of_noise(const DiffReport& report) {
  Json lines = Json::array();
  for (const NoiseLine& line : report.floor) {
    lines.push_back({{"tensor", line.tensor},
                     {"layer", json::or_null(line.layer)},
                     {"op", line.op},
                     {"rows", line.rows},
                     {"median", number(line.median)},
                     {"deviation", number(line.deviation)},
                     {"rounding", number(line.rounding)}});
  }
  return lines;
}

}  // namespace

std::string_view name(DifferenceKind kind) {
  switch (kind) {
    case DifferenceKind::only_in_a:
      return "only-in-a";
    case DifferenceKind::only_in_b:
      return "only-in-b";
    case DifferenceKind::shape:
      return "shape";
    case DifferenceKind::content:
      return "content";
    case DifferenceKind::not_finite:
      break;
  }
  return "not-finite";
}

nlohmann::ordered_json to_json(const DiffReport& report) {
  Json list = Json::array();
  for (const Difference& one : report.differences) list.push_back(of_difference(one, report.bits));
  Json made{{"schema", report.bits ? "nanscope.diff/1" : "nanscope.dump-diff/1"},
            {"same", report.same()},
            {"compared", report.compared}};
  made["differing"] = report.differing;
  if (!report.bits) {
    made["equal"] = report.equal;
    made["rounding"] = report.rounding;
    made["noise"] = report.noise;
    made["beyond"] = report.differing;
    made["standing_out"] = report.outstanding;
  }
  made["unmatched"] = report.unmatched;
  made["unknown"] = report.unknown;
  made["alignment"] = of_alignment(report);
  if (!report.bits) made["noise_by_tensor"] = of_noise(report);
  made["differences"] = std::move(list);
  return made;
}

}  // namespace nanscope
