#include "instrument/diagnosis/json_parts.h"

#include <cmath>

namespace nanscope::json {

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json of(const std::optional<Range>& range) { return range ? Json::array({range->first, range->last}) : Json(nullptr); }

Json of(const EvidenceValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* number = std::get_if<double>(&value); number != nullptr && std::isfinite(*number)) return *number;
  return to_string(value);
}

Json of(const std::vector<Evidence>& evidence) {
  Json object = Json::object();
  for (const Evidence& item : evidence) object[item.name] = of(item.value);
  return object;
}

void add_place(Json& object, const Where& where) {
  object["layer"] = or_null(where.layer);
  object["op"] = text_or_null(where.op);
  object["request"] = or_null(where.request);
  object["step"] = or_null(where.step);
  object["rank"] = where.rank;
  object["tokens"] = of(where.tokens);
  object["channels"] = of(where.channels);
}

}  // namespace nanscope::json
