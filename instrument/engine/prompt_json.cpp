#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "instrument/engine/request.h"

namespace nanscope {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648, section 4.
std::string to_base64(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < left ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= left ? kAlphabet[word >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

std::optional<Bytes> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::array<int, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int>(i);
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  Bytes bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t word = 0;
  int bits = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    word = word << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<std::byte>(word >> bits & 0xffU));
  }
  return bytes;
}

nlohmann::json to_json(const TextPart& part) {
  nlohmann::json json{{"text", part.text}};
  try {
    (void)json.dump();
    return json;
  } catch (const nlohmann::json::exception&) {  // no valid UTF-8, which JSON cannot hold
    return {{"bytes", to_base64(std::as_bytes(std::span(part.text)))}};
  }
}

nlohmann::json to_json(const ImagePart& part) { return {{"image", part.name}, {"png", to_base64(part.png)}}; }

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
  const std::string* name = text("image");
  const std::string* png = text("png");
  if (name != nullptr && png != nullptr) {
    if (auto bytes = from_base64(*png)) return ImagePart{*name, std::move(*bytes)};
  }
  return fail(
      fmt::format("prompt part {}: expected {{\"text\": ...}}, {{\"bytes\": base64}} or "
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
  const auto json = nlohmann::json::parse(text, nullptr, false);
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
