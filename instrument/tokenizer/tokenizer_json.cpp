#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "instrument/files/file.h"
#include "instrument/tokenizer/byte_alphabet.h"
#include "instrument/tokenizer/split_pattern.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxFile = std::uint64_t{256} << 20;
constexpr std::int64_t kMaxId = 4'000'000;
constexpr std::size_t kMaxAddedToken = 1024;  // bytes: each place of a text may be compared with as many

using Vocabulary = std::unordered_map<std::string, std::int32_t>;

/// Short form of a text from the file, for one-line messages.
std::string shown(const std::string& text) {
  std::string out = "'";
  for (const char c : text.substr(0, 60)) out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return out + (text.size() > 60 ? "...'" : "'");
}

/// The member `key` of an object; null when there is none or `node` is no object.
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
    const json& model = member(root_, "model");
    const std::string type = text_of(model, "type");
    // Files of early versions leave the type out.
    if (!model.is_object() || (type != "BPE" && !(type.empty() && member(model, "merges").is_array()))) {
      return fail("model type " + shown(type) + ", expected 'BPE'");
    }
    for (const Status& status : {read_model_options(model), read_vocabulary(member(model, "vocab"))}) {
      if (!status) return tl::unexpected(status.error());
    }
    for (const Status& status : {read_merges(member(model, "merges")), read_added(member(root_, "added_tokens")),
                                 read_normalizer(member(root_, "normalizer"), 0),
                                 read_pre_tokenizer(member(root_, "pre_tokenizer"), 0), read_decoder()}) {
      if (!status) return tl::unexpected(status.error());
    }
    read_sought();
    if (!byte_level_) return fail("pre_tokenizer does not end in ByteLevel: only byte-level tokenizers are supported");
    Vocabulary whole;
    if (flag_of(model, "ignore_merges", false)) {
      for (const auto& [text, id] : vocabulary_) {
        if (auto bytes = from_alphabet(text)) whole.emplace(std::move(*bytes), id);
      }
    }
    return TokenizerParts{BpeModel(byte_tokens_, merges_, std::move(whole)),
                          std::move(token_bytes_),
                          std::move(added_),
                          AddedTokenFinder(std::move(raw_)),
                          AddedTokenFinder(std::move(normalized_)),
                          std::move(normalizer_),
                          std::move(splitters_),
                          add_prefix_space_};
  }

 private:
  Status read_model_options(const json& model) {
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text_of(model, key).empty()) return fail(std::string("model.") + key + " is not supported");
    }
    const json& dropout = member(model, "dropout");
    if (!dropout.is_null() && dropout != 0.0) return fail("model.dropout is not supported");
    return {};
  }

  Status set_bytes(std::int32_t id, std::string bytes) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= token_bytes_.size()) token_bytes_.resize(at + 1);
    if (!token_bytes_[at].empty()) return fail("id " + std::to_string(id) + " is given to two tokens");
    token_bytes_[at] = std::move(bytes);
    return {};
  }

  Status read_vocabulary(const json& vocab) {
    if (!vocab.is_object()) return fail("model.vocab is not a JSON object");
    for (const auto& [text, value] : vocab.items()) {
      const auto id = id_of(value);
      if (!id) return fail("token " + shown(text) + " has no id from 0 to " + std::to_string(kMaxId));
      if (text.empty()) return fail("the empty text is a token");
      vocabulary_.emplace(text, *id);
      // A token that is not written in the byte alphabet can only be an added one: its text stands.
      if (auto status = set_bytes(*id, from_alphabet(text).value_or(text)); !status) return status;
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = vocabulary_.find(to_alphabet(std::string(1, static_cast<char>(byte))));
      if (found == vocabulary_.end()) return fail("no token for byte " + std::to_string(byte));
      byte_tokens_[static_cast<std::size_t>(byte)] = found->second;
    }
    return {};
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
          return fail(where + " is " + shown(text) + ", expected two tokens and one space");
        }
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        return fail(where + " is neither a text nor a pair of texts");
      }
      std::array<std::int32_t, 3> ids{};
      const std::array<std::string, 3> texts = {left, right, left + right};
      for (std::size_t part = 0; part < 3; ++part) {
        const auto found = vocabulary_.find(texts[part]);
        if (found == vocabulary_.end()) return fail(where + " needs " + shown(texts[part]) + ", which is no token");
        ids[part] = found->second;
      }
      if (!seen.emplace(ids[0], ids[1]).second) return fail(where + " occurs twice");
      merges_.push_back({ids[0], ids[1], ids[2]});
    }
    return {};
  }

  Status read_added(const json& tokens) {
    if (tokens.is_null()) return {};
    if (!tokens.is_array()) return fail("added_tokens is not a JSON array");
    for (const json& node : tokens) {
      AddedToken token;
      token.content = text_of(node, "content");
      const auto id = id_of(member(node, "id"));
      if (token.content.empty() || !id) return fail("an added token has no content or no id");
      if (token.content.size() > kMaxAddedToken) {
        return fail("added token " + shown(token.content) + " is longer than " + std::to_string(kMaxAddedToken) +
                    " bytes");
      }
      token.id = *id;
      token.special = flag_of(node, "special", false);
      token.normalized = flag_of(node, "normalized", !token.special);
      token.single_word = flag_of(node, "single_word", false);
      token.lstrip = flag_of(node, "lstrip", false);
      token.rstrip = flag_of(node, "rstrip", false);
      const auto known = vocabulary_.find(token.content);
      if (known != vocabulary_.end() && known->second != token.id) {
        return fail("added token " + shown(token.content) + " has id " + std::to_string(token.id) +
                    ", the vocabulary says " + std::to_string(known->second));
      }
      if (known == vocabulary_.end()) {
        if (auto status = set_bytes(token.id, token.content); !status) return status;
      } else {
        token_bytes_[static_cast<std::size_t>(token.id)] = token.content;
      }
      added_.push_back(std::move(token));
    }
    return {};
  }

  /// What the added tokens look like in a text. Of two that look the same, a special one counts.
  void read_sought() {
    for (const bool special : {true, false}) {
      for (const AddedToken& token : added_) {
        if (token.special != special) continue;
        if (!token.normalized) {
          raw_.push_back({token.content, token});
          continue;
        }
        normalized_.push_back({normalize(token.content, normalizer_), token});
      }
    }
  }

  Status read_normalizer(const json& node, int depth) {
    if (node.is_null()) return {};
    const std::string type = text_of(node, "type");
    if (type == "NFC") {
      normalizer_.push_back({NormalizerStep::Kind::nfc, {}, {}});
      return {};
    }
    const json& sequence = member(node, "normalizers");
    if (type == "Sequence" && sequence.is_array() && depth == 0) {
      for (const json& part : sequence) {
        if (auto status = read_normalizer(part, depth + 1); !status) return status;
      }
      return {};
    }
    return fail("normalizer " + shown(type) + " is not supported, expected none or NFC");
  }

  Status read_pre_tokenizer(const json& node, int depth) {
    const std::string type = text_of(node, "type");
    const json& sequence = member(node, "pretokenizers");
    if (type == "Sequence" && sequence.is_array() && depth == 0) {
      for (const json& part : sequence) {
        if (auto status = read_pre_tokenizer(part, depth + 1); !status) return status;
      }
      return {};
    }
    if (byte_level_) return fail("pre_tokenizer " + shown(type) + " behind ByteLevel is not supported");
    if (splitters_.size() >= 16) return fail("pre_tokenizer has more than 16 steps");
    if (type == "ByteLevel") {
      byte_level_ = true;
      add_prefix_space_ = flag_of(node, "add_prefix_space", true);
      if (add_prefix_space_ && !splitters_.empty()) {
        return fail("add_prefix_space behind another pre_tokenizer is not supported");
      }
      return flag_of(node, "use_regex", true) ? add_splitter(Splitter::regex(kGpt2Pattern)) : Status{};
    }
    if (type == "Split") return read_split(node);
    if (type == "Digits") {
      return add_splitter(Splitter::regex(flag_of(node, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"));
    }
    return fail("pre_tokenizer " + shown(type) + " is not supported, expected ByteLevel, Split, Digits or a Sequence");
  }

  Status read_split(const json& node) {
    using Behavior = SplitRule::Behavior;
    constexpr std::array<std::pair<std::string_view, Behavior>, 4> kBehaviors = {
        {{"Isolated", Behavior::isolated},
         {"Removed", Behavior::removed},
         {"MergedWithPrevious", Behavior::merged_with_previous},
         {"MergedWithNext", Behavior::merged_with_next}}};
    const std::string name = text_of(node, "behavior");
    const auto* const behavior = std::ranges::find(kBehaviors, name, &std::pair<std::string_view, Behavior>::first);
    if (behavior == kBehaviors.end()) return fail("Split behavior " + shown(name) + " is not supported");
    const SplitRule rule{behavior->second, flag_of(node, "invert", false)};
    const json& pattern = member(node, "pattern");
    const std::string regex = text_of(pattern, "Regex");
    if (regex.empty()) return add_splitter(Splitter::literal(text_of(pattern, "String"), rule));
    const Result<std::string> translated = pcre2_pattern(regex);
    if (!translated) return tl::unexpected(translated.error());
    return add_splitter(Splitter::regex(*translated, rule));
  }

  Status add_splitter(Result<Splitter> splitter) {
    if (!splitter) return tl::unexpected(splitter.error());
    splitters_.push_back(std::move(*splitter));
    return {};
  }

  Status read_decoder() {
    const json& node = member(root_, "decoder");
    if (node.is_null() || text_of(node, "type") == "ByteLevel") return {};
    return fail("decoder " + shown(text_of(node, "type")) + " is not supported, expected ByteLevel");
  }

  const json& root_;
  Vocabulary vocabulary_;
  std::array<std::int32_t, 256> byte_tokens_{};
  std::vector<BpeMerge> merges_;
  std::vector<std::string> token_bytes_;
  std::vector<AddedToken> added_;
  std::vector<AddedTokenFinder::Entry> raw_;
  std::vector<AddedTokenFinder::Entry> normalized_;
  std::vector<NormalizerStep> normalizer_;
  std::vector<Splitter> splitters_;
  bool byte_level_ = false;
  bool add_prefix_space_ = false;
};

}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view text, std::string_view file) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return fail(std::string(file) + ": not a JSON text");
  auto parts = Reader(root).read();
  if (!parts) return fail(std::string(file) + ": " + parts.error().message);
  return Tokenizer(std::move(*parts));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  const auto bytes = read_file(path, kMaxFile);
  if (!bytes) return tl::unexpected(bytes.error());
  return parse(as_text(*bytes), path.string());
}

}  // namespace nanscope
