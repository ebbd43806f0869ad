#include "instrument/tokenizer/pipeline_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>

#include "instrument/tokenizer/character.h"
#include "instrument/tokenizer/json_fields.h"
#include "instrument/tokenizer/split_pattern.h"

namespace nanscope {
namespace {

constexpr std::size_t kMaxSteps = 16;

/// "Replace" of one character by one, in a normalizer or decoder: from, to. Longer ones could make a text grow without
/// a bound.
Result<std::pair<std::string, std::string>> read_replace(const nlohmann::json& node) {
  std::pair<std::string, std::string> replace{fields::text_of(fields::member(node, "pattern"), "String"),
                                              fields::text_of(node, "content")};
  if (is_one_character(replace.first) && is_one_character(replace.second)) return replace;
  return fail("Replace of " + fields::shown(replace.first) + " by " + fields::shown(replace.second) +
              " is not supported, expected one character by one");
}

/// Reads a tokenizer.json's steps one after another.
class PipelineReader {
 public:
  Result<Pipeline> read(const nlohmann::json& root) {
    Status status = read_normalizer(fields::member(root, "normalizer"), 0);
    if (status) status = read_pre_tokenizer(fields::member(root, "pre_tokenizer"), 0);
    if (status) status = read_decoder(fields::member(root, "decoder"));
    if (!status) return tl::unexpected(status.error());
    return std::move(pipeline_);
  }

 private:
  using json = nlohmann::json;

  Status read_normalizer(const json& node, int depth) {
    using Kind = NormalizerStep::Kind;
    if (node.is_null()) return {};
    const std::string type = fields::text_of(node, "type");
    const json& sequence = fields::member(node, "normalizers");
    if (type == "Sequence" && sequence.is_array() && depth == 0) {
      for (const json& part : sequence) {
        if (auto status = read_normalizer(part, depth + 1); !status) return status;
      }
      return {};
    }
    std::vector<NormalizerStep>& steps = pipeline_.normalizer;
    if (steps.size() >= kMaxSteps) return fail("normalizer has more than 16 steps");
    if (type == "NFC") {
      steps.push_back({Kind::nfc, {}, {}});
    } else if (type == "Prepend") {
      const std::string text = fields::text_of(node, "prepend");
      if (!is_one_character(text)) {
        return fail("Prepend of " + fields::shown(text) + " is not supported, expected one character");
      }
      steps.push_back({Kind::prepend, {}, text});
    } else if (type == "Replace") {
      auto replace = read_replace(node);
      if (!replace) return tl::unexpected(replace.error());
      steps.push_back({Kind::replace, std::move(replace->first), std::move(replace->second)});
    } else {
      return fail("normalizer " + fields::shown(type) + " is not supported, expected NFC, Prepend or Replace");
    }
    return {};
  }

  Status read_pre_tokenizer(const json& node, int depth) {
    if (node.is_null() && depth == 0) return {};
    const std::string type = fields::text_of(node, "type");
    const json& sequence = fields::member(node, "pretokenizers");
    if (type == "Sequence" && sequence.is_array() && depth == 0) {
      for (const json& part : sequence) {
        if (auto status = read_pre_tokenizer(part, depth + 1); !status) return status;
      }
      return {};
    }
    if (pipeline_.byte_level)
      return fail("pre_tokenizer " + fields::shown(type) + " behind ByteLevel is not supported");
    if (pipeline_.splitters.size() >= kMaxSteps) return fail("pre_tokenizer has more than 16 steps");
    if (type == "ByteLevel") return read_byte_level(node);
    if (type == "Metaspace") return read_metaspace(node);
    if (type == "Split") return read_split(node);
    if (type == "Digits") {
      const bool single = fields::flag_of(node, "individual_digits", false);
      return add_splitter(Splitter::regex(single ? R"(\p{N})" : R"(\p{N}+)"));
    }
    return fail("pre_tokenizer " + fields::shown(type) +
                " is not supported, expected ByteLevel, Metaspace, Split, Digits or a Sequence");
  }

  Status read_byte_level(const json& node) {
    if (metaspace_) return fail("pre_tokenizer ByteLevel behind Metaspace is not supported");
    pipeline_.byte_level = true;
    if (fields::flag_of(node, "add_prefix_space", true)) {
      pipeline_.space.prefix = SpaceMark::Prefix::always;
      if (!pipeline_.splitters.empty()) {
        return fail("add_prefix_space behind another pre_tokenizer is not supported");
      }
    }
    return fields::flag_of(node, "use_regex", true) ? add_splitter(Splitter::regex(kGpt2Pattern)) : Status{};
  }

  Status read_metaspace(const json& node) {
    using Prefix = SpaceMark::Prefix;
    if (metaspace_ || !pipeline_.splitters.empty()) {
      return fail("pre_tokenizer Metaspace behind another is not supported");
    }
    metaspace_ = true;
    SpaceMark& space = pipeline_.space;
    space.text = fields::text_of(node, "replacement");
    if (!is_one_character(space.text)) {
      return fail("replacement " + fields::shown(space.text) + " of Metaspace is not one character");
    }
    const bool has_scheme = !fields::member(node, "prepend_scheme").is_null();
    const std::string scheme = has_scheme ? fields::text_of(node, "prepend_scheme") : "always";
    if (scheme != "never" && scheme != "first" && scheme != "always") {
      return fail("prepend_scheme " + fields::shown(scheme) + " of Metaspace is not supported");
    }
    if (scheme != "never" && !fields::flag_of(node, "add_prefix_space", true)) {
      return fail("add_prefix_space of Metaspace contradicts its prepend_scheme " + fields::shown(scheme));
    }
    space.prefix = scheme == "never" ? Prefix::never : scheme == "first" ? Prefix::first : Prefix::always;
    if (!fields::flag_of(node, "split", true)) return {};
    return add_splitter(Splitter::literal(space.text, {SplitRule::Behavior::merged_with_next}));
  }

  Status read_split(const json& node) {
    using Behavior = SplitRule::Behavior;
    constexpr std::array<std::pair<std::string_view, Behavior>, 4> kBehaviors = {
        {{"Isolated", Behavior::isolated},
         {"Removed", Behavior::removed},
         {"MergedWithPrevious", Behavior::merged_with_previous},
         {"MergedWithNext", Behavior::merged_with_next}}};
    const std::string name = fields::text_of(node, "behavior");
    const auto* const behavior = std::ranges::find(kBehaviors, name, &std::pair<std::string_view, Behavior>::first);
    if (behavior == kBehaviors.end()) return fail("Split behavior " + fields::shown(name) + " is not supported");
    const SplitRule rule{behavior->second, fields::flag_of(node, "invert", false)};
    const json& pattern = fields::member(node, "pattern");
    const std::string regex = fields::text_of(pattern, "Regex");
    if (regex.empty()) return add_splitter(Splitter::literal(fields::text_of(pattern, "String"), rule));
    const Result<std::string> translated = pcre2_pattern(regex);
    if (!translated) return tl::unexpected(translated.error());
    return add_splitter(Splitter::regex(*translated, rule));
  }

  Status add_splitter(Result<Splitter> splitter) {
    if (!splitter) return tl::unexpected(splitter.error());
    pipeline_.splitters.push_back(std::move(*splitter));
    return {};
  }

  Status read_decoder(const json& node) {
    const std::string type = fields::text_of(node, "type");
    if (pipeline_.byte_level) {
      if (node.is_null() || type == "ByteLevel") return {};
      return fail("decoder " + fields::shown(type) + " is not supported, expected ByteLevel");
    }
    const json& sequence = fields::member(node, "decoders");
    if (type != "Sequence" || !sequence.is_array()) return read_decoder_step(node);
    if (sequence.size() > kMaxSteps) return fail("decoder has more than 16 steps");
    for (const json& part : sequence) {
      if (auto status = read_decoder_step(part); !status) return status;
    }
    return {};
  }

  /// One step of what must be Replace (any number), ByteFallback, Fuse and Strip, in this order.
  Status read_decoder_step(const json& node) {
    constexpr std::array<std::string_view, 4> kOrder = {"Replace", "ByteFallback", "Fuse", "Strip"};
    const std::string type = fields::text_of(node, "type");
    const auto step = static_cast<std::size_t>(std::ranges::find(kOrder, type) - kOrder.begin());
    if (step == kOrder.size()) {
      return fail("decoder " + fields::shown(type) + " is not supported without pre_tokenizer ByteLevel");
    }
    if (step < decoder_step_ || (type == "Strip" && decoder_step_ != 3)) {
      return fail("decoder " + fields::shown(type) + " in this place is not supported");
    }
    decoder_step_ = type == "Replace" ? step : step + 1;
    TokenDecoder& decoder = pipeline_.decoder;
    if (type == "Replace") {
      auto replace = read_replace(node);
      if (!replace) return tl::unexpected(replace.error());
      decoder.replacements.push_back(std::move(*replace));
    } else if (type == "ByteFallback") {
      decoder.byte_fallback = true;
    } else if (type == "Strip") {
      return read_strip(node);
    }
    return {};
  }

  Status read_strip(const json& node) {
    DecodedStrip& strip = pipeline_.decoder.strip;
    strip.text = fields::text_of(node, "content");
    const json& start = fields::member(node, "start");
    if (!is_one_character(strip.text) || !start.is_number_unsigned()) {
      return fail("decoder Strip has no content of one character or no start");
    }
    if (fields::member(node, "stop") != 0) return fail("decoder Strip where a text ends (stop) is not supported");
    strip.count = start.get<std::uint64_t>();
    return {};
  }

  Pipeline pipeline_;
  bool metaspace_ = false;
  std::size_t decoder_step_ = 0;
};

}  // namespace

std::string TokenDecoder::bytes_of(std::string token) const {
  for (const auto& [from, to] : replacements) token = replace_all(token, from, to);
  if (!byte_fallback || token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return token;
  unsigned char byte = 0;
  const char* const digits = token.data() + 3;
  const auto parsed = std::from_chars(digits, digits + 2, byte, 16);
  return parsed.ptr == digits + 2 ? std::string(1, static_cast<char>(byte)) : token;
}

Result<Pipeline> read_pipeline(const nlohmann::json& root) { return PipelineReader().read(root); }

}  // namespace nanscope
