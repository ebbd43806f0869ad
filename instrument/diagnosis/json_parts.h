#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "instrument/diagnosis/evidence.h"

/// What the JSON of diagnoses, ways and comparisons is put together from. Numbers that JSON cannot hold are text:
/// "nan", "inf", "-inf".
namespace nanscope::json {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text);
Json of(const std::optional<Range>& range);
Json of(const EvidenceValue& value);
Json of(const std::vector<Evidence>& evidence);
/// Members layer, op, request, step, rank, tokens and channels.
void add_place(Json& object, const Where& where);

}  // namespace nanscope::json
