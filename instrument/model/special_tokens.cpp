#include "instrument/model/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/parse_json.h"
#include "instrument/files/file.h"
#include "instrument/gguf/gguf_model.h"

namespace nanscope {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 24;

struct Role {
  std::string_view name;
  std::string_view key;   ///< of config.json, with _id behind it, and of tokenizer_config.json
  std::string_view gguf;  ///< key of the metadata
};
constexpr std::array<Role, 4> kRoles = {{
    {"begin", "bos_token", "tokenizer.ggml.bos_token_id"},
    {"end", "eos_token", "tokenizer.ggml.eos_token_id"},
    {"pad", "pad_token", "tokenizer.ggml.padding_token_id"},
    {"unknown", "unk_token", "tokenizer.ggml.unknown_token_id"},
}};

void add(std::vector<SpecialToken>& tokens, std::string_view role, std::int64_t id, const std::string& source) {
  const auto known =
      std::ranges::find_if(tokens, [&](const SpecialToken& one) { return one.role == role && one.id == id; });
  if (known == tokens.end()) {
    tokens.push_back({.role = std::string(role), .id = id, .source = source});
  } else if (known->source != source) {
    known->source += ", " + source;
  }
}

/// A file of the folder as an object; none: it is not there.
Result<std::optional<Json>> object_of(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<Json>();
  const auto bytes = read_file(path, kMostBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  Result<Json> json = parse_json(as_text(*bytes));
  if (!json) return fail(fmt::format("{}: {}", path.string(), json.error().message));
  if (!json->is_object()) return fail(fmt::format("{}: is no JSON object", path.string()));
  return std::optional<Json>(std::move(*json));
}

/// Ids under keys such as eos_token_id: a number, a list of them, or null.
Status add_ids(std::vector<SpecialToken>& tokens, const Role& role, const Json& json, const std::string& file) {
  const auto found = json.find(fmt::format("{}_id", role.key));
  if (found == json.end() || found->is_null()) return {};
  const Json ids = found->is_array() ? *found : Json::array({*found});
  for (const Json& id : ids) {
    if (!id.is_number_integer()) return fail(fmt::format("{}: {}_id: is no whole number", file, role.key));
    add(tokens, role.name, id.get<std::int64_t>(), std::filesystem::path(file).filename().string());
  }
  return {};
}

/// Contents of added tokens: "<pad>", or an object with "content".
void add_content(std::vector<SpecialToken>& tokens, const Role& role, const Json& json, const Tokenizer& tokenizer) {
  const auto found = json.find(role.key);
  if (found == json.end()) return;
  const Json& content = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  if (!content.is_string()) return;
  if (const auto id = tokenizer.added_token(content.get_ref<const std::string&>()); id)
    add(tokens, role.name, *id, "tokenizer_config.json");
}

Result<std::vector<SpecialToken>> of_gguf(const std::filesystem::path& path) {
  const auto model = GgufModel::open(path);
  if (!model) return tl::unexpected(model.error());
  std::vector<SpecialToken> tokens;
  const auto& metadata = (*model)->parts().front()->file.header().metadata;
  for (const Role& role : kRoles) {
    const auto found = metadata.find(role.gguf);
    if (found == metadata.end()) continue;
    const std::optional<std::int64_t> id = found->second.integer();
    if (!id) return fail(fmt::format("{}: {}: is no whole number", path.string(), role.gguf));
    add(tokens, role.name, *id, std::string(role.gguf));
  }
  return tokens;
}

}  // namespace

Result<std::vector<SpecialToken>> special_tokens(const std::filesystem::path& checkpoint, const Tokenizer& tokenizer) {
  const auto gguf = gguf_of(checkpoint);
  if (!gguf) return tl::unexpected(gguf.error());
  if (*gguf) return of_gguf(**gguf);
  std::vector<SpecialToken> tokens;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
    const std::filesystem::path path = checkpoint / name;
    const Result<std::optional<Json>> json = object_of(path);
    if (!json) return tl::unexpected(json.error());
    if (!*json) continue;
    for (const Role& role : kRoles) {
      if (Status status = add_ids(tokens, role, **json, path.string()); !status) return tl::unexpected(status.error());
      add_content(tokens, role, **json, tokenizer);
    }
  }
  return tokens;
}

}  // namespace nanscope
