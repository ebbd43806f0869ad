#include "instrument/gguf/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/text/safe_text.h"

namespace nanscope {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kControl = 3;      ///< of tokenizer.ggml.token_type: found in a text as given, and special
constexpr std::int64_t kUserDefined = 4;  ///< found in a text as given

/// How a text is split before merges, by tokenizer.ggml.pre (llama.cpp, src/llama-vocab.cpp).
struct Splitting {
  std::string_view names;    ///< with a space between them
  std::string_view pattern;  ///< empty: GPT-2's
  bool single_digits = false;
  bool normalizes = false;      ///< to NFC
  bool ignores_merges = false;  ///< a word that is a token stays one
};

constexpr std::array kSplittings = {
    Splitting{.names = "gpt-2 phi-2", .pattern = ""},
    Splitting{.names = "smollm starcoder refact", .pattern = "", .single_digits = true},
    Splitting{.names = "llama-bpe llama3 llama-v3",
              .pattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                         R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
              .ignores_merges = true},
    Splitting{.names = "qwen2 deepseek-r1-qwen",
              .pattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                         R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
              .normalizes = true},
};

const GgufValue* entry_of(const GgufHeader& header, std::string_view key) {
  const auto found = header.metadata.find(key);
  return found == header.metadata.end() ? nullptr : &found->second;
}

std::string text_of(const GgufHeader& header, std::string_view key) {
  const GgufValue* value = entry_of(header, key);
  return value == nullptr ? std::string() : value->text().value_or(std::string());
}

const Splitting* splitting_of(const GgufHeader& header) {
  const std::string name = ' ' + text_of(header, "tokenizer.ggml.pre") + ' ';
  const auto found = std::find_if(kSplittings.begin(), kSplittings.end(), [&](const Splitting& one) {
    return name.size() > 2 && (' ' + std::string(one.names) + ' ').find(name) != std::string::npos;
  });
  return found == kSplittings.end() ? nullptr : &*found;
}

Json pre_tokenizer(const Splitting& splitting) {
  const bool own = !splitting.pattern.empty();
  Json steps = Json::array();
  if (splitting.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (own)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", splitting.pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", !own}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

Result<std::vector<GgufValue>> list_of(const GgufHeader& header, const std::string& file, std::string_view key) {
  const GgufValue* value = entry_of(header, key);
  auto items = value == nullptr ? std::nullopt : value->list();
  if (!items) return fail(fmt::format("{}: {}: expected a list", file, key));
  return std::move(*items);
}

Json added_token(std::size_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace

bool has_tokenizer(const GgufHeader& header) {
  return text_of(header, "tokenizer.ggml.model") == "gpt2" && splitting_of(header) != nullptr;
}

Result<std::string> tokenizer_of_gguf(const GgufHeader& header, const std::string& file) {
  if (!has_tokenizer(header))
    return fail(fmt::format("{}: tokenizer.ggml.model '{}' of tokenizer.ggml.pre '{}' is not read", file,
                            one_line(text_of(header, "tokenizer.ggml.model")),
                            one_line(text_of(header, "tokenizer.ggml.pre"))));
  const Splitting& splitting = *splitting_of(header);
  const auto tokens = list_of(header, file, "tokenizer.ggml.tokens");
  const auto merges = list_of(header, file, "tokenizer.ggml.merges");
  if (!tokens) return tl::unexpected(tokens.error());
  if (!merges) return tl::unexpected(merges.error());
  const GgufValue* kinds_value = entry_of(header, "tokenizer.ggml.token_type");
  const auto kinds = kinds_value == nullptr ? std::nullopt : kinds_value->list();
  Json added = Json::array();
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    const auto text = (*tokens)[id].text();
    if (!text) return fail(fmt::format("{}: tokenizer.ggml.tokens: expected texts", file));
    const std::int64_t kind = kinds && id < kinds->size() ? (*kinds)[id].integer().value_or(0) : 0;
    if (kind == kControl || kind == kUserDefined) added.push_back(added_token(id, *text, kind == kControl));
    vocabulary[*text] = id;
  }
  Json listed = Json::array();
  for (const GgufValue& merge : *merges) {
    const auto text = merge.text();
    if (!text) return fail(fmt::format("{}: tokenizer.ggml.merges: expected texts", file));
    listed.push_back(*text);
  }
  const Json normalizer = splitting.normalizes ? Json{{"type", "NFC"}} : Json();
  const Json json = {{"version", "1.0"},
                     {"added_tokens", std::move(added)},
                     {"normalizer", normalizer},
                     {"pre_tokenizer", pre_tokenizer(splitting)},
                     {"decoder", {{"type", "ByteLevel"}}},
                     {"model",
                      {{"type", "BPE"},
                       {"ignore_merges", splitting.ignores_merges},
                       {"vocab", std::move(vocabulary)},
                       {"merges", std::move(listed)}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nanscope
