#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/parse_json.h"
#include "instrument/files/file.h"
#include "instrument/gguf/tokenizer.h"
#include "instrument/tokenizer/byte_alphabet.h"
#include "instrument/tokenizer/character.h"
#include "instrument/tokenizer/json_fields.h"
#include "instrument/tokenizer/pipeline_json.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {
namespace {

/// Throws where there is no room for a document, of up to 4 MiB as values. The library's values allocate when they are
/// destroyed: memory that ran out in the middle of one would end the program.
void reserve_document(std::size_t bytes) {
  constexpr std::size_t kOfValues = 32;  // bytes that a byte of text becomes
  constexpr std::size_t kMost = std::size_t{4} << 20;
  const std::vector<char> room(std::min(kOfValues * bytes, kMost), '\0');
  const volatile char* kept = room.data();
  static_cast<void>(kept);
}

using nlohmann::json;

constexpr std::uint64_t kMaxFile = std::uint64_t{256} << 20;
constexpr std::int64_t kMaxId = 4'000'000;
constexpr std::size_t kMaxAddedToken = 1024;  // bytes: each place of a text may be compared with as many

using Vocabulary = std::unordered_map<std::string, std::int32_t>;

/// A token id: a whole number from 0 to kMaxId.
std::optional<std::int32_t> id_of(const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxId)) {
    return std::nullopt;
  }
  return static_cast<std::int32_t>(value.get<std::uint64_t>());
}

/// Reads the parts of one tokenizer.json, which is parsed already.
class Reader {
 public:
  explicit Reader(const json& root) : root_(root) {}

  Result<TokenizerParts> read() {
    if (!root_.is_object()) return fail("not a JSON object");
    const json& model = fields::member(root_, "model");
    const std::string type = fields::text_of(model, "type");
    // Files of early versions leave the type out.
    if (!model.is_object() || (type != "BPE" && !(type.empty() && fields::member(model, "merges").is_array()))) {
      return fail("model type " + fields::shown(type) + ", expected 'BPE'");
    }
    auto pipeline = read_pipeline(root_);
    if (!pipeline) return tl::unexpected(pipeline.error());
    pipeline_ = std::move(*pipeline);
    Status status = read_model_options(model);
    if (status) status = read_vocabulary(fields::member(model, "vocab"));
    if (status) status = read_alphabet(model);
    if (status) status = read_merges(fields::member(model, "merges"));
    if (status) status = read_added(fields::member(root_, "added_tokens"));
    if (!status) return tl::unexpected(status.error());
    return TokenizerParts{BpeModel(std::move(alphabet_), merges_, whole_pieces(model)),
                          std::move(token_bytes_),
                          std::move(added_),
                          AddedTokenFinder(std::move(raw_)),
                          AddedTokenFinder(std::move(normalized_)),
                          std::move(pipeline_.normalizer),
                          std::move(pipeline_.space),
                          std::move(pipeline_.splitters),
                          std::move(pipeline_.decoder.strip)};
  }

 private:
  Status read_model_options(const json& model) {
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!fields::text_of(model, key).empty()) return fail(std::string("model.") + key + " is not supported");
    }
    const json& dropout = fields::member(model, "dropout");
    if (!dropout.is_null() && dropout != 0.0) return fail("model.dropout is not supported");
    return {};
  }

  /// The bytes that a token of the vocabulary adds to a text. One that is not written in the byte alphabet can only be
  /// an added one: its text stands.
  std::string bytes_of(const std::string& text) const {
    return pipeline_.byte_level ? from_alphabet(text).value_or(text) : pipeline_.decoder.bytes_of(text);
  }

  Status set_bytes(std::int32_t id, std::string bytes) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= token_bytes_.size()) token_bytes_.resize(at + 1);
    // Early files of Gemma give a tab's id to "\t" and to "<0x09>".
    if (!token_bytes_[at].empty() && (pipeline_.byte_level || token_bytes_[at] != bytes)) {
      return fail("id " + std::to_string(id) + " is given to two tokens");
    }
    token_bytes_[at] = std::move(bytes);
    return {};
  }

  Status read_vocabulary(const json& vocab) {
    if (!vocab.is_object()) return fail("model.vocab is not a JSON object");
    for (const auto& [text, value] : vocab.items()) {
      const auto id = id_of(value);
      if (!id) return fail("token " + fields::shown(text) + " has no id from 0 to " + std::to_string(kMaxId));
      if (text.empty()) return fail("the empty text is a token");
      vocabulary_.emplace(text, *id);
      if (auto status = set_bytes(*id, bytes_of(text)); !status) return status;
    }
    return {};
  }

  /// The id of a text in the vocabulary; -1 for one that is not there.
  std::int32_t token_of(const std::string& text) const {
    const auto found = vocabulary_.find(text);
    return found == vocabulary_.end() ? -1 : found->second;
  }

  Status read_alphabet(const json& model) {
    if (!pipeline_.byte_level) {
      alphabet_ = read_characters(model);
      return {};
    }
    ByteTokens bytes{};
    const std::int32_t unknown = token_of(fields::text_of(model, "unk_token"));
    bool any = false;
    for (int byte = 0; byte < 256; ++byte) {
      const std::int32_t token = token_of(to_alphabet(std::string(1, static_cast<char>(byte))));
      any = any || token >= 0;
      bytes[static_cast<std::size_t>(byte)] = token >= 0 ? token : unknown;
    }
    if (!any) return fail("no byte has a token");
    alphabet_ = bytes;
    return {};
  }

  CharacterTokens read_characters(const json& model) const {
    CharacterTokens characters;
    for (const auto& [text, id] : vocabulary_) {
      if (is_one_character(text)) characters.tokens.emplace(first_character(text).code_point, id);
    }
    const bool byte_fallback = fields::flag_of(model, "byte_fallback", false);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      characters.bytes[byte] = byte_fallback ? token_of(fmt::format("<0x{:02X}>", byte)) : -1;
    }
    characters.unknown = token_of(fields::text_of(model, "unk_token"));
    characters.fuse_unknown = fields::flag_of(model, "fuse_unk", false);
    return characters;
  }

  Vocabulary whole_pieces(const json& model) const {
    if (!fields::flag_of(model, "ignore_merges", false)) return {};
    if (!pipeline_.byte_level) return vocabulary_;
    Vocabulary whole;
    for (const auto& [text, id] : vocabulary_) {
      if (auto bytes = from_alphabet(text)) whole.emplace(std::move(*bytes), id);
    }
    return whole;
  }

  Status read_merges(const json& merges) {
    if (!merges.is_array()) return fail("model.merges is not a JSON array");
    std::set<std::pair<std::int32_t, std::int32_t>> seen;
    merges_.reserve(merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::string where = "merge " + std::to_string(i);
      std::string left;
      std::string right;
      const json& merge = merges[i];
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const std::size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
          return fail(where + " is " + fields::shown(text) + ", expected two tokens and one space");
        }
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        return fail(where + " is neither a text nor a pair of texts");
      }
      std::array<std::int32_t, 3> ids{};
      const std::array<std::string, 3> texts = {left, right, left + right};
      for (std::size_t part = 0; part < 3; ++part) {
        ids[part] = token_of(texts[part]);
        if (ids[part] < 0) return fail(where + " needs " + fields::shown(texts[part]) + ", which is no token");
      }
      if (!seen.emplace(ids[0], ids[1]).second) return fail(where + " occurs twice");
      merges_.push_back({ids[0], ids[1], ids[2]});
    }
    return {};
  }

  Status read_added(const json& tokens) {
    if (tokens.is_null()) return {};
    if (!tokens.is_array()) return fail("added_tokens is not a JSON array");
    std::unordered_set<std::string> seen;
    for (const json& node : tokens) {
      AddedToken token;
      token.content = fields::text_of(node, "content");
      const auto id = id_of(fields::member(node, "id"));
      if (token.content.empty() || !id) return fail("an added token has no content or no id");
      if (token.content.size() > kMaxAddedToken) {
        return fail("added token " + fields::shown(token.content) + " is longer than " +
                    std::to_string(kMaxAddedToken) + " bytes");
      }
      if (!seen.insert(token.content).second) {
        return fail("added token " + fields::shown(token.content) + " occurs twice");
      }
      token.id = *id;
      token.special = fields::flag_of(node, "special", false);
      token.normalized = fields::flag_of(node, "normalized", !token.special);
      token.single_word = fields::flag_of(node, "single_word", false);
      token.lstrip = fields::flag_of(node, "lstrip", false);
      token.rstrip = fields::flag_of(node, "rstrip", false);
      if (auto status = add(std::move(token)); !status) return status;
    }
    return {};
  }

  Status add(AddedToken token) {
    const std::int32_t known = token_of(token.content);
    if (known >= 0 && known != token.id) {
      return fail("added token " + fields::shown(token.content) + " has id " + std::to_string(token.id) +
                  ", the vocabulary says " + std::to_string(known));
    }
    // Of two tokens that look the same when normalized the first counts; the package takes either.
    std::string sought = token.normalized ? normalize(token.content, pipeline_.normalizer) : token.content;
    std::string bytes = pipeline_.byte_level ? sought : pipeline_.decoder.bytes_of(sought);
    if (known >= 0) {
      token_bytes_[static_cast<std::size_t>(known)] = std::move(bytes);
    } else if (auto status = set_bytes(token.id, std::move(bytes)); !status) {
      return status;
    }
    (token.normalized ? normalized_ : raw_).push_back({std::move(sought), token});
    added_.push_back(std::move(token));
    return {};
  }

  const json& root_;
  Pipeline pipeline_;
  Vocabulary vocabulary_;
  std::variant<ByteTokens, CharacterTokens> alphabet_;
  std::vector<BpeMerge> merges_;
  std::vector<std::string> token_bytes_;
  std::vector<AddedToken> added_;
  std::vector<AddedTokenFinder::Entry> raw_;
  std::vector<AddedTokenFinder::Entry> normalized_;
};

}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view text, std::string_view file) {
  reserve_document(text.size());
  const auto root = parse_json(text);
  if (!root) return fail(std::string(file) + ": " + root.error().message);
  auto parts = Reader(*root).read();
  if (!parts) return fail(std::string(file) + ": " + parts.error().message);
  return Tokenizer(std::move(*parts));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  const auto head = read_beginning(path, 4);
  if (head && is_gguf(*head)) {
    const auto file = GgufFile::open(path);
    if (!file) return tl::unexpected(file.error());
    const auto text = tokenizer_of_gguf(file->header(), path.string());
    if (!text) return tl::unexpected(text.error());
    return parse(*text, path.string());
  }
  const auto bytes = read_file(path, kMaxFile);
  if (!bytes) return tl::unexpected(bytes.error());
  return parse(as_text(*bytes), path.string());
}

}  // namespace nanscope
