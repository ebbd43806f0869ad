#include <cmath>
#include <nlohmann/json.hpp>

#include "core/numbers/anatomy.h"
#include "core/numbers/bits_input.h"
#include "core/numbers/bits_report.h"
#include "core/numbers/bits_values.h"
#include "core/numbers/casts.h"

namespace nanscope {
namespace {

using bits::code_text;
using bits::InputKind;
using Json = nlohmann::ordered_json;

/// NaN and Inf have no JSON number.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

template <class T>
Json maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json neighbour_json(Format format, std::optional<std::uint32_t> code, std::optional<double> gap) {
  if (!code) return nullptr;
  const double value = exact_value(format, *code);
  return {{"code", code_text(format, *code)},
          {"value", number(value)},
          {"decimal", exact_decimal(value)},
          {"gap", maybe(gap)}};
}

Json anatomy_json(const Anatomy& a, double scale) {
  Json json = {{"format", name(a.format)},
               {"code", code_text(a.format, a.code)},
               {"bits", bits::field_text(a.format, a.code)},
               {"class", name(a.kind)},
               {"sign", a.negative ? 1 : 0},
               {"exponent_field", a.exponent_field},
               {"exponent", a.exponent},
               {"mantissa_field", a.mantissa_field},
               {"formula", a.formula},
               {"value", number(a.value)},
               {"decimal", a.decimal},
               {"real", number(static_cast<double>(static_cast<float>(a.value) * static_cast<float>(scale)))},
               {"index", maybe(a.index)},
               {"ordered_codes", ordered_count(a.format)},
               {"down", neighbour_json(a.format, a.down, a.gap_down)},
               {"up", neighbour_json(a.format, a.up, a.gap_up)}};
  if (scale == 1.0) json["real"] = number(a.value);
  return json;
}

Json bound_json(Format format, std::optional<std::uint32_t> code) {
  if (!code) return nullptr;
  const double value = exact_value(format, *code);
  return {{"code", code_text(format, *code)}, {"value", number(value)}, {"decimal", exact_decimal(value)}};
}

Json rounding_json(const Rounding& r) {
  return {{"overflow", r.overflow == Overflow::saturate ? "saturate" : "overflow"},
          {"source_f32", code_text(Format::f32, r.source_bits)},
          {"value", number(r.value)},
          {"stored", number(r.stored)},
          {"lower", bound_json(r.format, r.lower)},
          {"upper", bound_json(r.format, r.upper)},
          {"midpoint", maybe(r.midpoint)},
          {"exact", r.exact},
          {"tie", r.tie},
          {"clipped", r.clipped},
          {"overflowed", r.overflowed},
          {"flushed", r.flushed},
          {"laundered", r.laundered},
          {"sign_dropped", r.sign_dropped},
          {"absolute_loss", maybe(r.absolute_loss)},
          {"relative_loss", maybe(r.relative_loss)}};
}

/// What each stack's cast stores.
Json stacks_json(const bits::Input& input, Format format, const BitsOptions& options) {
  Json all = Json::array();
  for (const CastRule& rule : cast_rules(format)) {
    BitsOptions theirs = options;
    theirs.overflow = rule.overflow;
    const Rounding r = bits::cast_input(input, format, theirs);
    all.push_back({{"stack", rule.stack},
                   {"overflow", rule.overflow == Overflow::saturate ? "saturate" : "overflow"},
                   {"code", code_text(format, r.code)},
                   {"decimal", dissect(format, r.code).decimal}});
  }
  return all;
}

bool holds(const FormatInfo& f, const bits::Input& input) {
  const int width = input.width <= 8 ? 8 : input.width <= 16 ? 16 : 32;
  return static_cast<int>(f.storage_bytes()) * 8 == width && (f.bits == 32 || input.bits < (1u << f.bits));
}

Json document(const BitsOptions& options) {
  return {
      {"schema", "nanscope.bits/1"}, {"input", options.input}, {"scale", options.scale}, {"results", Json::array()}};
}

/// What the format stores of the input.
Json result_json(const bits::Input& input, Format format, const BitsOptions& options) {
  if (input.kind == InputKind::code) return anatomy_json(dissect(format, input.bits), options.scale);
  const Rounding r = bits::cast_input(input, format, options);
  Json entry = anatomy_json(dissect(format, r.code), options.scale);
  entry["rounding"] = rounding_json(r);
  entry["stacks"] = stacks_json(input, format, options);
  return entry;
}

Result<std::string> table_json(const BitsOptions& options) {
  const Result<Format> format = bits::parse_table_format(options);
  if (!format) return tl::unexpected(format.error());
  const FormatInfo& f = info(*format);
  if (f.bits > 16 || (f.bits > 8 && !options.all_codes)) {
    return fail(std::string(f.name) + " has 2^" + std::to_string(f.bits) +
                " codes; a table as JSON is written up to 8 bits" + (f.bits <= 16 ? ", or with --all up to 16" : ""));
  }
  Json json = document(options);
  json["kind"] = "table";
  for (std::uint32_t code = 0; code < (1u << f.bits); ++code) {
    json["results"].push_back(anatomy_json(dissect(*format, code), options.scale));
  }
  return json.dump(1) + "\n";
}

}  // namespace

Result<std::string> bits_json(const BitsOptions& options) {
  if (options.table) return table_json(options);
  const Result<bits::Request> request = bits::parse_request(options);
  if (!request) return tl::unexpected(request.error());
  const bits::Input& input = request->input;
  Json json = document(options);
  json["kind"] = input.kind == InputKind::value ? "value" : input.kind == InputKind::code ? "code" : "f32_bits";
  for (const FormatInfo& f : formats()) {
    if (request->format && *request->format != f.format) continue;
    if (input.kind == InputKind::code && !request->format && !holds(f, input)) continue;
    json["results"].push_back(result_json(input, f.format, options));
  }
  return json.dump(1) + "\n";
}

Result<std::string> bits_values_json(const BitsOptions& options, std::span<const std::string> values) {
  const Result<std::vector<bits::StoredValue>> stored = bits::store_values(options, values);
  if (!stored) return tl::unexpected(stored.error());
  Json json = document(options);
  json["input"] = values;
  json["kind"] = "values";
  const bits::Distinct distinct = bits::count_distinct(*stored, options.scale);
  json["distinct"] = {{"given", distinct.given}, {"stored", distinct.stored}};
  for (const bits::StoredValue& one : *stored) {
    Json entry = {{"input", one.typed}};
    entry.update(result_json(one.input, one.rounding.format, options));
    json["results"].push_back(std::move(entry));
  }
  return json.dump(1) + "\n";
}

}  // namespace nanscope
