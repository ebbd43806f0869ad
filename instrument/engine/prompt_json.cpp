#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/parse_json.h"
#include "instrument/engine/request.h"
#include "instrument/files/base64.h"

namespace nanscope {
namespace {

using Bytes = std::vector<std::byte>;

nlohmann::json to_json(const TextPart& part) {
  nlohmann::json json{{"text", part.text}};
  try {
    (void)json.dump();
    return json;
  } catch (const nlohmann::json::exception&) {  // no valid UTF-8, which JSON cannot hold
    return {{"bytes", to_base64(std::as_bytes(std::span(part.text)))}};
  }
}

nlohmann::json to_json(const TokensPart& part) { return {{"tokens", part.ids}}; }

nlohmann::json to_json(const ImagePart& part) { return {{"image", part.name}, {"png", to_base64(part.png)}}; }

/// Nothing where it is no list of ids.
std::optional<TokensPart> tokens_from_json(const nlohmann::json& json) {
  const auto found = json.is_object() ? json.find("tokens") : json.end();
  if (!json.is_object() || found == json.end() || !found->is_array()) return std::nullopt;
  TokensPart part;
  for (const nlohmann::json& id : *found) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
      return std::nullopt;
    }
    part.ids.push_back(id.get<std::int32_t>());
  }
  return part;
}

Result<PromptPart> part_from_json(const nlohmann::json& json, std::size_t index) {
  const auto text = [&](const char* key) -> const std::string* {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return json.is_object() && found != json.end() ? found->get_ptr<const std::string*>() : nullptr;
  };
  if (const std::string* plain = text("text")) return TextPart{*plain};
  if (const std::string* encoded = text("bytes")) {
    if (const auto bytes = from_base64(*encoded)) {
      return TextPart{std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size())};
    }
  }
  if (auto tokens = tokens_from_json(json)) return std::move(*tokens);
  const std::string* name = text("image");
  const std::string* png = text("png");
  if (name != nullptr && png != nullptr) {
    if (auto bytes = from_base64(*png)) return ImagePart{*name, std::move(*bytes)};
  }
  return fail(
      fmt::format("prompt part {}: expected {{\"text\": ...}}, {{\"bytes\": base64}}, {{\"tokens\": [id, ...]}} or "
                  "{{\"image\": name, \"png\": base64}}",
                  index));
}

}  // namespace

std::string prompt_to_json(const std::vector<PromptPart>& parts) {
  nlohmann::json json = nlohmann::json::array();
  for (const PromptPart& part : parts) {
    json.push_back(std::visit([](const auto& p) { return to_json(p); }, part));
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::vector<PromptPart>> prompt_from_json(std::string_view text) {
  const auto json = parse_json_or_none(text);
  if (!json.is_array()) return fail("prompt: expected a JSON array of parts");
  std::vector<PromptPart> parts;
  for (const auto& item : json) {
    Result<PromptPart> part = part_from_json(item, parts.size());
    if (!part) return tl::unexpected(part.error());
    parts.push_back(std::move(*part));
  }
  return parts;
}

}  // namespace nanscope
