#include "instrument/tokenizer/json_fields.h"

#include <string_view>

#include "instrument/files/utf8.h"

namespace nanscope::fields {

std::string shown(const std::string& text) {
  const std::string_view head = std::string_view(text).substr(0, 60);
  std::string out = "'";
  for (const char c : head.substr(0, utf8_prefix(head))) out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return out + (text.size() > 60 ? "...'" : "'");
}

const json& member(const json& node, const char* key) {
  static const json none;
  if (!node.is_object()) return none;
  const auto found = node.find(key);
  return found == node.end() ? none : *found;
}

std::string text_of(const json& node, const char* key) {
  const json& value = member(node, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool flag_of(const json& node, const char* key, bool otherwise) {
  const json& value = member(node, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

}  // namespace nanscope::fields
