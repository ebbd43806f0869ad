#include "instrument/diagnosis/evidence.h"

#include <fmt/format.h>

#include <cmath>

namespace nanscope {

std::string to_string(const EvidenceValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const double number = std::get<double>(value);
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return fmt::format("{:.6g}", number);
}

const EvidenceValue* find(const std::vector<Evidence>& evidence, const std::string& name) {
  for (const Evidence& item : evidence) {
    if (item.name == name) return &item.value;
  }
  return nullptr;
}

std::string tensor_text(const Where& where) {
  if (where.op.empty()) return {};
  std::string text = where.rank == 0 ? std::string() : fmt::format("@{}/", where.rank);
  if (where.request) text += fmt::format("{}/", *where.request);
  if (where.step) text += fmt::format("{}/", *where.step);
  text += where.layer ? fmt::format("{}/", *where.layer) : std::string("-/");
  text += where.op;
  if (!where.role.empty()) text += "." + where.role;
  return text;
}

std::string place_text(const Where& where) {
  std::string text = tensor_text(where);
  if (text.empty() || !where.tokens) return text;
  text += fmt::format("[{}", where.tokens->first);
  if (where.channels) text += fmt::format(",{}", where.channels->first);
  return text + "]";
}

}  // namespace nanscope
